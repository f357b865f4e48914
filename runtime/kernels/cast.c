/* y[i] = x[i] converted as C does, i < n; to a truth value: x[i] != 0.  To 8 bits all numbers go by
 * way of 32, so that those out of range wrap as integers do.  The compiler's own vectors do. */
#include "../simd/simd.h"

/* Elements of one task at least: some ten microseconds. */
static const int64_t TASK_ELEMENTS = 1 << 15;

typedef void (*cast_run)(int64_t n, const void* x, void* y);

#define EXT_CAST(name, source, target, value)               \
  static void name(int64_t n, const void* from, void* to) { \
    const source* restrict x = from;                        \
    target* restrict y = to;                                \
    for (int64_t i = 0; i < n; i++) y[i] = (target)(value); \
  }
#define EXT_CASTS_TO(suffix, target, value)           \
  EXT_CAST(float32_to_##suffix, float, target, value) \
  EXT_CAST(int32_to_##suffix, int32_t, target, value) \
  EXT_CAST(int64_to_##suffix, int64_t, target, value) \
  EXT_CAST(bool_to_##suffix, uint8_t, target, value)  \
  EXT_CAST(int8_to_##suffix, int8_t, target, value)   \
  EXT_CAST(uint8_to_##suffix, uint8_t, target, value)
EXT_CASTS_TO(float32, float, x[i])
EXT_CASTS_TO(int32, int32_t, x[i])
EXT_CASTS_TO(int64, int64_t, x[i])
EXT_CASTS_TO(bool, uint8_t, x[i] != 0)
EXT_CASTS_TO(int8, int8_t, (int32_t)x[i])
EXT_CASTS_TO(uint8, uint8_t, (int32_t)x[i])

#define EXT_FROM(suffix)                                      \
  {float32_to_##suffix, int32_to_##suffix, int64_to_##suffix, \
   bool_to_##suffix,    int8_to_##suffix,  uint8_to_##suffix}
/* [to][from] */
static const cast_run casts[][6] = {EXT_FROM(float32), EXT_FROM(int32), EXT_FROM(int64),
                                    EXT_FROM(bool),    EXT_FROM(int8),  EXT_FROM(uint8)};
static const int64_t sizes[] = {4, 4, 8, 1, 1, 1};

typedef struct {
  cast_run run;
  int64_t x_size, y_size;
  const char* x;
  char* y;
} cast_job;

static int cast_range(void* context, int64_t begin, int64_t end) {
  const cast_job* job = context;
  job->run(end - begin, job->x + begin * job->x_size, job->y + begin * job->y_size);
  return EXT_OK;
}

int EXT_NAME(ext_cast)(ext_dtype from, ext_dtype to, int64_t n, const void* x, void* y) {
  if ((int)from < 0 || from > EXT_UINT8 || (int)to < 0 || to > EXT_UINT8) return EXT_ERR_ARGUMENT;
  cast_job job = {casts[to][from], sizes[from], sizes[to], x, y};
  return ext_parallel_for(n, TASK_ELEMENTS, cast_range, &job);
}

EXT_DISPATCH(ext_cast, (ext_dtype from, ext_dtype to, int64_t n, const void* x, void* y),
             (from, to, n, x, y))
