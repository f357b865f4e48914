/*
 * Float32 to integers of 8 bits and back, by a scale and a zero point of the tensor or of each
 * channel:
 *
 *   quantize     y = round(x / scale) + zero, limited to what y holds; halves to the even integer
 *   dequantize   y = (x - zero) * scale
 *
 * dynamic_quantize finds scale and zero point first: by the greatest and the least number.
 *
 * x is [outer, channels, inner], y dense.  A run is `inner` elements of one channel or, where that
 * is 1, the channels, each with a scale of its own.  The compiler's own vectors do.
 */
#include "../simd/simd.h"

/* Elements of one task at least: some ten microseconds. */
static const int64_t TASK_ELEMENTS = 1 << 15;

/* Elements i < n; `step` is 1 where each has a scale and a zero point of its own, else 0. */
typedef void (*quantise_run)(const int step, int64_t n, const void* x, const float* scale,
                             const void* zero, void* y);

/* 1.5 * 2^23: adding and subtracting it rounds numbers of fewer than 23 bits. */
#define MAGIC 12582912.0f

/* Limited before it is rounded, as the limits are integers; the comparison takes a NaN for less
 * than the least. */
#define EXT_QUANTISE(name, type, least, most)                                                   \
  EXT_INLINE void name##_of(const int step, int64_t n, const float* restrict x,                 \
                            const float* restrict scale, const type* restrict zero,             \
                            type* restrict y) {                                                 \
    for (int64_t i = 0; i < n; i++) {                                                           \
      int32_t z = zero[step * i];                                                               \
      float low = (float)((least) - z), high = (float)((most) - z), v = x[i] / scale[step * i]; \
      v = v > low ? v : low;                                                                    \
      v = v < high ? v : high;                                                                  \
      y[i] = (type)((int32_t)((v + MAGIC) - MAGIC) + z);                                        \
    }                                                                                           \
  }
EXT_QUANTISE(to_int8, int8_t, INT8_MIN, INT8_MAX)
EXT_QUANTISE(to_uint8, uint8_t, 0, UINT8_MAX)

/* Zero points of 32 bits may wrap around. */
#define EXT_DEQUANTISE(name, type)                                                          \
  EXT_INLINE void name##_of(const int step, int64_t n, const type* restrict x,              \
                            const float* restrict scale, const type* restrict zero,         \
                            float* restrict y) {                                            \
    for (int64_t i = 0; i < n; i++)                                                         \
      y[i] = (float)(int32_t)((uint32_t)x[i] - (uint32_t)zero[step * i]) * scale[step * i]; \
  }
EXT_DEQUANTISE(of_int8, int8_t)
EXT_DEQUANTISE(of_uint8, uint8_t)
EXT_DEQUANTISE(of_int32, int32_t)

/* A loop for each step, which the compiler knows. */
#define EXT_RUN(name)                                                                              \
  static void name(const int step, int64_t n, const void* x, const float* scale, const void* zero, \
                   void* y) {                                                                      \
    if (step)                                                                                      \
      name##_of(1, n, x, scale, zero, y);                                                          \
    else                                                                                           \
      name##_of(0, n, x, scale, zero, y);                                                          \
  }
EXT_RUN(to_int8)
EXT_RUN(to_uint8)
EXT_RUN(of_int8)
EXT_RUN(of_uint8)
EXT_RUN(of_int32)

typedef struct {
  quantise_run run;
  int64_t channels;               /* runs of one channel each; 1 where a run is all channels */
  int64_t length, part, parts;    /* of a run, which is cut */
  int64_t x_stride;               /* between the outer elements of x */
  int64_t x_size, y_size, z_size; /* bytes of an element */
  int step;
  const char* x;
  const float* scale;
  const char* zero;
  char* y;
} quantise_job;

static int quantise_range(void* context, int64_t begin, int64_t end) {
  const quantise_job* job = context;
  for (int64_t item = begin; item < end; item++) {
    int64_t row = item / job->parts, from = item % job->parts * job->part;
    int64_t outer = row / job->channels, channel = row % job->channels;
    int64_t own = job->step ? from : channel;
    job->run(job->step, i64_min(job->part, job->length - from),
             job->x + (outer * job->x_stride + channel * job->length + from) * job->x_size,
             job->scale + own, job->zero + own * job->z_size,
             job->y + (row * job->length + from) * job->y_size);
  }
  return EXT_OK;
}

static int run_all(const ext_quantise_params* p, quantise_job job) {
  int64_t outer = p->outer, channels = p->channels, inner = p->inner;
  if (outer <= 0 || channels <= 0 || inner <= 0) return EXT_OK;
  job.x_stride = p->x_stride;
  if (channels == 1 && p->x_stride == inner) {
    inner *= outer;
    outer = 1;
  }
  job.step = inner == 1 && channels > 1;
  job.channels = job.step ? 1 : channels;
  job.length = job.step ? channels : inner;
  job.part = i64_min(job.length, TASK_ELEMENTS);
  job.parts = ceil_div(job.length, job.part);
  return ext_parallel_for(outer * job.channels * job.parts, i64_max(1, TASK_ELEMENTS / job.part),
                          quantise_range, &job);
}

