/* Any CPU: 4 floats in GCC vector extensions, no intrinsics.  Slower; there so that a model runs
 * everywhere, and as the reference that the other levels are read against. */
#include <math.h>

typedef float vf __attribute__((vector_size(4 * VL)));
typedef int32_t vi __attribute__((vector_size(4 * VL)));
typedef uint32_t vu __attribute__((vector_size(4 * VL)));
typedef vi vm;

/* vf_fma is a product and a sum. */
#define EXT_FMA_ROUNDS_TWICE

EXT_INLINE vf vf_load(const float* p) {
  vf x;
  memcpy(&x, p, sizeof x);
  return x;
}
EXT_INLINE void vf_store(float* p, vf x) {
  memcpy(p, &x, sizeof x);
}
EXT_INLINE vf vf_set1(float x) {
  return (vf){x, x, x, x};
}
/* Calls, as those of bf16.h are. */
static __attribute__((noinline, unused)) vf vf_load_n(const float* p, int64_t n) {
  vf x = {0.0f, 0.0f, 0.0f, 0.0f};
  for (int i = 0; i < VL; i++)
    if (i < n) x[i] = p[i];
  return x;
}
static __attribute__((noinline, unused)) void vf_store_n(float* p, vf x, int64_t n) {
  for (int i = 0; i < VL; i++)
    if (i < n) p[i] = x[i];
}
EXT_INLINE vf vf_fma(vf a, vf b, vf c) {
  return a * b + c;
}
EXT_INLINE vf vf_select(vm m, vf a, vf b) {
  return (vf)((m & (vi)a) | (~m & (vi)b));
}
EXT_INLINE vm vm_lt(vf a, vf b) {
  return a < b;
}
EXT_INLINE vm vm_nan(vf a) {
  return a != a;
}
EXT_INLINE int vm_any(vm m) {
  return (m[0] | m[1] | m[2] | m[3]) != 0;
}
EXT_INLINE vf vf_max(vf a, vf b) {
  return vf_select(b < a, a, b);
}
EXT_INLINE vf vf_min(vf a, vf b) {
  return vf_select(a < b, a, b);
}
EXT_INLINE vf vf_sqrt(vf a) {
  return (vf){sqrtf(a[0]), sqrtf(a[1]), sqrtf(a[2]), sqrtf(a[3])};
}

/* In two steps, so that results may be subnormal and n may be 128 for an x below 1. */
EXT_INLINE vf vf_pow2(vf x, vf n) {
  /* A float in [2^23, 2^24) holds an integer in its low bits; unlike a conversion, this is defined
   * for the NaN lanes too, whose result stays NaN through x. */
  const vf magic = {12582912.0f, 12582912.0f, 12582912.0f, 12582912.0f};
  vi e = (vi)(n + magic) - (vi)magic, half = e >> 1;
  return x * (vf)((vu)(half + 127) << 23) * (vf)((vu)(e - half + 127) << 23);
}
EXT_INLINE vf vf_pow2_normal(vf x, vf n) {
  const vf magic = {12582912.0f, 12582912.0f, 12582912.0f, 12582912.0f};
  const vi biased = (vi)(n + magic) - (vi)magic + 127;
  return x * (vf)((vu)(biased & (biased > 0)) << 23);
}
EXT_INLINE vf vf_keep(vf x) {
  return x;
}
EXT_INLINE float vf_sum(vf x) {
  return (x[0] + x[2]) + (x[1] + x[3]);
}
EXT_INLINE float vf_most(vf x) {
  float a = x[0] > x[2] ? x[0] : x[2], b = x[1] > x[3] ? x[1] : x[3];
  return a > b ? a : b;
}

/* Lane i is x[from[i]]; from counts lanes of x. */
EXT_INLINE vf vf_lanes(vf x, vi from) {
  return (vf){x[from[0]], x[from[1]], x[from[2]], x[from[3]]};
}

EXT_INLINE void vf_transpose(vf r[VL]) {
  vf a = r[0], b = r[1], c = r[2], d = r[3];
  r[0] = (vf){a[0], b[0], c[0], d[0]};
  r[1] = (vf){a[1], b[1], c[1], d[1]};
  r[2] = (vf){a[2], b[2], c[2], d[2]};
  r[3] = (vf){a[3], b[3], c[3], d[3]};
}
