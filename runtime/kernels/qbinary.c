/*
 * A binary function of two quantised tensors of one shape:
 *
 *   v = activation(f((a - a_zero) * a_scale, (b - b_zero) * b_scale)),  f: + - *
 *   y = v, or round(v / y_scale) + y_zero, limited to what y holds; halves to the even integer
 *
 * Where the activation is a clamp and y is of bytes, all steps are taken in registers.  Else runs
 * of floats in L1 stand between them, which are loops that the compiler turns into vectors.
 */
#include "activation.h"

/* Elements of one task at least: some ten microseconds. */
static const int64_t TASK_ELEMENTS = 1 << 15;
enum { RUN = 512 };

typedef struct {
  const ext_qbinary_params* p;
  const char *a, *b;
  char* y;
  int direct;      /* all in registers */
  float low, high; /* of values; none of them is far past what y holds */
  float reciprocal;
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

static int is_byte(ext_dtype dtype) {
  return dtype == EXT_INT8 || dtype == EXT_UINT8;
}

/* Values of VL bytes; those of int8 are read as unsigned, 128 more. */
EXT_INLINE vf read_bytes(const int full, const char* from, int64_t lanes, vi flip, vi zero,
                         vf scale) {
  const uint8_t* x = (const uint8_t*)from;
  vi bytes = full ? vi_load_u8(x) : vi_load_u8_n(x, lanes);
  return vi_to_vf((bytes ^ flip) - zero) * scale;
}

typedef struct {
  vi a_flip, b_flip, a_zero, b_zero, y_zero;
  vf a_scale, b_scale, y_scale, reciprocal, low, high, least, most;
} qbinary_constants;

/* Elements i .. i + VL, or `lanes` of them; `kind` and `full` are constants. */
EXT_INLINE void direct_step(const ext_binary_kind kind, const int full, const qbinary_job* job,
                            const qbinary_constants* k, int64_t i, int64_t lanes) {
  vf a = read_bytes(full, job->a + i, lanes, k->a_flip, k->a_zero, k->a_scale);
  vf b = read_bytes(full, job->b + i, lanes, k->b_flip, k->b_zero, k->b_scale);
  /* Kept: a product that becomes part of a multiply-add decides halves otherwise. */
  a = vf_keep(a);
  b = vf_keep(b);
  vf v = kind == EXT_ADD ? a + b : kind == EXT_SUB ? a - b : a * b;
  v = vf_quotient(vf_min(vf_at_least(v, k->low), k->high), k->y_scale, k->reciprocal);
  vi rounded = vf_to_vi(vf_min(vf_max(v, k->least), k->most)) + k->y_zero;
  uint8_t* y = (uint8_t*)job->y + i;
  if (full)
    vi_store_low(y, rounded);
  else
    vi_store_low_n(y, rounded, lanes);
}

EXT_INLINE void direct_range(const ext_binary_kind kind, const qbinary_job* job, int64_t begin,
                             int64_t end) {
  const ext_qbinary_params* p = job->p;
  const int a_signed = p->a_dtype == EXT_INT8 ? 128 : 0,
            b_signed = p->b_dtype == EXT_INT8 ? 128 : 0;
  const float least = (float)((p->y_dtype == EXT_INT8 ? INT8_MIN : 0) - p->y_zero);
  const qbinary_constants k = {.a_flip = vi_set1(a_signed),
                               .b_flip = vi_set1(b_signed),
                               .a_zero = vi_set1(p->a_zero + a_signed),
                               .b_zero = vi_set1(p->b_zero + b_signed),
                               .y_zero = vi_set1(p->y_zero),
                               .a_scale = vf_set1(p->a_scale),
                               .b_scale = vf_set1(p->b_scale),
                               .y_scale = vf_set1(p->y_scale),
                               .reciprocal = vf_set1(job->reciprocal),
                               .low = vf_set1(job->low),
                               .high = vf_set1(job->high),
                               .least = vf_set1(least),
                               .most = vf_set1(least + 255.0f)};
  int64_t i = begin;
  for (; i + VL <= end; i += VL) direct_step(kind, 1, job, &k, i, VL);
  if (i < end) direct_step(kind, 0, job, &k, i, end - i);
}

/* Whether all can be done in registers; fills in what that needs. */
static int plan_direct(qbinary_job* job) {
  const ext_qbinary_params* p = job->p;
  const float scale = p->y_scale;
  job->reciprocal = 1.0f / scale;
  if (!is_byte(p->y_dtype) || !(scale > 0) || !__builtin_isfinite(512.0f * scale)) return 0;
  if (!__builtin_isfinite(job->reciprocal)) return 0;
  if (!ext_clamp_bounds(&p->activation, &job->low, &job->high)) return 0;
  /* y holds 256 steps. */
  job->low = job->low > -512.0f * scale ? job->low : -512.0f * scale;
  job->high = job->high < 512.0f * scale ? job->high : 512.0f * scale;
  return job->low <= job->high;
}

static int qbinary_range(void* context, int64_t begin, int64_t end) {
  const qbinary_job* job = context;
  const ext_qbinary_params* p = job->p;
  if (job->direct) {
    if (p->kind == EXT_ADD)
      direct_range(EXT_ADD, job, begin, end);
    else if (p->kind == EXT_SUB)
      direct_range(EXT_SUB, job, begin, end);
    else
      direct_range(EXT_MUL, job, begin, end);
    return EXT_OK;
  }
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

int EXT_NAME(ext_qbinary)(const ext_qbinary_params* p, const void* a, const void* b, void* y) {
  int known = p->kind == EXT_ADD || p->kind == EXT_SUB || p->kind == EXT_MUL;
  if (!known || !is_byte(p->a_dtype) || !is_byte(p->b_dtype)) return EXT_ERR_ARGUMENT;
  if (!is_byte(p->y_dtype) && p->y_dtype != EXT_FLOAT32) return EXT_ERR_ARGUMENT;
  qbinary_job job = {.p = p, .a = a, .b = b, .y = y};
  job.direct = plan_direct(&job);
  return ext_parallel_for(p->size, TASK_ELEMENTS, qbinary_range, &job);
}

EXT_DISPATCH(ext_qbinary, (const ext_qbinary_params* p, const void* a, const void* b, void* y),
             (p, a, b, y))
