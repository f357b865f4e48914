/*
 * norm_rows.h - rows of a layer normalisation, of numbers that are stored as fp32 or bf16.
 *
 *   y[r][:] = (x[r][:] - mean) / sqrt(variance + epsilon) * gamma + beta
 *
 * and of one by the root of the mean square.  Two passes, mean before variance: no cancellation,
 * and a row is in L1 the second time.
 */
#ifndef EXT_NORM_ROWS_H_
#define EXT_NORM_ROWS_H_

#include <math.h>

#include "../simd/bf16.h"

/* Elements of one task at least: some ten microseconds. */
static const int64_t TASK_ELEMENTS = 1 << 15;

typedef struct {
  int64_t n;
  float epsilon;
  const void* x;
  const float *gamma, *beta;
  void* y;
} norm_job;

/* Ones, VL and more, of which the first n tell the lanes of a row's end. */
static const float ONES[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

/* sum_i (x[i] - shift)^power, power 1 or 2, in four chains. */
EXT_INLINE float moment(const int power, const int narrow, const void* x, int64_t n, float shift) {
  vf acc[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()}, s = vf_set1(shift);
  int64_t i = 0;
  for (; i + 4 * VL <= n; i += 4 * VL) {
    EXT_UNROLL
    for (int v = 0; v < 4; v++) {
      vf d = stored_load(narrow, 1, x, i + v * VL, VL) - s;
      acc[v] = power == 1 ? acc[v] + d : vf_fma(d, d, acc[v]);
    }
  }
  for (; i + VL <= n; i += VL) {
    vf d = stored_load(narrow, 1, x, i, VL) - s;
    acc[0] = power == 1 ? acc[0] + d : vf_fma(d, d, acc[0]);
  }
  if (i < n) {
    const vf there = vf_load_n(ONES, n - i);
    vf d = stored_load(narrow, 0, x, i, n - i) - s;
    d = vf_select(vm_lt(vf_zero(), there), d, vf_zero());
    acc[1] = power == 1 ? acc[1] + d : vf_fma(d, d, acc[1]);
  }
  return vf_sum((acc[0] + acc[1]) + (acc[2] + acc[3]));
}

/* Rows [begin, end); `narrow_x` and `narrow_y`, constants, tell what is bf16. */
EXT_INLINE void norm_rows(const int narrow_x, const int narrow_y, const norm_job* job,
                          int64_t begin, int64_t end) {
  const int64_t n = job->n;
  for (int64_t r = begin; r < end; r++) {
    const void* x = stored_element(narrow_x, job->x, r * n);
    void* y = (void*)stored_element(narrow_y, job->y, r * n);
    float mean = moment(1, narrow_x, x, n, 0.0f) / (float)n;
    float variance = moment(2, narrow_x, x, n, mean) / (float)n;
    vf scale = vf_set1(1.0f / sqrtf(variance + job->epsilon)), shift = vf_set1(mean);
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
      vf v = (stored_load(narrow_x, 1, x, i, VL) - shift) * scale;
      if (job->gamma) v *= vf_load(job->gamma + i);
      if (job->beta) v += vf_load(job->beta + i);
      stored_store(narrow_y, 1, y, i, v, VL);
    }
    if (i < n) {
      vf v = (stored_load(narrow_x, 0, x, i, n - i) - shift) * scale;
      if (job->gamma) v *= vf_load_n(job->gamma + i, n - i);
      if (job->beta) v += vf_load_n(job->beta + i, n - i);
      stored_store(narrow_y, 0, y, i, v, n - i);
    }
  }
}

/* y[r][:] = x[r][:] / sqrt(mean(x[r][:]^2) + epsilon) * gamma of rows [begin, end); constants as
 * above. */
EXT_INLINE void rms_norm_rows(const int narrow_x, const int narrow_y, const norm_job* job,
                              int64_t begin, int64_t end) {
  const int64_t n = job->n;
  for (int64_t r = begin; r < end; r++) {
    const void* x = stored_element(narrow_x, job->x, r * n);
    void* y = (void*)stored_element(narrow_y, job->y, r * n);
    const float mean = moment(2, narrow_x, x, n, 0.0f) / (float)n;
    const vf scale = vf_set1(1.0f / sqrtf(mean + job->epsilon));
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
      const vf v = stored_load(narrow_x, 1, x, i, VL) * scale * vf_load(job->gamma + i);
      stored_store(narrow_y, 1, y, i, v, VL);
    }
    if (i < n) {
      const vf v = stored_load(narrow_x, 0, x, i, n - i) * scale * vf_load_n(job->gamma + i, n - i);
      stored_store(narrow_y, 0, y, i, v, n - i);
    }
  }
}

#endif /* EXT_NORM_ROWS_H_ */
