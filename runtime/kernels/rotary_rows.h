/*
 * rotary_rows.h - rows whose pairs of numbers are turned, stored as fp32 or bf16 (ext_rotary.h).
 *
 *   y[j]        = x[j] c[j] - x[half + j] s[j]
 *   y[half + j] = x[half + j] c[turned + j] + x[j] s[turned + j],  j < half
 */
#ifndef EXT_ROTARY_ROWS_H_
#define EXT_ROTARY_ROWS_H_

#include "../simd/bf16.h"
#include "../simd/pairs.h"
#include "axes.h"

typedef struct {
  const ext_rotary_params* p;
  const void* x;
  const float *cosine, *sine;
  void* y;
  ext_axes axes;
} rotary_job;

/* Pairs j .. j + VL of a row, or the first `lanes` of them unless `full`, a constant. */
EXT_INLINE void rotary_pairs(const int narrow_x, const int narrow_y, const int full,
                             const ext_rotary_params* p, const void* x, const float* c,
                             const float* s, void* y, int64_t j, int64_t lanes) {
  const int64_t other = p->half + j, turned = p->turned + j;
  const vf first = stored_load(narrow_x, full, x, j, lanes);
  const vf second = stored_load(narrow_x, full, x, other, lanes);
  const vf real = first * stored_load(0, full, c, j, lanes);
  const vf imaginary = first * stored_load(0, full, s, turned, lanes);
  stored_store(narrow_y, full, y, j, real - second * stored_load(0, full, s, j, lanes), lanes);
  stored_store(narrow_y, full, y, other,
               vf_fma(second, stored_load(0, full, c, turned, lanes), imaginary), lanes);
}

/* VL rows of one pair, or the first `lanes` of them unless `full`, with tables of as many numbers,
 * or of one where `step` is 0. */
EXT_INLINE void rotary_single_pairs(const int narrow_x, const int narrow_y, const int full,
                                    const void* x, const float* c, const float* s, int64_t step,
                                    void* y, int64_t row, int64_t lanes) {
  const int64_t low = i64_min(VL, 2 * lanes), high = 2 * lanes - low;
  const vf a = stored_load(narrow_x, full, x, 2 * row, low);
  const vf b = full || high ? stored_load(narrow_x, full, x, 2 * row + VL, high) : vf_zero();
  const vf first = vf_firsts(a, b), second = vf_seconds(a, b);
  const vf cosine = step ? stored_load(0, full, c, row, lanes) : vf_set1(*c);
  const vf sine = step ? stored_load(0, full, s, row, lanes) : vf_set1(*s);
  const vf real = first * cosine - second * sine;
  const vf imaginary = vf_fma(second, cosine, first * sine);
  stored_store(narrow_y, full, y, 2 * row, vf_low_pairs(real, imaginary), low);
  if (full || high)
    stored_store(narrow_y, full, y, 2 * row + VL, vf_high_pairs(real, imaginary), high);
}

/* Whether rows of one pair lie side by side, as complex numbers do, along the innermost axis. */
static int rotary_has_single_pairs(const rotary_job* job) {
  const ext_axes* axes = &job->axes;
  if (job->p->half != 1 || job->p->turned || axes->ndim == 0) return 0;
  const int last = axes->ndim - 1;
  const int64_t step = axes->stride[1][last];
  return axes->stride[0][last] == 2 && axes->stride[2][last] == step && (step == 0 || step == 1);
}

/* Rows [begin, end) that rotary_has_single_pairs. */
EXT_INLINE void rotary_runs(const int narrow_x, const int narrow_y, const rotary_job* job,
                            int64_t begin, int64_t end) {
  const ext_axes* axes = &job->axes;
  const int last = axes->ndim - 1;
  const int64_t step = axes->stride[1][last];
  axes_place at = axes_begin(axes, 3, axes->ndim, begin);
  for (int64_t row = begin, n = 0; row < end; row += n) {
    n = i64_min(end - row, axes->size[last] - at.index[last]);
    const void* x = stored_element(narrow_x, job->x, at.at[0]);
    const float *c = job->cosine + at.at[1], *s = job->sine + at.at[2];
    void* y = (void*)stored_element(narrow_y, job->y, 2 * row);
    int64_t i = 0;
    for (; i + VL <= n; i += VL)
      rotary_single_pairs(narrow_x, narrow_y, 1, x, c, s, step, y, i, VL);
    if (i < n) rotary_single_pairs(narrow_x, narrow_y, 0, x, c, s, step, y, i, n - i);
    axes_advance(axes, 3, axes->ndim, n, &at);
  }
}

/* Rows [begin, end); `narrow_x` and `narrow_y`, constants, tell what is bf16. */
EXT_INLINE int rotary_rows(const int narrow_x, const int narrow_y, const rotary_job* job,
                           int64_t begin, int64_t end) {
  const ext_rotary_params* p = job->p;
  if (rotary_has_single_pairs(job)) {
    rotary_runs(narrow_x, narrow_y, job, begin, end);
    return EXT_OK;
  }
  axes_place at = axes_begin(&job->axes, 3, job->axes.ndim, begin);
  for (int64_t row = begin; row < end; row++) {
    const void* x = stored_element(narrow_x, job->x, at.at[0]);
    const float *c = job->cosine + at.at[1], *s = job->sine + at.at[2];
    void* y = (void*)stored_element(narrow_y, job->y, row * 2 * p->half);
    int64_t j = 0;
    for (; j + VL <= p->half; j += VL) rotary_pairs(narrow_x, narrow_y, 1, p, x, c, s, y, j, VL);
    if (j < p->half) rotary_pairs(narrow_x, narrow_y, 0, p, x, c, s, y, j, p->half - j);
    axes_advance(&job->axes, 3, job->axes.ndim, 1, &at);
  }
  return EXT_OK;
}

/* All rows on all threads. */
EXT_INLINE int rotary_run(rotary_job* job, ext_range_body rows) {
  /* Numbers of one task at least: some ten microseconds. */
  enum { TASK_NUMBERS = 1 << 15 };
  const ext_rotary_params* p = job->p;
  int64_t count = 1;
  if (p->ndim < 1 || p->ndim > EXT_MAX_DIMS || p->half < 0) return EXT_ERR_ARGUMENT;
  if (p->turned != 0 && p->turned != p->half) return EXT_ERR_ARGUMENT;
  for (int32_t d = 0; d < p->ndim; d++) {
    const int64_t stride[] = {p->x_strides[d], p->cosine_strides[d], p->sine_strides[d]};
    axes_add(&job->axes, 3, p->shape[d], stride);
    count *= p->shape[d];
  }
  if (count <= 0 || p->half == 0) return EXT_OK;
  return ext_parallel_for(count, i64_max(1, TASK_NUMBERS / (2 * p->half)), rows, job);
}

#endif /* EXT_ROTARY_ROWS_H_ */
