/* y[o][r][i] = sum or product of x[o][s][i] over the s up to r, or from r on, with r itself or
 * without. */
#include "../simd/simd.h"

/* Elements of one task at least: some ten microseconds. */
static const int64_t TASK_ELEMENTS = 1 << 14;
/* Columns whose results so far are kept beside each other. */
enum { COLUMNS = 64 };

typedef struct {
  int32_t exclusive;
  int64_t first, step;           /* the first row to be taken, and the way to the next: 1 or -1 */
  int64_t reduce, inner, blocks; /* blocks of COLUMNS in `inner` */
  const void* x;
  void* y;
} cumsum_job;

#define EXT_RANGE(name, type, op, none)                                                     \
  static int name(void* context, int64_t begin, int64_t end) {                              \
    const cumsum_job* job = context;                                                        \
    const type* x = job->x;                                                                 \
    type* y = job->y;                                                                       \
    for (int64_t item = begin; item < end; item++) {                                        \
      if (job->inner == 1) { /* a line of its own */                                        \
        int64_t at = item * job->reduce + job->first;                                       \
        type sum = none;                                                                    \
        for (int64_t r = 0; r < job->reduce; r++, at += job->step) {                        \
          type before = sum;                                                                \
          sum = before op x[at];                                                            \
          y[at] = job->exclusive ? before : sum;                                            \
        }                                                                                   \
        continue;                                                                           \
      }                                                                                     \
      int64_t i0 = item % job->blocks * COLUMNS, count = i64_min(COLUMNS, job->inner - i0); \
      int64_t base = item / job->blocks * job->reduce * job->inner + i0;                    \
      type so_far[COLUMNS];                                                                 \
      for (int64_t i = 0; i < COLUMNS; i++) so_far[i] = none;                               \
      for (int64_t r = 0; r < job->reduce; r++) {                                           \
        int64_t at = base + (job->first + r * job->step) * job->inner;                      \
        for (int64_t i = 0; i < count; i++) {                                               \
          type before = so_far[i];                                                          \
          so_far[i] = before op x[at + i];                                                  \
          y[at + i] = job->exclusive ? before : so_far[i];                                  \
        }                                                                                   \
      }                                                                                     \
    }                                                                                       \
    return EXT_OK;                                                                          \
  }

EXT_RANGE(cumsum_range, float, +, 0)
EXT_RANGE(cumprod_range, float, *, 1)
/* Unsigned, as integers that are too large wrap around. */
EXT_RANGE(cumsum_range_32, uint32_t, +, 0)
EXT_RANGE(cumsum_range_64, uint64_t, +, 0)
EXT_RANGE(cumprod_range_32, uint32_t, *, 1)
EXT_RANGE(cumprod_range_64, uint64_t, *, 1)

static int run(int (*range)(void*, int64_t, int64_t), int32_t exclusive, int32_t reverse,
               int64_t outer, int64_t reduce, int64_t inner, const void* x, void* y) {
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
  return ext_parallel_for(outer * job.blocks, i64_max(1, TASK_ELEMENTS / elements), range, &job);
}

int EXT_NAME(ext_cumsum)(int32_t exclusive, int32_t reverse, int64_t outer, int64_t reduce,
                         int64_t inner, const float* x, float* y) {
  return run(cumsum_range, exclusive, reverse, outer, reduce, inner, x, y);
}

int EXT_NAME(ext_cumsum_integers)(ext_dtype dtype, int32_t exclusive, int32_t reverse,
                                  int64_t outer, int64_t reduce, int64_t inner, const void* x,
                                  void* y) {
  if (dtype != EXT_INT32 && dtype != EXT_INT64) return EXT_ERR_ARGUMENT;
  return run(dtype == EXT_INT32 ? cumsum_range_32 : cumsum_range_64, exclusive, reverse, outer,
             reduce, inner, x, y);
}

int EXT_NAME(ext_cumprod)(ext_dtype dtype, int32_t exclusive, int32_t reverse, int64_t outer,
                          int64_t reduce, int64_t inner, const void* x, void* y) {
  if (dtype != EXT_FLOAT32 && dtype != EXT_INT32 && dtype != EXT_INT64) return EXT_ERR_ARGUMENT;
  return run(dtype == EXT_FLOAT32 ? cumprod_range
             : dtype == EXT_INT32 ? cumprod_range_32
                                  : cumprod_range_64,
             exclusive, reverse, outer, reduce, inner, x, y);
}

EXT_DISPATCH(ext_cumsum,
             (int32_t exclusive, int32_t reverse, int64_t outer, int64_t reduce, int64_t inner,
              const float* x, float* y),
             (exclusive, reverse, outer, reduce, inner, x, y))
EXT_DISPATCH(ext_cumsum_integers,
             (ext_dtype dtype, int32_t exclusive, int32_t reverse, int64_t outer, int64_t reduce,
              int64_t inner, const void* x, void* y),
             (dtype, exclusive, reverse, outer, reduce, inner, x, y))
EXT_DISPATCH(ext_cumprod,
             (ext_dtype dtype, int32_t exclusive, int32_t reverse, int64_t outer, int64_t reduce,
              int64_t inner, const void* x, void* y),
             (dtype, exclusive, reverse, outer, reduce, inner, x, y))
