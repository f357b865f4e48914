/*
 * rotary_rows.h - rows whose pairs of numbers are turned, stored as fp32 or bf16 (ext_rotary.h).
 *
 *   y[j]        = x[j] c[j] - x[half + j] s[j]
 *   y[half + j] = x[half + j] c[turned + j] + x[j] s[turned + j],  j < half
 */
#ifndef EXT_ROTARY_ROWS_H_
#define EXT_ROTARY_ROWS_H_

#include "../simd/bf16.h"
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

/* Rows [begin, end); `narrow_x` and `narrow_y`, constants, tell what is bf16. */
EXT_INLINE int rotary_rows(const int narrow_x, const int narrow_y, const rotary_job* job,
                           int64_t begin, int64_t end) {
  const ext_rotary_params* p = job->p;
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
