/*
 * A binary function of two quantised tensors of one shape:
 *
 *   v = activation(f((a - a_zero) * a_scale, (b - b_zero) * b_scale)),  f: + - *
 *   y = v, or round(v / y_scale) + y_zero, limited to what y holds; halves to the even integer
 *
 * Runs of floats in L1 stand between the steps, which are loops that the compiler turns into
 * vectors.
 */
#include "activation.h"

/* Elements of one task at least: some ten microseconds. */
static const int64_t TASK_ELEMENTS = 1 << 15;
enum { RUN = 512 };

typedef struct {
  const ext_qbinary_params* p;
  const char *a, *b;
  char* y;
} qbinary_job;

#define EXT_READ(name, type)                                                                    \
  static void name(int64_t n, const void* from, int32_t zero, float scale, float* restrict y) { \
    const type* restrict x = from;                                                              \
    for (int64_t i = 0; i < n; i++) y[i] = (float)((int32_t)x[i] - zero) * scale;               \
  }
EXT_READ(read_int8, int8_t)
EXT_READ(read_uint8, uint8_t)

/* A NaN compares as less than the least.  Limits are integers, so that what is limited before it is
 * rounded is right; adding and subtracting 1.5 * 2^23 rounds. */
#define EXT_WRITE(name, type, least, most)                                                         \
  static void name(int64_t n, const float* restrict v, int32_t zero, float scale, void* to) {      \
    type* restrict y = to;                                                                         \
    const float magic = 12582912.0f, low = (float)((least) - zero), high = (float)((most) - zero); \
    for (int64_t i = 0; i < n; i++) {                                                              \
      float q = v[i] / scale;                                                                      \
      q = q > low ? q : low;                                                                       \
      q = q < high ? q : high;                                                                     \
      y[i] = (type)((int32_t)((q + magic) - magic) + zero);                                        \
    }                                                                                              \
  }
EXT_WRITE(write_int8, int8_t, INT8_MIN, INT8_MAX)
EXT_WRITE(write_uint8, uint8_t, 0, UINT8_MAX)

static void combine(ext_binary_kind kind, int64_t n, const float* restrict a, float* restrict v) {
  if (kind == EXT_ADD)
    for (int64_t i = 0; i < n; i++) v[i] = a[i] + v[i];
  else if (kind == EXT_SUB)
    for (int64_t i = 0; i < n; i++) v[i] = a[i] - v[i];
  else
    for (int64_t i = 0; i < n; i++) v[i] = a[i] * v[i];
}

static void read_run(ext_dtype dtype, int64_t n, const char* x, int32_t zero, float scale,
                     float* y) {
  (dtype == EXT_INT8 ? read_int8 : read_uint8)(n, x, zero, scale, y);
}

static int qbinary_range(void* context, int64_t begin, int64_t end) {
  const qbinary_job* job = context;
  const ext_qbinary_params* p = job->p;
  _Alignas(EXT_ALIGN) float a[RUN], v[RUN];
  for (int64_t i = begin; i < end; i += RUN) {
    int64_t n = i64_min(RUN, end - i);
    float* to = p->y_dtype == EXT_FLOAT32 ? (float*)job->y + i : v;
    read_run(p->a_dtype, n, job->a + i, p->a_zero, p->a_scale, a);
    read_run(p->b_dtype, n, job->b + i, p->b_zero, p->b_scale, v);
    combine(p->kind, n, a, v);
    if (p->activation.kind != EXT_IDENTITY || to != v)
      EXT_NAME(ext_activate)(&p->activation, n, v, to);
    if (p->y_dtype == EXT_INT8) write_int8(n, v, p->y_zero, p->y_scale, job->y + i);
    if (p->y_dtype == EXT_UINT8) write_uint8(n, v, p->y_zero, p->y_scale, job->y + i);
  }
  return EXT_OK;
}

static int is_byte(ext_dtype dtype) {
  return dtype == EXT_INT8 || dtype == EXT_UINT8;
}

int EXT_NAME(ext_qbinary)(const ext_qbinary_params* p, const void* a, const void* b, void* y) {
  int known = p->kind == EXT_ADD || p->kind == EXT_SUB || p->kind == EXT_MUL;
  if (!known || !is_byte(p->a_dtype) || !is_byte(p->b_dtype)) return EXT_ERR_ARGUMENT;
  if (!is_byte(p->y_dtype) && p->y_dtype != EXT_FLOAT32) return EXT_ERR_ARGUMENT;
  qbinary_job job = {p, a, b, y};
  return ext_parallel_for(p->size, TASK_ELEMENTS, qbinary_range, &job);
}

EXT_DISPATCH(ext_qbinary, (const ext_qbinary_params* p, const void* a, const void* b, void* y),
             (p, a, b, y))
