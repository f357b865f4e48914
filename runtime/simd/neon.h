/* AArch64's NEON: 4 floats, 32 registers. */
#include <arm_neon.h>

typedef float vf __attribute__((vector_size(4 * VL)));
typedef int32_t vi __attribute__((vector_size(4 * VL)));
typedef uint32x4_t vm;

EXT_INLINE vf vf_load(const float* p) {
  return vld1q_f32(p);
}
EXT_INLINE void vf_store(float* p, vf x) {
  vst1q_f32(p, x);
}
EXT_INLINE vf vf_set1(float x) {
  return vdupq_n_f32(x);
}
EXT_INLINE vf vf_load_n(const float* p, int64_t n) {
  if (n >= VL) return vld1q_f32(p);
  float32x2_t low = vdup_n_f32(0.0f), high = low;
  if (n & 2) low = vld1_f32(p);
  if (n == 3) high = vld1_lane_f32(p + 2, high, 0);
  if (n == 1) low = vld1_lane_f32(p, low, 0);
  return vcombine_f32(low, high);
}
EXT_INLINE void vf_store_n(float* p, vf x, int64_t n) {
  if (n >= VL) {
    vst1q_f32(p, x);
    return;
  }
  if (n & 2) vst1_f32(p, vget_low_f32(x));
  if (n == 3) vst1q_lane_f32(p + 2, x, 2);
  if (n == 1) vst1q_lane_f32(p, x, 0);
}
EXT_INLINE vf vf_fma(vf a, vf b, vf c) {
  return vfmaq_f32(c, a, b);
}
/* a b[lane] + c for a constant lane. */
#define vf_fma_lane(a, b, lane, c) vfmaq_laneq_f32(c, a, b, lane)
EXT_INLINE vf vf_max(vf a, vf b) {
  return vmaxq_f32(a, b);
}
EXT_INLINE vf vf_min(vf a, vf b) {
  return vminq_f32(a, b);
}
/* The instructions keep a NaN of either argument as they are. */
#define EXT_MAX_KEEPS_NAN
EXT_INLINE vf vf_max_nan(vf a, vf b) {
  return vmaxq_f32(a, b);
}
EXT_INLINE vf vf_min_nan(vf a, vf b) {
  return vminq_f32(a, b);
}
EXT_INLINE vf vf_sqrt(vf a) {
  return vsqrtq_f32(a);
}
EXT_INLINE vm vm_lt(vf a, vf b) {
  return vcltq_f32(a, b);
}
EXT_INLINE vm vm_nan(vf a) {
  return vmvnq_u32(vceqq_f32(a, a));
}
EXT_INLINE int vm_any(vm m) {
  return vmaxvq_u32(m) != 0;
}
EXT_INLINE vf vf_select(vm m, vf a, vf b) {
  return vbslq_f32(m, a, b);
}

/* In two steps, so that results may be subnormal and n may be 128 for an x below 1. */
EXT_INLINE vf vf_pow2(vf x, vf n) {
  const int32x4_t bias = vdupq_n_s32(127);
  int32x4_t e = vcvtq_s32_f32(n), half = vshrq_n_s32(e, 1);
  int32x4_t low = vshlq_n_s32(vaddq_s32(half, bias), 23);
  int32x4_t high = vshlq_n_s32(vaddq_s32(vsubq_s32(e, half), bias), 23);
  return x * (vf)low * (vf)high;
}
EXT_INLINE vf vf_pow2_normal(vf x, vf n) {
  const int32x4_t biased = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
  return x * (vf)vshlq_n_s32(vmaxq_s32(biased, vdupq_n_s32(0)), 23);
}
EXT_INLINE vf vf_keep(vf x) {
  __asm__("" : "+w"(x));
  return x;
}
EXT_INLINE float vf_sum(vf x) {
  return vaddvq_f32(x);
}
EXT_INLINE float vf_most(vf x) {
  return vmaxvq_f32(x);
}

/* Lane i is x[from[i]]; from counts lanes of x. */
EXT_INLINE vf vf_lanes(vf x, vi from) {
  const vi bytes = from * 0x04040404 + 0x03020100;
  return (vf)vqtbl1q_u8((uint8x16_t)x, (uint8x16_t)bytes);
}

/* Transposes in place the tile whose row i is r[i]: pairs, then halves. */
EXT_INLINE void vf_transpose(vf r[VL]) {
  float64x2_t a = (float64x2_t)vtrn1q_f32(r[0], r[1]), b = (float64x2_t)vtrn2q_f32(r[0], r[1]);
  float64x2_t c = (float64x2_t)vtrn1q_f32(r[2], r[3]), d = (float64x2_t)vtrn2q_f32(r[2], r[3]);
  r[0] = (vf)vtrn1q_f64(a, c);
  r[1] = (vf)vtrn1q_f64(b, d);
  r[2] = (vf)vtrn2q_f64(a, c);
  r[3] = (vf)vtrn2q_f64(b, d);
}
