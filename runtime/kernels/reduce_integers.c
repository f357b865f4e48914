/*
 * y[o][i] = sum, max, min or product over r of x[o][r][i], of int32 or int64; over nothing 0, the
 * least or the greatest integer, or 1.  Sums and products that are too large wrap around.
 */
#include "../simd/simd.h"

/* Elements of one task at least: some ten microseconds. */
static const int64_t TASK_ELEMENTS = 1 << 16;
/* Columns whose results are kept beside each other. */
enum { COLUMNS = 64 };

typedef struct {
  ext_reduce_kind kind;
  int64_t reduce, inner, blocks; /* blocks of COLUMNS in `inner` */
  const void* x;
  void* y;
} reduce_job;

/* Of a type, and of the unsigned one that wraps around; `kind` is a constant. */
#define EXT_REDUCE_OF(bits, least, greatest)                                                     \
  EXT_INLINE int##bits##_t first_##bits(const ext_reduce_kind kind) {                            \
    return kind == EXT_REDUCE_MAX    ? least                                                     \
           : kind == EXT_REDUCE_MIN  ? greatest                                                  \
           : kind == EXT_REDUCE_PROD ? 1                                                         \
                                     : 0;                                                        \
  }                                                                                              \
  EXT_INLINE int##bits##_t join_##bits(const ext_reduce_kind kind, int##bits##_t a,              \
                                       int##bits##_t b) {                                        \
    if (kind == EXT_REDUCE_MAX) return a > b ? a : b;                                            \
    if (kind == EXT_REDUCE_MIN) return a < b ? a : b;                                            \
    uint##bits##_t u = (uint##bits##_t)a, v = (uint##bits##_t)b;                                 \
    return (int##bits##_t)(kind == EXT_REDUCE_PROD ? u * v : u + v);                             \
  }                                                                                              \
  EXT_INLINE void items_##bits(const ext_reduce_kind kind, const reduce_job* job, int64_t begin, \
                               int64_t end) {                                                    \
    for (int64_t item = begin; item < end; item++) {                                             \
      int64_t o = item / job->blocks, i0 = item % job->blocks * COLUMNS;                         \
      int64_t count = i64_min(COLUMNS, job->inner - i0);                                         \
      const int##bits##_t* x = (const int##bits##_t*)job->x + o * job->reduce * job->inner + i0; \
      int##bits##_t* y = (int##bits##_t*)job->y + o * job->inner + i0;                           \
      int##bits##_t all[COLUMNS], one = first_##bits(kind);                                      \
      if (job->inner == 1) {                                                                     \
        for (int64_t r = 0; r < job->reduce; r++) one = join_##bits(kind, one, x[r]);            \
        *y = one;                                                                                \
        continue;                                                                                \
      }                                                                                          \
      for (int64_t i = 0; i < count; i++) all[i] = one;                                          \
      for (int64_t r = 0; r < job->reduce; r++)                                                  \
        for (int64_t i = 0; i < count; i++)                                                      \
          all[i] = join_##bits(kind, all[i], x[r * job->inner + i]);                             \
      for (int64_t i = 0; i < count; i++) y[i] = all[i];                                         \
    }                                                                                            \
  }                                                                                              \
  static int range_##bits(void* context, int64_t begin, int64_t end) {                           \
    const reduce_job* job = context;                                                             \
    switch (job->kind) {                                                                         \
      case EXT_REDUCE_SUM: items_##bits(EXT_REDUCE_SUM, job, begin, end); break;                 \
      case EXT_REDUCE_MAX: items_##bits(EXT_REDUCE_MAX, job, begin, end); break;                 \
      case EXT_REDUCE_MIN: items_##bits(EXT_REDUCE_MIN, job, begin, end); break;                 \
      case EXT_REDUCE_PROD: items_##bits(EXT_REDUCE_PROD, job, begin, end); break;               \
      default: return EXT_ERR_ARGUMENT;                                                          \
    }                                                                                            \
    return EXT_OK;                                                                               \
  }

EXT_REDUCE_OF(32, INT32_MIN, INT32_MAX)
EXT_REDUCE_OF(64, INT64_MIN, INT64_MAX)

int EXT_NAME(ext_reduce_integers)(ext_dtype dtype, ext_reduce_kind kind, int64_t outer,
                                  int64_t reduce, int64_t inner, const void* x, void* y) {
  if (dtype != EXT_INT32 && dtype != EXT_INT64) return EXT_ERR_ARGUMENT;
  if (kind == EXT_REDUCE_MEAN || kind > EXT_REDUCE_PROD) return EXT_ERR_ARGUMENT;
  if (outer <= 0 || inner <= 0) return EXT_OK;
  reduce_job job = {kind, reduce, inner, ceil_div(inner, COLUMNS), x, y};
  int64_t elements = i64_max(1, reduce) * i64_min(inner, COLUMNS);
  return ext_parallel_for(outer * job.blocks, i64_max(1, TASK_ELEMENTS / elements),
                          dtype == EXT_INT32 ? range_32 : range_64, &job);
}

EXT_DISPATCH(ext_reduce_integers,
             (ext_dtype dtype, ext_reduce_kind kind, int64_t outer, int64_t reduce, int64_t inner,
              const void* x, void* y),
             (dtype, kind, outer, reduce, inner, x, y))
