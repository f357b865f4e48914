/* y[i] = x[i] converted as C does, i < n; to a truth value: x[i] != 0.  To 8 bits all numbers go by
 * way of 32, so that those out of range wrap as integers do; from and to floats of 16 bits by way
 * of float.  The compiler's own vectors do. */
#include "halves.h"

/* Elements of one task at least: some ten microseconds. */
static const int64_t TASK_ELEMENTS = 1 << 15;

typedef void (*cast_run)(int64_t n, const void* x, void* y);

#define EXT_SAME(v) (v)
#define EXT_TRUTH(v) ((v) != 0)
#define EXT_WIDE(v) ((int32_t)(v))

/* read gives a number of what is stored, write what is stored of a number. */
#define EXT_CAST(name, source, target, read, write)                   \
  static void name(int64_t n, const void* from, void* to) {           \
    const source* restrict x = from;                                  \
    target* restrict y = to;                                          \
    for (int64_t i = 0; i < n; i++) y[i] = (target)write(read(x[i])); \
  }
#define EXT_CASTS_TO(suffix, target, write)                                \
  EXT_CAST(float32_to_##suffix, float, target, EXT_SAME, write)            \
  EXT_CAST(int32_to_##suffix, int32_t, target, EXT_SAME, write)            \
  EXT_CAST(int64_to_##suffix, int64_t, target, EXT_SAME, write)            \
  EXT_CAST(bool_to_##suffix, uint8_t, target, EXT_SAME, write)             \
  EXT_CAST(int8_to_##suffix, int8_t, target, EXT_SAME, write)              \
  EXT_CAST(uint8_to_##suffix, uint8_t, target, EXT_SAME, write)            \
  EXT_CAST(float16_to_##suffix, uint16_t, target, float_of_float16, write) \
  EXT_CAST(bfloat16_to_##suffix, uint16_t, target, float_of_bfloat16, write)
EXT_CASTS_TO(float32, float, EXT_SAME)
EXT_CASTS_TO(int32, int32_t, EXT_SAME)
EXT_CASTS_TO(int64, int64_t, EXT_SAME)
EXT_CASTS_TO(bool, uint8_t, EXT_TRUTH)
EXT_CASTS_TO(int8, int8_t, EXT_WIDE)
EXT_CASTS_TO(uint8, uint8_t, EXT_WIDE)
EXT_CASTS_TO(float16, uint16_t, float16_of_float)
EXT_CASTS_TO(bfloat16, uint16_t, bfloat16_of_float)

#define EXT_FROM(suffix)                                                          \
  {float32_to_##suffix, int32_to_##suffix, int64_to_##suffix,   bool_to_##suffix, \
   int8_to_##suffix,    uint8_to_##suffix, float16_to_##suffix, bfloat16_to_##suffix}
/* [to][from] */
static const cast_run casts[][EXT_BFLOAT16 + 1] = {
    EXT_FROM(float32), EXT_FROM(int32), EXT_FROM(int64),   EXT_FROM(bool),
    EXT_FROM(int8),    EXT_FROM(uint8), EXT_FROM(float16), EXT_FROM(bfloat16)};
static const int64_t sizes[] = {4, 4, 8, 1, 1, 1, 2, 2};

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
  if ((int)from < 0 || from > EXT_BFLOAT16) return EXT_ERR_ARGUMENT;
  if ((int)to < 0 || to > EXT_BFLOAT16) return EXT_ERR_ARGUMENT;
  cast_job job = {casts[to][from], sizes[from], sizes[to], x, y};
  return ext_parallel_for(n, TASK_ELEMENTS, cast_range, &job);
}

EXT_DISPATCH(ext_cast, (ext_dtype from, ext_dtype to, int64_t n, const void* x, void* y),
             (from, to, n, x, y))
