/* y[i] = x[i] converted as C does, i < n; to a truth value: x[i] != 0; from and to floats of 16
 * bits by way of float.  Floats that become integers are cut to whole numbers, which wrap as
 * integers do; NaN and infinities become 0.  The compiler's own vectors do. */
#include <float.h>
#include <math.h>

#include "halves.h"

/* Elements of one task at least: some ten microseconds. */
static const int64_t TASK_ELEMENTS = 1 << 15;

typedef void (*cast_run)(int64_t n, const void* x, void* y);

#define EXT_SAME(v) (v)
#define EXT_TRUTH(v) ((v) != 0)

/* read gives a number of what is stored, write what is stored of a number. */
#define EXT_CAST(name, source, target, read, write)                   \
  static void name(int64_t n, const void* from, void* to) {           \
    const source* restrict x = from;                                  \
    target* restrict y = to;                                          \
    for (int64_t i = 0; i < n; i++) y[i] = (target)write(read(x[i])); \
  }
/* A float as an integer; beyond the range of 64 bits their lowest number. */
EXT_INLINE int64_t whole_number(float v) {
  const float size = fabsf(v);
  if (size < 0x1p63f) return (int64_t)v;
  return size <= FLT_MAX ? INT64_MIN : 0;
}

/* Numbers that are converted in one go, in 32 bits where they all fit: there are vectors for that
 * on every level. */
enum { RUN = 256 };

#define EXT_WHOLE(name, source, target, read)                                            \
  static void name(int64_t n, const void* from, void* to) {                              \
    const source* restrict x = from;                                                     \
    target* restrict y = to;                                                             \
    for (int64_t i = 0; i < n; i += RUN) {                                               \
      const int64_t count = i64_min(RUN, n - i);                                         \
      int far = 0;                                                                       \
      for (int64_t j = 0; j < count; j++) far |= !(fabsf(read(x[i + j])) < 0x1p31f);     \
      if (far)                                                                           \
        for (int64_t j = i; j < i + count; j++) y[j] = (target)whole_number(read(x[j])); \
      else                                                                               \
        for (int64_t j = i; j < i + count; j++) y[j] = (target)(int32_t)read(x[j]);      \
    }                                                                                    \
  }

#define EXT_INTEGERS_TO(suffix, target, write)                  \
  EXT_CAST(int32_to_##suffix, int32_t, target, EXT_SAME, write) \
  EXT_CAST(int64_to_##suffix, int64_t, target, EXT_SAME, write) \
  EXT_CAST(bool_to_##suffix, uint8_t, target, EXT_SAME, write)  \
  EXT_CAST(int8_to_##suffix, int8_t, target, EXT_SAME, write)   \
  EXT_CAST(uint8_to_##suffix, uint8_t, target, EXT_SAME, write)
#define EXT_CASTS_TO(suffix, target, write)                                \
  EXT_INTEGERS_TO(suffix, target, write)                                   \
  EXT_CAST(float32_to_##suffix, float, target, EXT_SAME, write)            \
  EXT_CAST(float16_to_##suffix, uint16_t, target, float_of_float16, write) \
  EXT_CAST(bfloat16_to_##suffix, uint16_t, target, float_of_bfloat16, write)
#define EXT_CASTS_TO_INTEGER(suffix, target)                         \
  EXT_INTEGERS_TO(suffix, target, EXT_SAME)                          \
  EXT_WHOLE(float32_to_##suffix, float, target, EXT_SAME)            \
  EXT_WHOLE(float16_to_##suffix, uint16_t, target, float_of_float16) \
  EXT_WHOLE(bfloat16_to_##suffix, uint16_t, target, float_of_bfloat16)
EXT_CASTS_TO(float32, float, EXT_SAME)
EXT_CASTS_TO(bool, uint8_t, EXT_TRUTH)
EXT_CASTS_TO(float16, uint16_t, float16_of_float)
EXT_CASTS_TO(bfloat16, uint16_t, bfloat16_of_float)
EXT_CASTS_TO_INTEGER(int32, int32_t)
EXT_CASTS_TO_INTEGER(int64, int64_t)
EXT_CASTS_TO_INTEGER(int8, int8_t)
EXT_CASTS_TO_INTEGER(uint8, uint8_t)

#define EXT_FROM(suffix)                                                          \
  {float32_to_##suffix, int32_to_##suffix, int64_to_##suffix,   bool_to_##suffix, \
   int8_to_##suffix,    uint8_to_##suffix, float16_to_##suffix, bfloat16_to_##suffix}
/* [to][from] */
static const cast_run casts[][EXT_BFLOAT16 + 1] = {
    EXT_FROM(float32), EXT_FROM(int32), EXT_FROM(int64),   EXT_FROM(bool),
    EXT_FROM(int8),    EXT_FROM(uint8), EXT_FROM(float16), EXT_FROM(bfloat16)};
static const int64_t sizes[] = {4, 4, 8, 1, 1, 1, 2, 2};

#if defined(EXT_FLOAT16_CASTS)
static void halves_of_floats(int64_t n, const void* from, void* to) {
  const float* x = from;
  uint16_t* y = to;
  for (int64_t i = 0; i < n; i += VL) {
    const int64_t lanes = i64_min(VL, n - i);
    vf_store_float16_n(y + i, vf_load_n(x + i, lanes), lanes);
  }
}
static void floats_of_halves(int64_t n, const void* from, void* to) {
  const uint16_t* x = from;
  float* y = to;
  for (int64_t i = 0; i < n; i += VL) {
    const int64_t lanes = i64_min(VL, n - i);
    vf_store_n(y + i, vf_load_float16_n(x + i, lanes), lanes);
  }
}
#endif

static cast_run run_of(ext_dtype from, ext_dtype to) {
#if defined(EXT_FLOAT16_CASTS)
  if (from == EXT_FLOAT32 && to == EXT_FLOAT16) return halves_of_floats;
  if (from == EXT_FLOAT16 && to == EXT_FLOAT32) return floats_of_halves;
#endif
  return casts[to][from];
}

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
  cast_job job = {run_of(from, to), sizes[from], sizes[to], x, y};
  return ext_parallel_for(n, TASK_ELEMENTS, cast_range, &job);
}

EXT_DISPATCH(ext_cast, (ext_dtype from, ext_dtype to, int64_t n, const void* x, void* y),
             (from, to, n, x, y))
