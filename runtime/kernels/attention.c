/*
 * y[b][h][i][:] = sum_j softmax_j(scale q[b][h][i] . k[b][h][j] + mask[b][h][i][j]) v[b][h][j][:]
 *
 * Few queries have a kernel of their own, attention_few.c.  For others
 * k and v of a head are packed into panels once; then blocks of query rows pass: scores into
 * scratch memory that stays in L2, exponentials in place, times v, and the division by their sum
 * last, on the narrow result.  The scores of a whole head are never in memory at once.  Keys that
 * the mask hides from all rows of a block, as from the first ones of a causal one, are left out.
 *
 * Heads are shared out among threads; each packs for itself.  Where heads are too few for that, all
 * are packed first and the threads share the blocks of rows.
 */
#include "attention.h"

#include "../simd/math.h"
#include "gemm.h"
#include "subnormals.h"

/* Floats of scratch scores at most, half of a 1 MiB L2, and rows of a block at most: with 8 MR, 197
 * queries of ViT-B measured 4 % slower, 128 of BERT the same. */
enum { SCORE_FLOATS = 1 << 17, BLOCK_ROWS = 2 * MR };

typedef struct {
  const ext_attention_params* p;
  const float *q, *k, *v, *mask;
  float* y;
  float* packed;              /* all heads' panels, or NULL: a task packs for itself */
  int64_t k_floats, v_floats; /* of one head's panels */
  int64_t row_floats;         /* between rows of scores */
  int64_t rows, blocks;       /* blocks of that many rows in a head */
} attention_job;

static void pack_group(const attention_job* job, int64_t group, float* dst) {
  const ext_attention_params* p = job->p;
  const float* k = job->k + group_offset(p, p->k_strides, group);
  const float* v = job->v + group_offset(p, p->v_strides, group);
  for (int64_t j = 0; j < p->keys; j += EXT_PANEL, dst += EXT_PANEL * p->depth)
    EXT_NAME(ext_pack_panel)
  (p->depth, i64_min(EXT_PANEL, p->keys - j), k + j * p->k_strides[2], 1, p->k_strides[2], dst);
  for (int64_t j = 0; j < p->width; j += EXT_PANEL, dst += EXT_PANEL * p->keys)
    EXT_NAME(ext_pack_panel)
  (p->keys, i64_min(EXT_PANEL, p->width - j), v + j, p->v_strides[2], 1, dst);
}

/* y[m][n] = a[m][k] b[k][n], rows of a and y that far apart, b in panels of so many rows. */
static int product(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_row,
                   const float* panels, int64_t panel_rows, float* y, int64_t y_row) {
  ext_gemm g = {.m = m, .n = n, .k = k, .a = a, .a_row = a_row, .panels = panels, .y = y};
  g.panel_rows = panel_rows;
  g.y_row = y_row;
  return EXT_NAME(ext_gemm_serial)(&g, 0);
}

/* One vector of scores, scaled and masked; `lanes` of them are there. */
EXT_INLINE vf scaled(const int masked, const float* s, vf scale, const float* mask, int64_t step,
                     int64_t lanes) {
  vf v = lanes == VL ? vf_load(s) : vf_load_n(s, lanes);
  if (!masked) return v * scale;
  vf m = step == 0 ? vf_set1(*mask) : lanes == VL ? vf_load(mask) : vf_load_n(mask, lanes);
  return vf_fma(v, scale, m);
}

/* s[j] = exp(s[j] scale + mask[j] - most), j < n, where most is the greatest exponent; returns the
 * sum.  Memory after s up to a multiple of VL may be read and written.  A NaN, or a greatest
 * exponent of -inf or +inf, makes the sum NaN. */
