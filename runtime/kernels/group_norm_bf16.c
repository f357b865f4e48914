/* Group normalisation (group_norm.h) of numbers that are stored as bf16 or fp32. */
#include "group_norm.h"

GROUP_NORM_BODIES(0, 0)
GROUP_NORM_BODIES(0, 1)
GROUP_NORM_BODIES(1, 0)
GROUP_NORM_BODIES(1, 1)

int EXT_NAME(ext_group_norm_bf16)(const ext_group_norm_params* p, const ext_storage* s,
                                  const void* x, const float* gamma, const float* beta, void* y) {
  const ext_dtype dtypes[] = {s->x, s->y};
  for (int i = 0; i < 2; i++)
    if (dtypes[i] != EXT_FLOAT32 && dtypes[i] != EXT_BFLOAT16) return EXT_ERR_ARGUMENT;
  const group_bodies* const of[2][2] = {{&bodies_00, &bodies_01}, {&bodies_10, &bodies_11}};
  group_job job = {.p = *p, .x = x, .gamma = gamma, .beta = beta, .y = y};
  return group_norm(&job, of[s->x == EXT_BFLOAT16][s->y == EXT_BFLOAT16]);
}

EXT_DISPATCH(ext_group_norm_bf16,
             (const ext_group_norm_params* p, const ext_storage* s, const void* x,
              const float* gamma, const float* beta, void* y),
             (p, s, x, gamma, beta, y))
