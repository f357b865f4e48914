/* y[i] = f(x[i]), i < n. */
#include "activation.h"

/* Items per task: about ten microseconds of the cheapest function (memory speed) and of the
 * dearest, so that a launch (a few microseconds) pays. */
enum { CHEAP_GRAIN = 1 << 16, COSTLY_GRAIN = 1 << 13 };

typedef struct {
  const ext_activation* f;
  const float* x;
  float* y;
} unary_job;

static int unary_range(void* context, int64_t begin, int64_t end) {
  const unary_job* job = context;
  EXT_NAME(ext_activate)(job->f, end - begin, job->x + begin, job->y + begin);
  return EXT_OK;
}

int EXT_NAME(ext_unary)(const ext_activation* f, int64_t n, const float* x, float* y) {
  unary_job job = {f, x, y};
  float low, high;
  int cheap = ext_clamp_bounds(f, &low, &high) || f->kind == EXT_ABS || f->kind == EXT_NEG ||
              f->kind == EXT_LEAKY_RELU || f->kind == EXT_HARD_SIGMOID || f->kind == EXT_HARD_SWISH;
  return ext_parallel_for(n, cheap ? CHEAP_GRAIN : COSTLY_GRAIN, unary_range, &job);
}

EXT_DISPATCH(ext_unary, (const ext_activation* f, int64_t n, const float* x, float* y),
             (f, n, x, y))
