/* Rotary embedding (rotary_rows.h) of numbers that are stored as bf16 or fp32. */
#include "rotary_rows.h"

static int wide_to_wide(void* context, int64_t begin, int64_t end) {
  return rotary_rows(0, 0, context, begin, end);
}
static int wide_to_narrow(void* context, int64_t begin, int64_t end) {
  return rotary_rows(0, 1, context, begin, end);
}
static int narrow_to_wide(void* context, int64_t begin, int64_t end) {
  return rotary_rows(1, 0, context, begin, end);
}
static int narrow_to_narrow(void* context, int64_t begin, int64_t end) {
  return rotary_rows(1, 1, context, begin, end);
}

int EXT_NAME(ext_rotary_bf16)(const ext_rotary_params* p, const ext_storage* s, const void* x,
                              const float* cosine, const float* sine, void* y) {
  const ext_dtype dtypes[] = {s->x, s->y};
  for (int i = 0; i < 2; i++)
    if (dtypes[i] != EXT_FLOAT32 && dtypes[i] != EXT_BFLOAT16) return EXT_ERR_ARGUMENT;
  const ext_range_body of[2][2] = {{wide_to_wide, wide_to_narrow},
                                   {narrow_to_wide, narrow_to_narrow}};
  rotary_job job = {.p = p, .x = x, .cosine = cosine, .sine = sine, .y = y};
  return rotary_run(&job, of[s->x == EXT_BFLOAT16][s->y == EXT_BFLOAT16]);
}

EXT_DISPATCH(ext_rotary_bf16,
             (const ext_rotary_params* p, const ext_storage* s, const void* x, const float* cosine,
              const float* sine, void* y),
             (p, s, x, cosine, sine, y))