int EXT_NAME(ext_quantize)(const ext_quantise_params* p, const float* x, const float* scale,
                           const void* zero, void* y) {
  quantise_job job = {.x_size = 4,
                      .y_size = 1,
                      .z_size = 1,
                      .x = (const char*)x,
                      .scale = scale,
                      .zero = zero,
                      .y = y};
  switch (p->dtype) {
    case EXT_INT8: job.run = to_int8; break;
    case EXT_UINT8: job.run = to_uint8; break;
    default: return EXT_ERR_ARGUMENT;
  }
  return run_all(p, job);
}

int EXT_NAME(ext_dequantize)(const ext_quantise_params* p, const void* x, const float* scale,
                             const void* zero, float* y) {
  quantise_job job = {
      .x_size = 1, .y_size = 4, .z_size = 1, .x = x, .scale = scale, .zero = zero, .y = (char*)y};
  switch (p->dtype) {
    case EXT_INT8: job.run = of_int8; break;
    case EXT_UINT8: job.run = of_uint8; break;
    case EXT_INT32:
      job.run = of_int32;
      job.x_size = job.z_size = 4;
      break;
    default: return EXT_ERR_ARGUMENT;
  }
  return run_all(p, job);
}

/* The one that is greater, or less, or a NaN. */
EXT_INLINE float greater(float a, float b) {
  return a != a || a > b ? a : b;
}
EXT_INLINE float less(float a, float b) {
  return a != a || a < b ? a : b;
}

/* Tasks that a tensor's range is looked for in, and vectors that are looked at side by side. */
enum { RANGES = 64, BESIDE = 4 };

typedef struct {
  const float* x;
  int64_t n, part;
  float high[RANGES], low[RANGES]; /* with 0 between them; NaN where there is one */
} range_job;

static int find_ranges(void* context, int64_t begin, int64_t end) {
  range_job* job = context;
  for (int64_t item = begin; item < end; item++) {
    const float* x = job->x + item * job->part;
    int64_t n = i64_min(job->part, job->n - item * job->part), i = 0;
    vf high[BESIDE], low[BESIDE];
    for (int v = 0; v < BESIDE; v++) high[v] = low[v] = vf_set1(0.0f);
    for (; i + BESIDE * VL <= n; i += BESIDE * VL) {
      EXT_UNROLL
      for (int v = 0; v < BESIDE; v++) {
        vf values = vf_load(x + i + v * VL);
        high[v] = vf_max_nan(high[v], values);
        low[v] = vf_min_nan(low[v], values);
      }
    }
    for (; i < n; i += VL) {
      vf values = vf_load_n(x + i, i64_min(VL, n - i)); /* zeros behind them */
      high[0] = vf_max_nan(high[0], values);
      low[0] = vf_min_nan(low[0], values);
    }
    for (int v = 1; v < BESIDE; v++) {
      high[0] = vf_max_nan(high[0], high[v]);
      low[0] = vf_min_nan(low[0], low[v]);
    }
    float highs[VL], lows[VL];
    vf_store(highs, high[0]);
    vf_store(lows, low[0]);
    for (int k = 1; k < VL; k++) {
      highs[0] = greater(highs[0], highs[k]);
      lows[0] = less(lows[0], lows[k]);
    }
    job->high[item] = highs[0];
    job->low[item] = lows[0];
  }
  return EXT_OK;
}

int EXT_NAME(ext_dynamic_quantize)(int64_t n, const float* x, uint8_t* y, float* scale,
                                   uint8_t* zero) {
  range_job job = {.x = x, .n = n};
  job.part = i64_max(TASK_ELEMENTS, ceil_div(n, RANGES));
  int64_t parts = ceil_div(n, job.part);
  int status = ext_parallel_for(parts, 1, find_ranges, &job);
  if (status != EXT_OK) return status;
  float high = 0.0f, low = 0.0f;
  for (int64_t i = 0; i < parts; i++) {
    high = greater(high, job.high[i]);
    low = less(low, job.low[i]);
  }
  *scale = high == low ? 1.0f : (high - low) / 255.0f;
  float point = 0.0f - low / *scale;
  point = point > 0.0f ? point : 0.0f; /* a NaN becomes 0 */
  point = point < 255.0f ? point : 255.0f;
  *zero = (uint8_t)((point + MAGIC) - MAGIC);
  ext_quantise_params p = {EXT_UINT8, 1, 1, n, n};
  return EXT_NAME(ext_quantize)(&p, x, scale, zero, y);
}

EXT_DISPATCH(ext_quantize,
             (const ext_quantise_params* p, const float* x, const float* scale, const void* zero,
              void* y),
             (p, x, scale, zero, y))
EXT_DISPATCH(ext_dequantize,
             (const ext_quantise_params* p, const void* x, const float* scale, const void* zero,
              float* y),
             (p, x, scale, zero, y))
EXT_DISPATCH(ext_dynamic_quantize,
             (int64_t n, const float* x, uint8_t* y, float* scale, uint8_t* zero),
             (n, x, y, scale, zero))
