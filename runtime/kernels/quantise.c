/*
 * Float32 to integers of 8 bits and back, by a scale and a zero point of the tensor or of each
 * channel:
 *
 *   quantize     y = round(x / scale) + zero, limited to what y holds; halves to the even integer
 *   dequantize   y = (x - zero) * scale
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

/* Limited before it is rounded, as the limits are integers; the comparison takes a NaN for less
 * than the least.  Adding and subtracting 1.5 * 2^23 rounds numbers of fewer than 23 bits. */
#define EXT_QUANTISE(name, type, least, most)                                                   \
  EXT_INLINE void name##_of(const int step, int64_t n, const float* restrict x,                 \
                            const float* restrict scale, const type* restrict zero,             \
                            type* restrict y) {                                                 \
    const float magic = 12582912.0f;                                                            \
    for (int64_t i = 0; i < n; i++) {                                                           \
      int32_t z = zero[step * i];                                                               \
      float low = (float)((least) - z), high = (float)((most) - z), v = x[i] / scale[step * i]; \
      v = v > low ? v : low;                                                                    \
      v = v < high ? v : high;                                                                  \
      y[i] = (type)((int32_t)((v + magic) - magic) + z);                                        \
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

EXT_DISPATCH(ext_quantize,
             (const ext_quantise_params* p, const float* x, const float* scale, const void* zero,
              void* y),
             (p, x, scale, zero, y))
EXT_DISPATCH(ext_dequantize,
             (const ext_quantise_params* p, const void* x, const float* scale, const void* zero,
              float* y),
             (p, x, scale, zero, y))
