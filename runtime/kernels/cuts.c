/*
 * y[r][f] = 2 k where x[r][f] is the number k of the cuts of column f, and 2 k - 1 where it lies
 * below that and above all before it: a binary search of each number, without branches.
 */
#include "../simd/simd.h"

/* Numbers that one task looks for at least: some ten microseconds. */
static const int64_t TASK_NUMBERS = 1 << 9;

typedef struct {
  const ext_cuts_params* p;
  const double *x, *cuts;
  const int32_t* first;
  float* y;
} cuts_job;

/* How many of `count` ascending cuts lie below a number. */
EXT_INLINE int64_t cuts_below(const double* cuts, int64_t count, double number) {
  const double* base = cuts;
  while (count > 1) {
    const int64_t half = count / 2;
    base += base[half - 1] < number ? half : 0;
    count -= half;
  }
  return (base - cuts) + (count == 1 && *base < number);
}

static int rows_of_cuts(void* context, int64_t begin, int64_t end) {
  const cuts_job* job = context;
  const int64_t features = job->p->features;
  for (int64_t f = 0; f < features; f++) {
    const double* cuts = job->cuts + job->first[f];
    const int64_t count = job->first[f + 1] - job->first[f];
    for (int64_t r = begin; r < end; r++) {
      const double number = job->x[r * features + f];
      const int64_t below = cuts_below(cuts, count, number);
      const int64_t code = 2 * below - !(below < count && cuts[below] == number);
      job->y[r * features + f] = number != number ? (float)number : (float)code;
    }
  }
  return EXT_OK;
}

int EXT_NAME(ext_cuts)(const ext_cuts_params* p, const double* x, const double* cuts,
                       const int32_t* first, float* y) {
  if (p->features < 1) return EXT_ERR_ARGUMENT;
  if (p->rows <= 0) return EXT_OK;
  cuts_job job = {p, x, cuts, first, y};
  return ext_parallel_for(p->rows, ceil_div(TASK_NUMBERS, p->features), rows_of_cuts, &job);
}

EXT_DISPATCH(ext_cuts,
             (const ext_cuts_params* p, const double* x, const double* cuts, const int32_t* first,
              float* y),
             (p, x, cuts, first, y))
