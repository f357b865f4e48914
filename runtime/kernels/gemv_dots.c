/*
 * y[i][j] = epilogue(x[i] . w[j]) for many vectors x and few w, all contiguous along K.  x are the
 * rows of a and w the columns of b (few columns), or x are the columns of b and w the rows of a
 * (few rows, b transposed).  The few vectors are gathered before if need be.
 */
#include "gemv_job.h"

/* The many vectors x[i], i < count, and the few w[j], j < few.  The result of i and j is
 * y[i][j] where x are the rows of a, else y[j][i]. */
typedef struct {
  const float* x;
  int64_t x_row, count;
  const float* w;
  int64_t w_row, few;
  int rows; /* x are the rows of a */
} gemv_dots;

/* out[i out_x + j out_w] = x[i] . w[j], i < many, j < few: constants. */
EXT_INLINE void dot_block(const int many, const int few, int64_t k, const float* x, int64_t x_row,
                          const float* w, int64_t w_row, float* out, int64_t out_x, int64_t out_w) {
  vf acc[DOT_MANY][DOT_FEW];
  EXT_UNROLL
  for (int i = 0; i < many; i++) {
    EXT_UNROLL
    for (int j = 0; j < few; j++) acc[i][j] = vf_zero();
  }
  add_dots(many, few, k, x, x_row, w, w_row, acc);
  EXT_UNROLL
  for (int i = 0; i < many; i++) {
    EXT_UNROLL
    for (int j = 0; j < few; j++) out[i * out_x + j * out_w] = vf_sum(acc[i][j]);
  }
}

/* dot_block for all x; `many` at a time. */
EXT_INLINE void dot_all(const int many, const int few, int64_t count, int64_t k, const float* x,
                        int64_t x_row, const float* w, int64_t w_row, float* out, int64_t out_x,
                        int64_t out_w) {
  int64_t i = 0;
  for (; i + many <= count; i += many)
    dot_block(many, few, k, x + i * x_row, x_row, w, w_row, out + i * out_x, out_x, out_w);
  for (; i < count; i++)
    dot_block(1, few, k, x + i * x_row, x_row, w, w_row, out + i * out_x, out_x, out_w);
}

static void dot_few(int64_t few, int64_t count, int64_t k, const float* x, int64_t x_row,
                    const float* w, int64_t w_row, float* out, int64_t out_x, int64_t out_w) {
  switch (few) {
    case 1: dot_all(MANY_OF_1, 1, count, k, x, x_row, w, w_row, out, out_x, out_w); return;
    case 2: dot_all(MANY_OF_2, 2, count, k, x, x_row, w, w_row, out, out_x, out_w); return;
    case 3: dot_all(MANY_OF_3, 3, count, k, x, x_row, w, w_row, out, out_x, out_w); return;
    default: dot_all(MANY_OF_4, 4, count, k, x, x_row, w, w_row, out, out_x, out_w); return;
  }
}

/* The products with x[begin .. begin + count), count <= DOT_TILE. */
static void dot_tile(const gemv_job* job, const gemv_item* item, const gemv_dots* d, int64_t begin,
                     int64_t count) {
  const ext_matmul_params* p = job->p;
  _Alignas(EXT_ALIGN) float t[DOT_TILE * (MOST_ROWS > EXT_PANEL ? MOST_ROWS : EXT_PANEL)];
  /* Dense rows are one run, whose vectors are full. */
  int run = d->rows && p->y_row == p->n && (!item->residual || job->e.residual_stride == p->n);
  int64_t width = run ? d->few : d->rows ? ceil_div(d->few, VL) * VL : DOT_TILE;
  int64_t out_x = d->rows ? width : 1, out_w = d->rows ? 1 : width;
  zero_run(t, (d->rows ? DOT_TILE : d->few) * width);
  int64_t groups = ceil_div(d->few, DOT_FEW);
  /* A group reads x again, from L1. */
  for (int64_t i = 0; i < count; i += DOT_MANY)
    for (int64_t g = 0; g < groups; g++) {
      int64_t j = g * d->few / groups, end = (g + 1) * d->few / groups;
      dot_few(end - j, i64_min(DOT_MANY, count - i), p->k, d->x + (begin + i) * d->x_row, d->x_row,
              d->w + j * d->w_row, d->w_row, t + i * out_x + j * out_w, out_x, out_w);
    }
  const float* bias = job->e.bias;
  if (bias)
    for (int64_t i = 0; i < count; i++)
      for (int64_t j = 0; j < d->few; j++)
        t[i * out_x + j * out_w] += d->rows ? bias[j] : bias[begin + i];
  if (run) {
    /* One row of all the numbers. */
    const float* residual = item->residual ? item->residual + begin * p->n : NULL;
    EXT_NAME(ext_finish_tile)
    (&job->e, 1, count * p->n, t, ceil_div(count * p->n, VL) * VL, residual, 0,
     item->y + begin * p->n, 0);
  } else if (d->rows) {
    gemv_finish(job, item, begin, 0, count, d->few, t, width);
  } else {
    gemv_finish(job, item, 0, begin, d->few, count, t, width);
  }
}

int EXT_NAME(ext_gemv_dots)(void* context, int64_t begin, int64_t end) {
  const gemv_job* job = context;
  const ext_matmul_params* p = job->p;
  gemv_few few = few_of(job);
  float* memory = NULL;
  if (few.step != 1 && !job->gathered) {
    memory = ext_workspace_alloc((size_t)i64_max(1, few.few * p->k) * sizeof(float));
    if (!memory) return EXT_ERR_MEMORY;
  }
  const float* last = NULL;
  for (int64_t task = begin; task < end; task++) {
    gemv_item item = item_at(job, task / job->parts);
    const float* w = few.rows ? item.b : item.a;
    if (memory && w != last) gemv_gather(w, few.row, few.step, few.few, p->k, memory);
    last = w;
    gemv_dots d = {.w = w, .w_row = few.row, .few = few.few, .rows = few.rows};
    if (few.step != 1) {
      d.w = memory ? memory : job->gathered;
      d.w_row = p->k;
    }
    d.x = few.rows ? item.a : item.b;
    d.x_row = few.rows ? p->a_row : p->b_col;
    d.count = few.rows ? p->m : p->n;
    int64_t i = task % job->parts * job->part, stop = i64_min(i + job->part, d.count);
    for (; i < stop; i += DOT_TILE) dot_tile(job, &item, &d, i, i64_min(DOT_TILE, stop - i));
  }
  ext_workspace_free(memory);
  return EXT_OK;
}
