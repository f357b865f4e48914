/* Layer normalisation, and that by the root of the mean square (norm_rows.h), of numbers that are
 * stored as bf16 or fp32. */
#include "norm_rows.h"

#define EXT_FORM(rows, name, narrow_x, narrow_y)                    \
  static int name(void* context, int64_t begin, int64_t end) {      \
    rows(narrow_x, narrow_y, (const norm_job*)context, begin, end); \
    return EXT_OK;                                                  \
  }
#define EXT_FORMS(rows)                             \
  EXT_FORM(rows, rows##_wide_to_wide, 0, 0)         \
  EXT_FORM(rows, rows##_wide_to_narrow, 0, 1)       \
  EXT_FORM(rows, rows##_narrow_to_wide, 1, 0)       \
  EXT_FORM(rows, rows##_narrow_to_narrow, 1, 1)     \
  static const ext_range_body rows##_of[2][2] = {   \
      {rows##_wide_to_wide, rows##_wide_to_narrow}, \
      {rows##_narrow_to_wide, rows##_narrow_to_narrow}};
EXT_FORMS(norm_rows)
EXT_FORMS(rms_norm_rows)

/* Runs the body of [x is bf16][y is bf16]. */
static int run(const ext_range_body of[2][2], const ext_storage* s, int64_t count, norm_job* job) {
  const ext_dtype dtypes[] = {s->x, s->y};
  for (int i = 0; i < 2; i++)
    if (dtypes[i] != EXT_FLOAT32 && dtypes[i] != EXT_BFLOAT16) return EXT_ERR_ARGUMENT;
  if (count <= 0 || job->n <= 0) return EXT_OK;
  return ext_parallel_for(count, i64_max(1, TASK_ELEMENTS / job->n),
                          of[s->x == EXT_BFLOAT16][s->y == EXT_BFLOAT16], job);
}

int EXT_NAME(ext_layer_norm_bf16)(int64_t count, int64_t n, float epsilon, const ext_storage* s,
                                  const void* x, const float* gamma, const float* beta, void* y) {
  norm_job job = {n, epsilon, x, gamma, beta, y};
  return run(norm_rows_of, s, count, &job);
}

int EXT_NAME(ext_rms_norm_bf16)(int64_t count, int64_t n, float epsilon, const ext_storage* s,
                                const void* x, const float* gamma, void* y) {
  norm_job job = {n, epsilon, x, gamma, NULL, y};
  return run(rms_norm_rows_of, s, count, &job);
}

EXT_DISPATCH(ext_layer_norm_bf16,
             (int64_t count, int64_t n, float epsilon, const ext_storage* s, const void* x,
              const float* gamma, const float* beta, void* y),
             (count, n, epsilon, s, x, gamma, beta, y))
EXT_DISPATCH(ext_rms_norm_bf16,
             (int64_t count, int64_t n, float epsilon, const ext_storage* s, const void* x,
              const float* gamma, void* y),
             (count, n, epsilon, s, x, gamma, y))
