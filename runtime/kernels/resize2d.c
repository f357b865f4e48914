/*
 * y[n][oh][ow][c] = sum_{i,j} row_weight[oh][i] column_weight[ow][j]
 *                   * x[n][row[oh][i]][column[ow][j]][c]
 *
 * The sum is separable: first the rows of x are mixed into one, vectors along width and channels,
 * then its pixels.  One row tap of weight 1 (nearest) needs no mixing.
 */
#include "../simd/simd.h"

/* Elements of y of one task at least: some ten microseconds. */
static const int64_t TASK_ELEMENTS = 1 << 14;

typedef struct {
  const ext_resize2d_params* p;
  const int32_t *row, *column;
  const float *row_weight, *column_weight;
  const float* x;
  float* y;
} resize_job;

/* y[i] = sum_t weight[t] x[at[t] step + i], i < n; in the order of the taps. */
EXT_INLINE void mix(int64_t taps, const int32_t* at, const float* weight, const float* x,
                    int64_t step, int64_t n, float* y) {
  int64_t i = 0;
  for (; i + VL <= n; i += VL) {
    vf acc = vf_load(x + at[0] * step + i) * vf_set1(weight[0]);
    for (int64_t t = 1; t < taps; t++)
      acc = vf_fma(vf_load(x + at[t] * step + i), vf_set1(weight[t]), acc);
    vf_store(y + i, acc);
  }
  for (; i < n; i++) {
    float acc = x[at[0] * step + i] * weight[0];
    for (int64_t t = 1; t < taps; t++) acc += x[at[t] * step + i] * weight[t];
    y[i] = acc;
  }
}

static void resize_row(const resize_job* job, int64_t index, float* mixed) {
  const ext_resize2d_params* p = job->p;
  int64_t oh = index % p->out_h, line = p->in_w * p->channels;
  const float* image = job->x + index / p->out_h * p->in_h * line;
  const int32_t* rows = job->row + oh * p->taps_h;
  const float* weights = job->row_weight + oh * p->taps_h;
  const float* source = mixed;
  if (p->taps_h == 1 && weights[0] == 1.0f)
    source = image + rows[0] * line;
  else
    mix(p->taps_h, rows, weights, image, line, line, mixed);
  float* y = job->y + index * p->out_w * p->channels;
  for (int64_t ow = 0; ow < p->out_w; ow++, y += p->channels) {
    const int32_t* at = job->column + ow * p->taps_w;
    const float* weight = job->column_weight + ow * p->taps_w;
    if (p->taps_w == 1 && weight[0] == 1.0f)
      copy_run(y, source + at[0] * p->channels, p->channels);
    else
      mix(p->taps_w, at, weight, source, p->channels, p->channels, y);
  }
}

static int resize_rows(void* context, int64_t begin, int64_t end) {
  const resize_job* job = context;
  const ext_resize2d_params* p = job->p;
  float* mixed = ext_workspace_alloc((size_t)(p->in_w * p->channels) * sizeof(float));
  if (!mixed) return EXT_ERR_MEMORY;
  for (int64_t i = begin; i < end; i++) resize_row(job, i, mixed);
  ext_workspace_free(mixed);
  return EXT_OK;
}

int EXT_NAME(ext_resize2d)(const ext_resize2d_params* p, const int32_t* row,
                           const float* row_weight, const int32_t* column,
                           const float* column_weight, const float* x, float* y) {
  if (p->taps_h < 1 || p->taps_w < 1) return EXT_ERR_ARGUMENT;
  resize_job job = {p, row, column, row_weight, column_weight, x, y};
  int64_t elements = p->out_w * p->channels;
  if (elements <= 0 || p->batch <= 0 || p->out_h <= 0) return EXT_OK;
  if (p->in_h <= 0 || p->in_w <= 0) return EXT_ERR_ARGUMENT; /* no pixel to enlarge */
  return ext_parallel_for(p->batch * p->out_h, i64_max(1, TASK_ELEMENTS / elements), resize_rows,
                          &job);
}

EXT_DISPATCH(ext_resize2d,
             (const ext_resize2d_params* p, const int32_t* row, const float* row_weight,
              const int32_t* column, const float* column_weight, const float* x, float* y),
             (p, row, row_weight, column, column_weight, x, y))
