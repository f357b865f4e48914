/* Group normalisation (group_norm.h). */
#include "group_norm.h"

GROUP_NORM_BODIES(0, 0)

int EXT_NAME(ext_group_norm)(const ext_group_norm_params* p, const float* x, const float* gamma,
                             const float* beta, float* y) {
  group_job job = {.p = *p, .x = x, .gamma = gamma, .beta = beta, .y = y};
  return group_norm(&job, &bodies_00);
}

EXT_DISPATCH(ext_group_norm,
             (const ext_group_norm_params* p, const float* x, const float* gamma, const float* beta,
              float* y),
             (p, x, gamma, beta, y))
