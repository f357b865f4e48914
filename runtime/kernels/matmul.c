/*
 * y[b][i][j] = epilogue(sum_p a[b][i][p] b[b][p][j]) over up to 4 batch axes.
 *
 * Few rows or columns are the business of gemv.c.  Else a b that is not packed is packed first: by
 * each task for itself where batch items are many, else all items once, on all threads.
 */
#include "gemm.h"
#include "gemv.h"
#include "subnormals.h"

/* Columns of `a` are apart; reads along whichever axis is closer in memory. */
static void pack_strided(const void* source, int64_t offset, int64_t row, int64_t rows, int64_t k0,
                         int64_t kc, float* dst) {
  const ext_matmul_source* s = source;
  const float* a = s->a + offset + row * s->a_row + k0 * s->a_col;
  for (int64_t k = 0; k < kc; k++)
    for (int64_t r = 0; r < rows; r++) dst[r * A_STRIDE + k] = a[k * s->a_col + r * s->a_row];
}

int EXT_NAME(ext_matmul_gemm)(const ext_matmul_params* p, ext_matmul_source* source, const float* a,
                              const ext_epilogue* e, float* y, ext_gemm* g) {
  if (p->batch_ndim < 0 || p->batch_ndim > 4) return EXT_ERR_ARGUMENT;
  *source = (ext_matmul_source){a, p->a_row, p->a_col};
  *g = (ext_gemm){.m = p->m,
                  .n = p->n,
                  .k = p->k,
                  .pack = p->a_col == 1 ? NULL : pack_strided,
                  .source = source,
                  .a = a,
                  .a_row = p->a_row,
                  .y = y,
                  .y_row = p->y_row,
                  .epilogue = e ? *e : (ext_epilogue){0},
                  .batch_ndim = p->batch_ndim};
  for (int d = 0; d < p->batch_ndim; d++) {
    g->batch[d] = p->batch[d];
    g->a_batch[d] = p->a_batch[d];
    g->b_batch[d] = p->b_batch[d];
    g->y_batch[d] = p->y_batch[d];
    g->residual_batch[d] = p->residual_batch[d];
  }
  return EXT_OK;
}

int EXT_NAME(ext_matmul_packed)(const ext_matmul_params* p, const float* a, const float* b,
                                const ext_epilogue* e, float* y) {
  ext_matmul_source s;
  ext_gemm g;
  int status = EXT_NAME(ext_matmul_gemm)(p, &s, a, e, y, &g);
  if (status) return status;
  g.panels = b;
  if (EXT_NAME(ext_gemv_takes)(p, 1)) return EXT_NAME(ext_gemv_run)(p, 1, a, b, e, y);
  return EXT_NAME(ext_gemm_run)(&g);
}

/* Panel of columns j .. j + 15 of one batch item. */
static void pack_panel(const ext_matmul_params* p, const float* b, int64_t j, float* dst) {
  EXT_NAME(ext_pack_panel)
  (p->k, i64_min(EXT_PANEL, p->n - j), b + j * p->b_col, p->b_row, p->b_col, dst);
}

typedef struct {
  const ext_matmul_params* p;
  const ext_gemm* g; /* for fused tasks */
  const float* b;
  float* packed;
  int64_t panels;   /* of one batch item */
  int64_t batch[4]; /* axes of b; 1 where b broadcasts */
} pack_job;

static const float* batch_item(const pack_job* job, int64_t index) {
  const float* b = job->b;
  for (int d = job->p->batch_ndim - 1; d >= 0; d--) {
    b += index % job->batch[d] * job->p->b_batch[d];
    index /= job->batch[d];
  }
  return b;
}

static int pack_range(void* context, int64_t begin, int64_t end) {
  const pack_job* job = context;
  for (int64_t i = begin; i < end; i++)
    pack_panel(job->p, batch_item(job, i / job->panels), i % job->panels * EXT_PANEL,
               job->packed + i * job->p->k * EXT_PANEL);
  return EXT_OK;
}