EXT_INLINE float exponentials(const int masked, int64_t n, float scale_by, const float* mask,
                              int64_t step, float* s) {
  const vf scale = vf_set1(scale_by), low = vf_set1(-__builtin_inff());
  vf m0 = low, m1 = low;
  int64_t j = 0;
  for (; j + 2 * VL <= n; j += 2 * VL) {
    vf u = scaled(masked, s + j, scale, mask + j * step, step, VL);
    vf v = scaled(masked, s + j + VL, scale, mask + (j + VL) * step, step, VL);
    if (masked) {
      vf_store(s + j, u);
      vf_store(s + j + VL, v);
    }
    m0 = vf_max(m0, u);
    m1 = vf_max(m1, v);
  }
  float most = vf_most(vf_max(m0, m1));
  for (; j < n; j += VL) {
    int64_t lanes = i64_min(VL, n - j);
    vf u = scaled(masked, s + j, scale, mask + j * step, step, lanes);
    if (masked) vf_store_n(s + j, u, lanes);
    float values[VL];
    vf_store(values, u);
    for (int i = 0; i < lanes; i++) most = values[i] > most ? values[i] : most;
  }
  const vf factor = masked ? vf_set1(1.0f) : scale, shift = vf_set1(most);
  vf s0 = vf_zero(), s1 = vf_zero();
  for (j = 0; j + 2 * VL <= n; j += 2 * VL) {
    vf u = vf_exp_normal(vf_load(s + j) * factor - shift),
       v = vf_exp_normal(vf_load(s + j + VL) * factor - shift);
    vf_store(s + j, u);
    vf_store(s + j + VL, v);
    s0 += u;
    s1 += v;
  }
  float sum = vf_sum(s0 + s1);
  for (; j < n; j += VL) {
    int64_t lanes = i64_min(VL, n - j);
    vf u = vf_exp_normal(vf_load_n(s + j, lanes) * factor - shift);
    vf_store_n(s + j, u, lanes);
    for (int i = 0; i < lanes; i++) sum += s[j + i];
  }
  return sum;
}

/* Rows [i0, i1) of one head, whose panels lie at `packed`. */
static int block(const attention_job* job, int64_t head, int64_t i0, int64_t i1,
                 const float* packed, float* scores) {
  const ext_attention_params* p = job->p;
  const float* q = job->q + head_offset(p, p->q_strides, head) + i0 * p->q_strides[2];
  float* y = job->y + head_offset(p, p->y_strides, head) + i0 * p->y_strides[2];
  const float* masks = NULL;
  if (job->mask)
    masks = job->mask + head_offset(p, p->mask_strides, head) + i0 * p->mask_strides[2];
  const int64_t keys = keys_seen(p, masks, i0, i1);
  int status = product(i1 - i0, keys, p->depth, q, p->q_strides[2], packed, p->depth, scores,
                       job->row_floats);
  if (status) return status;
  float sums[BLOCK_ROWS];
  for (int64_t i = 0; i < i1 - i0; i++) {
    float* row = scores + i * job->row_floats;
    const float* mask = masks ? masks + i * p->mask_strides[2] : NULL;
    sums[i] = mask ? exponentials(1, keys, p->scale, mask, p->mask_strides[3], row)
                   : exponentials(0, keys, p->scale, row, 0, row);
    if (p->guarded && sums[i] != sums[i]) {
      if (p->guarded == EXT_GUARD_KEYS) { /* the row holds exponentials: its scores once more */
        status = product(1, p->keys, p->depth, q + i * p->q_strides[2], p->q_strides[2], packed,
                         p->depth, row, job->row_floats);
        if (status) return status;
        if (!is_without_key(p, mask, row, p->keys)) continue;
      }
      memset(row, 0, (size_t)p->keys * sizeof *row);
      sums[i] = 1.0f;
    }
  }
  status = product(i1 - i0, p->width, keys, scores, job->row_floats, packed + job->k_floats,
                   p->keys, y, p->y_strides[2]);
  for (int64_t i = 0; i < i1 - i0; i++, y += p->y_strides[2]) {
    vf factor = vf_set1(1.0f / sums[i]);
    int64_t j = 0;
    for (; j + VL <= p->width; j += VL) vf_store(y + j, vf_load(y + j) * factor);
    if (j < p->width) vf_store_n(y + j, vf_load_n(y + j, p->width - j) * factor, p->width - j);
  }
  return status;
}

