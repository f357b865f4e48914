/* Rotary embedding (rotary_rows.h) of fp32. */
#include "rotary_rows.h"

static int rows(void* context, int64_t begin, int64_t end) {
  return rotary_rows(0, 0, context, begin, end);
}

int EXT_NAME(ext_rotary)(const ext_rotary_params* p, const float* x, const float* cosine,
                         const float* sine, float* y) {
  rotary_job job = {.p = p, .x = x, .cosine = cosine, .sine = sine, .y = y};
  return rotary_run(&job, rows);
}

EXT_DISPATCH(ext_rotary,
             (const ext_rotary_params* p, const float* x, const float* cosine, const float* sine,
              float* y),
             (p, x, cosine, sine, y))
