/* Internal: what the ways to a product with few rows or few columns share. */
#ifndef EXT_GEMV_JOB_H_
#define EXT_GEMV_JOB_H_

#include "activation.h"

enum {
  DOT_MANY = 8,  /* vectors x of one block at most */
  DOT_FEW = 4,   /* vectors w of one block */
  DOT_TILE = 64, /* vectors x whose results are finished together */
  WALK_ROWS = 4,
  WALK_VECTORS = 8, /* of columns */
  MOST_ROWS = 14    /* beyond, packing b pays */
};

typedef enum { NEITHER, DOT_ROWS, DOT_COLUMNS, WALK } gemv_way; /* dots: what x are */

typedef struct {
  const ext_matmul_params* p;
  int packed;
  gemv_way way;
  ext_epilogue e;
  const float *a, *b;
  float* y;
  const float* gathered; /* dots: NULL, or the few vectors, the same for all batch items */
  int64_t parts, part;   /* of the many vectors or columns: how many parts of a batch item, of how
                            many each but the last */
} gemv_job;

/* Operands of one batch item. */
typedef struct {
  const float *a, *b, *residual;
  float* y;
} gemv_item;

EXT_INLINE gemv_item item_at(const gemv_job* job, int64_t index) {
  const ext_matmul_params* p = job->p;
  gemv_item item = {job->a, job->b, job->e.residual, job->y};
  for (int d = p->batch_ndim - 1; d >= 0; d--) {
    int64_t i = index % p->batch[d];
    index /= p->batch[d];
    item.a += i * p->a_batch[d];
    item.b += i * p->b_batch[d];
    item.y += i * p->y_batch[d];
    if (item.residual) item.residual += i * p->residual_batch[d];
  }
  return item;
}

/* Finishes the tile t of the result whose corner is (i, j). */
EXT_INLINE void gemv_finish(const gemv_job* job, const gemv_item* item, int64_t i, int64_t j,
                            int64_t rows, int64_t columns, float* t, int64_t width) {
  int64_t y_row = job->p->y_row, residual_row = job->e.residual_stride;
  const float* residual = item->residual ? item->residual + i * residual_row + j : NULL;
  EXT_NAME(ext_finish_tile)
  (&job->e, rows, columns, t, width, residual, residual_row, item->y + i * y_row + j, y_row);
}

/* What the few vectors are where they lie. */
typedef struct {
  int rows; /* as in gemv_dots */
  int64_t few, row, step;
} gemv_few;

EXT_INLINE gemv_few few_of(const gemv_job* job) {
  const ext_matmul_params* p = job->p;
  if (job->way == DOT_COLUMNS) return (gemv_few){0, p->m, p->a_row, p->a_col};
  if (job->packed) return (gemv_few){1, p->n, 1, EXT_PANEL};
  return (gemv_few){1, p->n, p->b_col, p->b_row};
}

/* dst[j][p] = w[j row + p step], j < few, p < k. */
EXT_INLINE void gemv_gather(const float* w, int64_t row, int64_t step, int64_t few, int64_t k,
                            float* dst) {
  for (int64_t j = 0; j < few; j++)
    for (int64_t p = 0; p < k; p++) dst[j * k + p] = w[j * row + p * step];
}

/* sums[i][j] += x[i] . w[j] along k numbers, i < many, j < few, constants: lane by lane. */
EXT_INLINE void add_dots(const int many, const int few, int64_t k, const float* x, int64_t x_row,
                         const float* w, int64_t w_row, vf sums[DOT_MANY][DOT_FEW]) {
  int64_t p = 0;
  for (; p + VL <= k; p += VL) {
    vf v[DOT_FEW];
    EXT_UNROLL
    for (int j = 0; j < few; j++) v[j] = vf_load(w + j * w_row + p);
    EXT_UNROLL
    for (int i = 0; i < many; i++) {
      vf u = vf_load(x + i * x_row + p);
      if (few > 1) u = vf_keep(u); /* else the compiler would load it for each w */
      EXT_UNROLL
      for (int j = 0; j < few; j++) sums[i][j] = vf_fma(u, v[j], sums[i][j]);
    }
  }
  if (p == k) return;
  vf v[DOT_FEW];
  EXT_UNROLL
  for (int j = 0; j < few; j++) v[j] = vf_load_n(w + j * w_row + p, k - p);
  EXT_UNROLL
  for (int i = 0; i < many; i++) {
    const vf u = vf_load_n(x + i * x_row + p, k - p);
    EXT_UNROLL
    for (int j = 0; j < few; j++) sums[i][j] = vf_fma(u, v[j], sums[i][j]);
  }
}

/* Tasks [begin, end) of a gemv_job, the context: (batch item, part of the many vectors or columns).
 */
int EXT_NAME(ext_gemv_dots)(void* context, int64_t begin, int64_t end);
int EXT_NAME(ext_gemv_walk)(void* context, int64_t begin, int64_t end);

#endif /* EXT_GEMV_JOB_H_ */