/* Items are blocks of rows, those of a head side by side. */
static int blocks(void* context, int64_t begin, int64_t end) {
  const attention_job* job = context;
  const ext_attention_params* p = job->p;
  int64_t head_floats = job->k_floats + job->v_floats;
  int64_t floats = job->rows * job->row_floats + (job->packed ? 0 : head_floats);
  float* scores = ext_workspace_alloc((size_t)floats * sizeof(float));
  if (!scores) return EXT_ERR_MEMORY;
  float* own = scores + job->rows * job->row_floats;
  int64_t packed_group = -1;
  int status = EXT_OK;
  for (int64_t item = begin; item < end && !status; item++) {
    int64_t head = item / job->blocks, part = item % job->blocks;
    const int64_t group = head / heads_of_group(p);
    if (!job->packed && group != packed_group) {
      pack_group(job, group, own);
      packed_group = group;
    }
    status =
        block(job, head, part * p->queries / job->blocks, (part + 1) * p->queries / job->blocks,
              job->packed ? job->packed + group * head_floats : own, scores);
  }
  ext_workspace_free(scores);
  return status;
}

static int pack_groups(void* context, int64_t begin, int64_t end) {
  const attention_job* job = context;
  for (int64_t group = begin; group < end; group++)
    pack_group(job, group, job->packed + group * (job->k_floats + job->v_floats));
  return EXT_OK;
}

int EXT_NAME(ext_attention)(const ext_attention_params* p, const float* q, const float* k,
                            const float* v, const float* mask, float* y) {
  int64_t heads = p->batch * p->heads;
  if (mask && p->mask_strides[3] != 0 && p->mask_strides[3] != 1) return EXT_ERR_ARGUMENT;
  if (heads % heads_of_group(p)) return EXT_ERR_ARGUMENT;
  if (heads <= 0 || p->queries <= 0 || p->width <= 0) return EXT_OK;
  if (is_few(p)) return EXT_NAME(ext_attention_few)(p, q, k, v, mask, y);
  attention_job job = {.p = p, .q = q, .k = k, .v = v, .mask = mask, .y = y};
  job.k_floats = ceil_div(p->keys, EXT_PANEL) * EXT_PANEL * p->depth;
  job.v_floats = ceil_div(p->width, EXT_PANEL) * EXT_PANEL * p->keys;
  job.row_floats = (p->keys + EXT_PANEL) / EXT_PANEL * EXT_PANEL;
  int64_t fits = SCORE_FLOATS / job.row_floats / MR * MR;
  job.blocks = ceil_div(p->queries, i64_min(BLOCK_ROWS, i64_max(MR, fits)));
  job.rows = ceil_div(p->queries, job.blocks);
  int64_t threads = ext_num_threads();
  if (threads == 1 || heads >= 2 * threads)
    return ext_parallel_products(heads * job.blocks, job.blocks, blocks, &job);
  const int64_t groups = heads / heads_of_group(p);
  size_t floats = (size_t)(groups * (job.k_floats + job.v_floats));
  job.packed = ext_workspace_alloc(floats * sizeof(float));
  if (!job.packed) return EXT_ERR_MEMORY;
  int status = ext_parallel_for(groups, 1, pack_groups, &job);
  if (!status) status = ext_parallel_products(heads * job.blocks, 1, blocks, &job);
  ext_workspace_free(job.packed);
  return status;
}

EXT_DISPATCH(ext_attention,
             (const ext_attention_params* p, const float* q, const float* k, const float* v,
              const float* mask, float* y),
             (p, q, k, v, mask, y))
