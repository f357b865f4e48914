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

static int is_cheap(ext_unary_kind kind) {
  switch (kind) {
    case EXT_IDENTITY:
    case EXT_RELU:
    case EXT_CLIP:
    case EXT_ABS:
    case EXT_NEG:
    case EXT_SIGN:
    case EXT_FLOOR:
    case EXT_CEIL:
    case EXT_ROUND:
    case EXT_TRUNC:
    case EXT_LEAKY_RELU:
    case EXT_HARD_SIGMOID:
    case EXT_HARD_SWISH:
    case EXT_RECIPROCAL: return 1;
    default: return 0;
  }
}

int EXT_NAME(ext_unary)(const ext_activation* f, int64_t n, const float* x, float* y) {
  unary_job job = {f, x, y};
  return ext_parallel_for(n, is_cheap(f->kind) ? CHEAP_GRAIN : COSTLY_GRAIN, unary_range, &job);
}

EXT_DISPATCH(ext_unary, (const ext_activation* f, int64_t n, const float* x, float* y),
             (f, n, x, y))
