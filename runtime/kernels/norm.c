/*
 * Layer normalisation, and that by the root of the mean square:
 *
 *   y[r][:] = (x[r][:] - mean) / sqrt(variance + epsilon) * gamma + beta
 *   y[r][:] = x[r][:] / sqrt(mean(x[r][:]^2) + epsilon) * gamma
 *
 * Two passes, mean before variance: no cancellation, and a row is in L1 the second time.
 */
#include <math.h>

#include "../simd/simd.h"

/* Elements of one task at least: some ten microseconds. */
static const int64_t TASK_ELEMENTS = 1 << 15;

typedef struct {
  int64_t n;
  float epsilon;
  const float *x, *gamma, *beta;
  float* y;
} norm_job;

/* sum_i (x[i] - shift)^power, power 1 or 2, in four chains. */
EXT_INLINE float moment(const int power, const float* x, int64_t n, float shift) {
  vf acc[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()}, s = vf_set1(shift);
  int64_t i = 0;
  for (; i + 4 * VL <= n; i += 4 * VL) {
    EXT_UNROLL
    for (int v = 0; v < 4; v++) {
      vf d = vf_load(x + i + v * VL) - s;
      acc[v] = power == 1 ? acc[v] + d : vf_fma(d, d, acc[v]);
    }
  }
  for (; i + VL <= n; i += VL) {
    vf d = vf_load(x + i) - s;
    acc[0] = power == 1 ? acc[0] + d : vf_fma(d, d, acc[0]);
  }
  float sum = vf_sum((acc[0] + acc[1]) + (acc[2] + acc[3]));
  for (; i < n; i++) sum += power == 1 ? x[i] - shift : (x[i] - shift) * (x[i] - shift);
  return sum;
}

static int rows(void* context, int64_t begin, int64_t end) {
  const norm_job* job = context;
  int64_t n = job->n;
  for (int64_t r = begin; r < end; r++) {
    const float* x = job->x + r * n;
    float* y = job->y + r * n;
    float mean = moment(1, x, n, 0.0f) / (float)n;
    float variance = moment(2, x, n, mean) / (float)n;
    vf scale = vf_set1(1.0f / sqrtf(variance + job->epsilon)), shift = vf_set1(mean);
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
      vf v = (vf_load(x + i) - shift) * scale;
      if (job->gamma) v *= vf_load(job->gamma + i);
      if (job->beta) v += vf_load(job->beta + i);
      vf_store(y + i, v);
    }
    if (i < n) {
      vf v = (vf_load_n(x + i, n - i) - shift) * scale;
      if (job->gamma) v *= vf_load_n(job->gamma + i, n - i);
      if (job->beta) v += vf_load_n(job->beta + i, n - i);
      vf_store_n(y + i, v, n - i);
    }
  }
  return EXT_OK;
}

int EXT_NAME(ext_layer_norm)(int64_t count, int64_t n, float epsilon, const float* x,
                             const float* gamma, const float* beta, float* y) {
  if (count <= 0 || n <= 0) return EXT_OK;
  norm_job job = {n, epsilon, x, gamma, beta, y};
  return ext_parallel_for(count, i64_max(1, TASK_ELEMENTS / n), rows, &job);
}

static int rms_rows(void* context, int64_t begin, int64_t end) {
  const norm_job* job = context;
  int64_t n = job->n;
  for (int64_t r = begin; r < end; r++) {
    const float* x = job->x + r * n;
    float* y = job->y + r * n;
    vf scale = vf_set1(1.0f / sqrtf(moment(2, x, n, 0.0f) / (float)n + job->epsilon));
    int64_t i = 0;
    for (; i + VL <= n; i += VL) vf_store(y + i, vf_load(x + i) * scale * vf_load(job->gamma + i));
    if (i < n)
      vf_store_n(y + i, vf_load_n(x + i, n - i) * scale * vf_load_n(job->gamma + i, n - i), n - i);
  }
  return EXT_OK;
}

int EXT_NAME(ext_rms_norm)(int64_t count, int64_t n, float epsilon, const float* x,
                           const float* gamma, float* y) {
  if (count <= 0 || n <= 0) return EXT_OK;
  norm_job job = {n, epsilon, x, gamma, NULL, y};
  return ext_parallel_for(count, i64_max(1, TASK_ELEMENTS / n), rms_rows, &job);
}

EXT_DISPATCH(ext_rms_norm,
             (int64_t count, int64_t n, float epsilon, const float* x, const float* gamma,
              float* y),
             (count, n, epsilon, x, gamma, y))
EXT_DISPATCH(ext_layer_norm,
             (int64_t count, int64_t n, float epsilon, const float* x, const float* gamma,
              const float* beta, float* y),
             (count, n, epsilon, x, gamma, beta, y))
