/*
 * Layer normalisation, and that by the root of the mean square:
 *
 *   y[r][:] = (x[r][:] - mean) / sqrt(variance + epsilon) * gamma + beta
 *   y[r][:] = x[r][:] / sqrt(mean(x[r][:]^2) + epsilon) * gamma
 */
#include "norm_rows.h"

static int rows(void* context, int64_t begin, int64_t end) {
  norm_rows(0, 0, context, begin, end);
  return EXT_OK;
}

int EXT_NAME(ext_layer_norm)(int64_t count, int64_t n, float epsilon, const float* x,
                             const float* gamma, const float* beta, float* y) {
  if (count <= 0 || n <= 0) return EXT_OK;
  norm_job job = {n, epsilon, x, gamma, beta, y};
  return ext_parallel_for(count, i64_max(1, TASK_ELEMENTS / n), rows, &job);
}

static int rms_rows(void* context, int64_t begin, int64_t end) {
  rms_norm_rows(0, 0, context, begin, end);
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
