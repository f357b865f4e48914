/* y[o][r][i] = sum of x[o][s][i] over the s up to r, or from r on, with r itself or without. */
#include "../simd/simd.h"

/* Elements of one task at least: some ten microseconds. */
static const int64_t TASK_ELEMENTS = 1 << 14;
/* Columns whose sums are kept beside each other. */
enum { COLUMNS = 64 };

typedef struct {
  int32_t exclusive;
  int64_t first, step;           /* the first row to be summed, and the way to the next: 1 or -1 */
  int64_t reduce, inner, blocks; /* blocks of COLUMNS in `inner` */
  const float* x;
  float* y;
} cumsum_job;

static int cumsum_range(void* context, int64_t begin, int64_t end) {
  const cumsum_job* job = context;
  for (int64_t item = begin; item < end; item++) {
    int64_t i0 = item % job->blocks * COLUMNS, count = i64_min(COLUMNS, job->inner - i0);
    int64_t base = item / job->blocks * job->reduce * job->inner + i0;
    float sums[COLUMNS] = {0.0f};
    for (int64_t r = 0; r < job->reduce; r++) {
      int64_t at = base + (job->first + r * job->step) * job->inner;
      for (int64_t i = 0; i < count; i++) {
        float before = sums[i];
        sums[i] += job->x[at + i];
        job->y[at + i] = job->exclusive ? before : sums[i];
      }
    }
  }
  return EXT_OK;
}

int EXT_NAME(ext_cumsum)(int32_t exclusive, int32_t reverse, int64_t outer, int64_t reduce,
                         int64_t inner, const float* x, float* y) {
  if (outer <= 0 || reduce <= 0 || inner <= 0) return EXT_OK;
  cumsum_job job = {exclusive != 0,
                    reverse ? reduce - 1 : 0,
                    reverse ? -1 : 1,
                    reduce,
                    inner,
                    ceil_div(inner, COLUMNS),
                    x,
                    y};
  int64_t elements = reduce * i64_min(inner, COLUMNS);
  return ext_parallel_for(outer * job.blocks, i64_max(1, TASK_ELEMENTS / elements), cumsum_range,
                          &job);
}

EXT_DISPATCH(ext_cumsum,
             (int32_t exclusive, int32_t reverse, int64_t outer, int64_t reduce, int64_t inner,
              const float* x, float* y),
             (exclusive, reverse, outer, reduce, inner, x, y))