/* Packs b and multiplies, one batch item after the other. */
static int fused_range(void* context, int64_t begin, int64_t end) {
  const pack_job* job = context;
  const ext_matmul_params* p = job->p;
  float* packed = ext_workspace_alloc((size_t)(job->panels * EXT_PANEL * p->k) * sizeof(float));
  if (!packed) return EXT_ERR_MEMORY;
  int status = EXT_OK;
  for (int64_t item = begin; item < end && !status; item++) {
    ext_gemm g = *job->g;
    int64_t a = 0, rest = item;
    for (int d = p->batch_ndim - 1; d >= 0; d--) {
      int64_t i = rest % p->batch[d];
      rest /= p->batch[d];
      a += i * p->a_batch[d];
      g.y += i * p->y_batch[d];
      if (g.epilogue.residual) g.epilogue.residual += i * p->residual_batch[d];
    }
    const float* b = batch_item(job, item);
    for (int64_t j = 0; j < job->panels; j++)
      pack_panel(p, b, j * EXT_PANEL, packed + j * p->k * EXT_PANEL);
    g.panels = packed;
    status = EXT_NAME(ext_gemm_serial)(&g, a);
  }
  ext_workspace_free(packed);
  return status;
}

/* b is packed by the task that uses it while a packed item stays in L2 beside the block of A. */
static const int64_t FUSED_FLOATS = 96 * 1024;
/* Floats that one task packs at least: some ten microseconds. */
static const int64_t PACK_GRAIN = 1 << 15;
/* Multiply-adds of one task of whole batch items at least, as in gemm.c. */
static const int64_t FUSED_MACS = 400000;

int EXT_NAME(ext_matmul)(const ext_matmul_params* p, const float* a, const float* b,
                         const ext_epilogue* e, float* y) {
  ext_matmul_source s;
  ext_gemm g;
  int status = EXT_NAME(ext_matmul_gemm)(p, &s, a, e, y, &g);
  if (status) return status;
  if (EXT_NAME(ext_gemv_takes)(p, 0)) return EXT_NAME(ext_gemv_run)(p, 0, a, b, e, y);
  pack_job job = {.p = p, .g = &g, .b = b, .panels = ceil_div(p->n, EXT_PANEL)};
  int64_t batches = 1, items = 1;
  for (int d = 0; d < p->batch_ndim; d++) {
    job.batch[d] = p->batch[d];
    batches *= p->batch[d];
  }
  if (batches <= 0 || p->m <= 0 || p->n <= 0) return EXT_OK;
  int64_t packed_stride = job.panels * EXT_PANEL * p->k;
  for (int d = p->batch_ndim - 1; d >= 0; d--) {
    if (p->b_batch[d] == 0) job.batch[d] = 1;
    g.b_batch[d] = p->b_batch[d] == 0 ? 0 : items * packed_stride;
    items *= job.batch[d];
  }
  if (items == batches && packed_stride <= FUSED_FLOATS && batches >= 2 * ext_num_threads()) {
    int64_t macs = p->m * p->n * i64_max(1, p->k);
    return ext_parallel_products(batches, i64_max(1, FUSED_MACS / macs), fused_range, &job);
  }
  job.packed = ext_workspace_alloc((size_t)(items * packed_stride) * sizeof(float));
  if (!job.packed) return EXT_ERR_MEMORY;
  g.panels = job.packed;
  status = ext_parallel_for(items * job.panels, i64_max(1, PACK_GRAIN / (EXT_PANEL * (p->k + 1))),
                            pack_range, &job);
  if (!status) status = EXT_NAME(ext_gemm_run)(&g);
  ext_workspace_free(job.packed);
  return status;
}

EXT_DISPATCH(ext_matmul,
             (const ext_matmul_params* p, const float* a, const float* b, const ext_epilogue* e,
              float* y),
             (p, a, b, e, y))
EXT_DISPATCH(ext_matmul_packed,
             (const ext_matmul_params* p, const float* a, const float* b, const ext_epilogue* e,
              float* y),
             (p, a, b, e, y))
