/* y[b][i][j] = requantise(sum_p (a[b][i][p] - a_zero) b[p][j]) over up to 4 batch axes of a. */
#include "qgemm.h"

typedef struct {
  const uint8_t* a;
  int64_t k, a_row, a_col;
  ext_dtype dtype;
} strided_rows;

/* Columns of a are apart: reads them one after the other. */
static void pack_strided(const void* source, int64_t offset, int64_t row, int64_t rows, qa* dst,
                         int64_t stride) {
  const strided_rows* s = source;
  const uint8_t* a = s->a + offset + row * s->a_row;
  for (int64_t k = 0; k < s->k; k++)
    for (int64_t r = 0; r < rows; r++)
      qa_run(s->dtype, dst + r * stride + k, a + k * s->a_col + r * s->a_row, 1);
}

int EXT_NAME(ext_qmatmul)(const ext_matmul_params* p, ext_dtype a_dtype, int32_t a_zero,
                          const void* a, const int8_t* b, const ext_requantise* e, void* y) {
  if (p->batch_ndim < 0 || p->batch_ndim > 4) return EXT_ERR_ARGUMENT;
  strided_rows s = {a, p->k, p->a_row, p->a_col, a_dtype};
  ext_qgemm g = {.m = p->m,
                 .n = p->n,
                 .k = p->k,
                 .pack = p->a_col == 1 ? NULL : pack_strided,
                 .source = &s,
                 .a = a,
                 .a_row = p->a_row,
                 .panels = b,
                 .y = y,
                 .y_row = p->y_row,
                 .batch_ndim = p->batch_ndim};
  for (int d = 0; d < p->batch_ndim; d++) {
    if (p->b_batch[d]) return EXT_ERR_ARGUMENT;
    g.batch[d] = p->batch[d];
    g.a_batch[d] = p->a_batch[d];
    g.y_batch[d] = p->y_batch[d];
    g.residual_batch[d] = p->residual_batch[d];
  }
  int status = EXT_NAME(ext_qgemm_plan)(&g, a_dtype, a_zero, e);
  return status ? status : EXT_NAME(ext_qgemm_run)(&g);
}

EXT_DISPATCH(ext_qmatmul,
             (const ext_matmul_params* p, ext_dtype a_dtype, int32_t a_zero, const void* a,
              const int8_t* b, const ext_requantise* e, void* y),
             (p, a_dtype, a_zero, a, b, e, y))
