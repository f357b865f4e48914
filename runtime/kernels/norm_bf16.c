/* Layer normalisation (norm_rows.h) of numbers that are stored as bf16 or fp32. */
#include "norm_rows.h"

EXT_INLINE int rows_of(const int narrow_x, const int narrow_y, const norm_job* job, int64_t begin,
                       int64_t end) {
  norm_rows(narrow_x, narrow_y, job, begin, end);
  return EXT_OK;
}

static int wide_to_narrow(void* context, int64_t begin, int64_t end) {
  return rows_of(0, 1, context, begin, end);
}
static int narrow_to_wide(void* context, int64_t begin, int64_t end) {
  return rows_of(1, 0, context, begin, end);
}
static int narrow_to_narrow(void* context, int64_t begin, int64_t end) {
  return rows_of(1, 1, context, begin, end);
}
static int wide_to_wide(void* context, int64_t begin, int64_t end) {
  return rows_of(0, 0, context, begin, end);
}

int EXT_NAME(ext_layer_norm_bf16)(int64_t count, int64_t n, float epsilon, const ext_storage* s,
                                  const void* x, const float* gamma, const float* beta, void* y) {
  const ext_dtype dtypes[] = {s->x, s->y};
  for (int i = 0; i < 2; i++)
    if (dtypes[i] != EXT_FLOAT32 && dtypes[i] != EXT_BFLOAT16) return EXT_ERR_ARGUMENT;
  if (count <= 0 || n <= 0) return EXT_OK;
  const ext_range_body of[2][2] = {{wide_to_wide, wide_to_narrow},
                                   {narrow_to_wide, narrow_to_narrow}};
  norm_job job = {n, epsilon, x, gamma, beta, y};
  return ext_parallel_for(count, i64_max(1, TASK_ELEMENTS / n),
                          of[s->x == EXT_BFLOAT16][s->y == EXT_BFLOAT16], &job);
}

EXT_DISPATCH(ext_layer_norm_bf16,
             (int64_t count, int64_t n, float epsilon, const ext_storage* s, const void* x,
              const float* gamma, const float* beta, void* y),
             (count, n, epsilon, s, x, gamma, beta, y))
