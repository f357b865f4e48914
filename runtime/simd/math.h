/*
 * math.h - exp, log, erf, tanh, sin, atan and kin on a vector.
 *
 * The polynomials are our own weighted minimax fits (Lawson iteration on Chebyshev nodes against
 * 40-digit values); the error beside each is the relative error of the fit itself.  What the
 * evaluation in fp32 adds is measured by tests/kernels/test_elementwise.py; the largest errors seen
 * over all fp32 inputs sampled there stand beside each function.
 */
#ifndef EXT_SIMD_MATH_H_
#define EXT_SIMD_MATH_H_

#include <math.h>

#include "simd.h"

/* exp(t) = 2^n (1 + p), |t| <= 104.  t = n ln 2 + r, |r| <= ln(2)/2; p = exp(r) - 1 = r + r^2 P(r),
 * P of degree 4 (3.1e-9). */
EXT_INLINE vf vf_exp_parts(vf t, vf* n) {
  const vf magic = vf_set1(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
  *n = vf_fma(t, vf_set1(1.44269504f), magic) - magic;
  /* ln 2 = 0.693359375 - 2.12194440e-4, the first exact. */
  vf r = vf_fma(*n, vf_set1(-0.693359375f), t);
  r = vf_fma(*n, vf_set1(2.12194440e-4f), r);
  vf p = vf_set1(0.0013814466f);
  p = vf_fma(p, r, vf_set1(0.0083687808f));
  p = vf_fma(p, r, vf_set1(0.0416683927f));
  p = vf_fma(p, r, vf_set1(0.1666651964f));
  p = vf_fma(p, r, vf_set1(0.4999999404f));
  return vf_fma(p, r * r, r);
}

/* exp(x), within 2 ULP.  Overflows to inf, underflows through the subnormals to 0. */
EXT_INLINE vf vf_exp(vf x) {
  /* Beyond these bounds the result is inf or 0 whatever x is, and n stays small. */
  vf n, p = vf_exp_parts(vf_max(vf_set1(-104.0f), vf_min(vf_set1(89.0f), x)), &n);
  return vf_pow2(p + vf_set1(1.0f), n);
}

/* The same in fewer steps, where what is below the smallest normal number may be 0, and what is
 * beyond 2^127.5 infinite. */
EXT_INLINE vf vf_exp_normal(vf x) {
  vf n, p = vf_exp_parts(vf_max(vf_set1(-104.0f), vf_min(vf_set1(89.0f), x)), &n);
  return vf_pow2_normal(p + vf_set1(1.0f), n);
}

EXT_INLINE vf vf_abs(vf x) {
  return (vf)((vi)x & 0x7fffffff);
}

/* log(x), within 2 ULP.  x = 2^e (1 + f), 1 + f in [sqrt(1/2), sqrt(2)); log(1 + f) = f - f^2/2 +
 * f^3 P(f), P of degree 7 (5.8e-9).  -inf at 0, NaN below. */
EXT_INLINE vf vf_log(vf x) {
  const vi one_bits = (vi)vf_set1(1.0f), root_half = (vi)vf_set1(0.70710678f);
  vm tiny = vm_lt(x, vf_set1(1.17549435e-38f));
  vf positive = vf_abs(x); /* the result for x < 0 is put in below */
  vf scaled = vf_select(tiny, positive * vf_set1(33554432.0f), positive); /* subnormals: 2^25 x */
  vi bits = (vi)scaled - root_half;
  vi e = bits >> 23;
  vf f = (vf)((bits & 0x7fffff) + root_half) - (vf)one_bits;
  vf exponent = (vf)(e + (vi)vf_set1(12582912.0f)) - vf_set1(12582912.0f);
  exponent = exponent - vf_select(tiny, vf_set1(25.0f), vf_zero());
  vf p = vf_set1(-0.0763449296f);
  p = vf_fma(p, f, vf_set1(0.1276157498f));
  p = vf_fma(p, f, vf_set1(-0.1316018254f));
  p = vf_fma(p, f, vf_set1(0.1420175880f));
  p = vf_fma(p, f, vf_set1(-0.1662335694f));
  p = vf_fma(p, f, vf_set1(0.2000122666f));
  p = vf_fma(p, f, vf_set1(-0.2500081956f));
  p = vf_fma(p, f, vf_set1(0.3333333135f));
  vf square = f * f;
  vf low = vf_fma(exponent, vf_set1(-2.12194440e-4f), p * square * f);
  vf y = vf_fma(vf_set1(-0.5f), square, low) + f;
  y = vf_fma(exponent, vf_set1(0.693359375f), y);
  const vf inf = vf_set1(__builtin_inff());
  y = vf_select(vm_lt(x, inf), y, x); /* +inf and NaN are their own logarithm */
  y = vf_select(vm_lt(x, vf_set1(1.4e-45f)), -inf, y);
  return vf_select(vm_lt(x, vf_zero()), vf_set1(__builtin_nanf("")), y);
}

/* y cut to [-1, 1], and exactly the sign of x where |x| > bound: the tail of an odd function. */
EXT_INLINE vf vf_saturate(vf y, vf x, float bound) {
  const vf one = vf_set1(1.0f);
  vf sign = (vf)(((vi)x & (vi)vf_set1(-0.0f)) | (vi)one);
  return vf_select(vm_lt(vf_set1(bound), vf_abs(x)), sign, vf_max(-one, vf_min(one, y)));
}

/* tanh(x) = y / q for |x| <= 9.02: y = x P(x^2), q = Q(x^2) >= 1, degrees 5 and 4 (1.3e-9). */
EXT_INLINE vf vf_tanh_parts(vf x, vf* q) {
  vf s = x * x;
  vf p = vf_set1(-1.2203389e-11f);
  p = vf_fma(p, s, vf_set1(3.0584914e-8f));
  p = vf_fma(p, s, vf_set1(2.8007413e-5f));
  p = vf_fma(p, s, vf_set1(0.0038683254f));
  p = vf_fma(p, s, vf_set1(0.1367991269f));
  p = vf_fma(p, s, vf_set1(1.0f));
  vf d = vf_set1(1.2873635e-6f);
  d = vf_fma(d, s, vf_set1(3.9386272e-4f));
  d = vf_fma(d, s, vf_set1(0.0272458307f));
  d = vf_fma(d, s, vf_set1(0.4701324403f));
  *q = vf_fma(d, s, vf_set1(1.0f));
  return x * p;
}

/* tanh(x), within 6 ULP; beyond 9.02 it rounds to 1. */
EXT_INLINE vf vf_tanh(vf x) {
  vf q, y = vf_tanh_parts(x, &q);
  return vf_saturate(y / q, x, 9.02f);
}

/* erf(x), within 6 ULP.  x P(x^2) / Q(x^2), degrees 5 and 5 (1.9e-8), for |x| <= 3.925; beyond, erf
 * rounds to 1. */
EXT_INLINE vf vf_erf(vf x) {
  vf s = x * x;
  vf p = vf_set1(2.0460243e-6f);
  p = vf_fma(p, s, vf_set1(2.8484384e-4f));
  p = vf_fma(p, s, vf_set1(0.0037725647f));
  p = vf_fma(p, s, vf_set1(0.0527693406f));
  p = vf_fma(p, s, vf_set1(0.1905941069f));
  p = vf_fma(p, s, vf_set1(1.1283791065f));
  vf q = vf_set1(3.8047758e-5f);
  q = vf_fma(q, s, vf_set1(0.0011638612f));
  q = vf_fma(q, s, vf_set1(0.0149832265f));
  q = vf_fma(q, s, vf_set1(0.1141828671f));
  q = vf_fma(q, s, vf_set1(0.5022423864f));
  q = vf_fma(q, s, vf_set1(1.0f));
  return vf_saturate(x * p / q, x, 3.925f);
}

/* 1 / (1 + exp(-x)), within 4 ULP; a result below the smallest normal number is 0. */
EXT_INLINE vf vf_sigmoid(vf x) {
  return vf_set1(1.0f) / (vf_set1(1.0f) + vf_exp_normal(-x));
}

EXT_INLINE vf vf_clip(vf x, float low, float high) {
  return vf_min(vf_set1(high), vf_max(vf_set1(low), x));
}

/* exp(x) - 1 for x <= 0, within 2 ULP: 2^n p + (2^n - 1). */
EXT_INLINE vf vf_expm1_low(vf x) {
  const vf one = vf_set1(1.0f);
  vf n, p = vf_exp_parts(vf_max(vf_set1(-104.0f), vf_min(vf_zero(), x)), &n);
  vf scale = vf_pow2(one, n);
  return vf_fma(scale, p, scale - one);
}

/* log(1 + exp(x)), within 5 ULP: max(x, 0) + log(1 + u), u = exp(-|x|).  w = 1 + u rounds; log(w) u
 * / (w - 1) makes up for that, as log(1 + u) / u is flat. */
EXT_INLINE vf vf_softplus(vf x) {
  const vf one = vf_set1(1.0f);
  vf u = vf_exp(-vf_abs(x)), w = one + u, rounded = w - one;
  vf low = vf_log(w) * u / vf_select(vm_lt(vf_zero(), rounded), rounded, one);
  return vf_max(vf_zero(), x) + vf_select(vm_lt(vf_zero(), rounded), low, u);
}

/* x tanh(log(1 + u)) = x (u^2 + 2 u) / (u^2 + 2 u + 2), u = exp(x), within 6 ULP; the quotient is 1
 * from x = 20 on. */
EXT_INLINE vf vf_mish(vf x) {
  const vf two = vf_set1(2.0f);
  vf u = vf_exp(vf_min(vf_set1(20.0f), x)), v = vf_fma(u, u, two * u);
  return x * (v / (v + two));
}

/* The nearest integer, halves to the even one; the sign of a zero is that of x.  From 2^23 on every
 * float is an integer (a NaN is passed on as well). */
EXT_INLINE vf vf_round(vf x) {
  const vf magic = vf_set1(8388608.0f);
  vf size = vf_abs(x), nearest = (size + magic) - magic;
  vf signed_nearest = (vf)((vi)nearest | ((vi)x & (vi)vf_set1(-0.0f)));
  return vf_select(vm_lt(size, magic), signed_nearest, x);
}

EXT_INLINE vf vf_floor(vf x) {
  vf nearest = vf_round(x);
  return vf_select(vm_lt(x, nearest), nearest - vf_set1(1.0f), nearest);
}

/* A function of libm, lane by lane: for those that are rare in networks. */
EXT_INLINE vf vf_map(float (*f)(float), vf x) {
  float lanes[VL];
  vf_store(lanes, x);
  for (int i = 0; i < VL; i++) lanes[i] = f(lanes[i]);
  return vf_load(lanes);
}

/* Not inlined: the loops that rarely call it keep their registers for the usual case. */
static __attribute__((noinline, cold, unused)) vf vf_map_far(float (*f)(float), vf x) {
  return vf_map(f, x);
}

/* x with the bits of `sign` turned; b in lanes where all bits of m are set, a where none is. */
EXT_INLINE vf vf_turn(vf x, vi sign) {
  return (vf)((vi)x ^ sign);
}
EXT_INLINE vf vf_blend(vi m, vf a, vf b) {
  return (vf)((vi)a ^ (((vi)a ^ (vi)b) & m));
}

/* y, and f(x) of libm in lanes where |x| > FAR_ANGLE: so a lane is the same whatever the others. */
enum { FAR_ANGLE = 1 << 19 };
EXT_INLINE vf vf_unless_far(vf y, float (*f)(float), vf x) {
  vm far = vm_lt(vf_set1(FAR_ANGLE), vf_abs(x));
  return __builtin_expect(vm_any(far), 0) ? vf_select(far, vf_map_far(f, x), y) : y;
}

/* r = x - n pi/2, |r| <= 0.8315, within 1 ULP for 0 <= x <= FAR_ANGLE; the low bits of *turns are
 * those of n.  After Cody and Waite, "Software Manual for the Elementary Functions" (1980), with
 * pi/2 = 1.57079637 - 4.37113883e-8 - 1.71512451e-15.  Where vf_fma rounds once, the first step is
 * exact: its result is a multiple of 2^-24 and below 1.  Where it rounds twice, the steps are in
 * float64; there the first part of pi/2 has 31 bits, and its product with n is exact. */
EXT_INLINE vf vf_quarter_turns(vf x, vi* turns) {
  const vf magic = vf_set1(12582912.0f);
  vf shifted = vf_fma(x, vf_set1(0.636619747f), magic), n = shifted - magic;
  *turns = (vi)shifted;
#if defined(EXT_FMA_ROUNDS_TWICE)
  typedef double vd __attribute__((vector_size(8 * VL)));
  vd count = __builtin_convertvector(n, vd);
  vd r = __builtin_convertvector(x, vd) - count * 1.5707963267341256;
  return __builtin_convertvector(r - count * 6.0771005065061922e-11, vf);
#else
  vf r = vf_fma(n, vf_set1(-1.57079637f), x);
  r = vf_fma(n, vf_set1(4.37113883e-8f), r);
  return vf_fma(n, vf_set1(1.71512451e-15f), r);
#endif
}

/* sin(r) = r + r^3 P(r^2) and cos(r) = 1 - r^2/2 + r^4 Q(r^2) for |r| <= 0.8315, P and Q of degree
 * 2 (6.2e-9 and 2.2e-10). */
EXT_INLINE vf vf_sin_near(vf r) {
  vf s = r * r;
  vf p = vf_set1(-1.947333949e-4f);
  p = vf_fma(p, s, vf_set1(0.008331838064f));
  p = vf_fma(p, s, vf_set1(-0.1666664928f));
  return vf_fma(p, s * r, r);
}
EXT_INLINE vf vf_cos_near(vf r) {
  vf s = r * r;
  vf q = vf_set1(2.439181662e-5f);
  q = vf_fma(q, s, vf_set1(-0.001388694858f));
  q = vf_fma(q, s, vf_set1(0.04166663811f));
  q = vf_fma(q, s, vf_set1(-0.5f));
  return vf_fma(q, s, vf_set1(1.0f));
}

/* sin(|x| + quarters pi/2) with its sign bit turned by `sign`, for |x| <= FAR_ANGLE: after an odd
 * number of quarter turns a cosine, after two or three of every four a negative one. */
EXT_INLINE vf vf_sin_turned(vf x, int32_t quarters, vi sign) {
  vi turns;
  vf r = vf_quarter_turns(vf_abs(x), &turns);
  turns += quarters;
  vf y = vf_blend(-(turns & 1), vf_sin_near(r), vf_cos_near(r));
  return vf_turn(y, (vi)((vu)(turns & 2) << 30) ^ sign);
}

/* sin(x) and cos(x), within 2 ULP. */
EXT_INLINE vf vf_sin(vf x) {
  return vf_unless_far(vf_sin_turned(x, 0, (vi)x & (vi)vf_set1(-0.0f)), sinf, x);
}
EXT_INLINE vf vf_cos(vf x) {
  return vf_unless_far(vf_sin_turned(x, 1, vi_set1(0)), cosf, x);
}

/* tan(x), within 4 ULP: sin(r) / cos(r), after an odd number of quarter turns -cos(r) / sin(r). */
EXT_INLINE vf vf_tan(vf x) {
  vi turns;
  vf r = vf_quarter_turns(vf_abs(x), &turns), sine = vf_sin_near(r), cosine = vf_cos_near(r);
  vi odd = -(turns & 1);
  vf y = vf_blend(odd, sine, cosine) / vf_blend(odd, cosine, sine);
  return vf_unless_far(vf_turn(y, (odd ^ (vi)x) & (vi)vf_set1(-0.0f)), tanf, x);
}

/* atan(x), within 2 ULP.  z + z^3 P(z^2), P of degree 8 (2.6e-9), for z = |x| <= 1; beyond, pi/2 -
 * atan(1 / |x|), where pi/2 = 1.57079637 - 4.37113883e-8. */
EXT_INLINE vf vf_atan(vf x) {
  const vf one = vf_set1(1.0f);
  vf size = vf_abs(x);
  vm beyond = vm_lt(one, size);
  vf z = vf_select(beyond, one / size, size), s = z * z;
  vf p = vf_set1(-0.001782812295f);
  p = vf_fma(p, s, vf_set1(0.01086866017f));
  p = vf_fma(p, s, vf_set1(-0.03109696135f));
  p = vf_fma(p, s, vf_set1(0.05788138136f));
  p = vf_fma(p, s, vf_set1(-0.08399306238f));
  p = vf_fma(p, s, vf_set1(0.109508805f));
  p = vf_fma(p, s, vf_set1(-0.1426401585f));
  p = vf_fma(p, s, vf_set1(0.1999852955f));
  p = vf_fma(p, s, vf_set1(-0.3333329856f));
  vf y = vf_fma(p, s * z, vf_select(beyond, vf_set1(4.37113883e-8f), vf_zero())) + z;
  y = vf_select(beyond, vf_set1(1.57079637f) - y, y);
  return vf_turn(y, (vi)x & (vi)vf_set1(-0.0f));
}

/* asin(x) - x for |x| <= 1/2: x^3 P(x^2), P of degree 4 (4.9e-9 of asin). */
EXT_INLINE vf vf_asin_tail(vf x, vf square) {
  vf p = vf_set1(0.04215830564f);
  p = vf_fma(p, square, vf_set1(0.02418477833f));
  p = vf_fma(p, square, vf_set1(0.04546914995f));
  p = vf_fma(p, square, vf_set1(0.07495309412f));
  p = vf_fma(p, square, vf_set1(0.166667521f));
  return p * (square * x);
}

/* asin(x) and acos(x), within 2 ULP.  Beyond |x| = 1/2, asin(|x|) = pi/2 - acos(|x|) and acos(|x|)
 * = 2 asin(t), t = sqrt((1 - |x|) / 2), where 1 - |x| is exact. */
EXT_INLINE vf vf_asin(vf x) {
  const vf half = vf_set1(0.5f);
  vf size = vf_abs(x), rest = half - half * size;
  vm beyond = vm_lt(half, size);
  vf square = vf_select(beyond, rest, size * size);
  vf t = vf_select(beyond, vf_sqrt(rest), size), tail = vf_asin_tail(t, square);
  vf far = vf_fma(vf_set1(-2.0f), t + (tail + vf_set1(2.18556941e-8f)), vf_set1(1.57079637f));
  vf y = vf_select(beyond, far, t + tail);
  return vf_turn(y, (vi)x & (vi)vf_set1(-0.0f));
}
EXT_INLINE vf vf_acos(vf x) {
  const vf half = vf_set1(0.5f), two = vf_set1(2.0f);
  vf size = vf_abs(x), rest = half - half * size;
  vm beyond = vm_lt(half, size);
  vf square = vf_select(beyond, rest, size * size);
  vf t = vf_select(beyond, vf_sqrt(rest), size), tail = vf_asin_tail(t, square);
  vi sign = (vi)x & (vi)vf_set1(-0.0f);
  vf inner = vf_set1(1.57079637f) - vf_turn(t + tail, sign), outer = two * (t + tail);
  outer = vf_select(vm_lt(x, vf_zero()), vf_set1(3.14159274f) - outer, outer);
  return vf_select(beyond, outer, inner);
}

#include "hyperbolic.h"

/* f(x) of ext_activation.  With a constant kind only one case is left after inlining. */
EXT_INLINE vf vf_activate(ext_unary_kind kind, float alpha, float beta, vf x) {
  const vf half = vf_set1(0.5f), one = vf_set1(1.0f);
  switch (kind) {
    case EXT_IDENTITY: return x;
    case EXT_RELU: return vf_max(vf_zero(), x);
    case EXT_CLIP: return vf_clip(x, alpha, beta);
    case EXT_SIGMOID: return vf_sigmoid(x);
    case EXT_SILU: return x * vf_sigmoid(x);
    case EXT_HARD_SIGMOID: return vf_clip(vf_fma(vf_set1(alpha), x, vf_set1(beta)), 0.0f, 1.0f);
    case EXT_HARD_SWISH: return x * vf_clip(vf_fma(x, vf_set1(1.0f / 6.0f), half), 0.0f, 1.0f);
    case EXT_GELU: return half * x * (one + vf_erf(x * vf_set1(0.70710678f)));
    case EXT_GELU_TANH: {
      vf cubic = vf_fma(vf_set1(0.044715f) * x * x, x, x);
      return half * x * (one + vf_tanh(vf_set1(0.79788456f) * cubic));
    }
    case EXT_TANH: return vf_tanh(x);
    case EXT_LEAKY_RELU: return vf_select(vm_lt(x, vf_zero()), vf_set1(alpha) * x, x);
    case EXT_EXP: return vf_exp(x);
    case EXT_LOG: return vf_log(x);
    case EXT_ERF: return vf_erf(x);
    case EXT_SQRT: return vf_sqrt(x);
    case EXT_RSQRT: return one / vf_sqrt(x);
    case EXT_ABS: return vf_abs(x);
    case EXT_NEG: return -x;
    case EXT_ELU: return vf_select(vm_lt(x, vf_zero()), vf_set1(alpha) * vf_expm1_low(x), x);
    case EXT_SELU: {
      vf low = vf_set1(1.67326324f) * vf_expm1_low(x);
      return vf_set1(1.05070099f) * vf_select(vm_lt(x, vf_zero()), low, x);
    }
    case EXT_MISH: return vf_mish(x);
    case EXT_SOFTPLUS: return vf_softplus(x);
    case EXT_FLOOR: return vf_floor(x);
    case EXT_CEIL: return -vf_floor(-x);
    case EXT_ROUND: return vf_round(x);
    case EXT_SIN: return vf_sin(x);
    case EXT_COS: return vf_cos(x);
    case EXT_TAN: return vf_tan(x);
    case EXT_ATAN: return vf_atan(x);
    case EXT_ASIN: return vf_asin(x);
    case EXT_ACOS: return vf_acos(x);
    case EXT_ASINH: return vf_asinh(x);
    case EXT_ACOSH: return vf_acosh(x);
    case EXT_ATANH: return vf_atanh(x);
    case EXT_EXPM1: return vf_expm1(x);
    case EXT_LOG1P: return vf_log1p(x);
    case EXT_TRUNC: return vf_turn(vf_floor(vf_abs(x)), (vi)x & (vi)vf_set1(-0.0f));
    case EXT_SIGN: {
      vf zero = x + vf_zero(); /* of -0 as well; a NaN stays one */
      vf positive = vf_select(vm_lt(vf_zero(), x), one, zero);
      return vf_select(vm_lt(x, vf_zero()), -one, positive);
    }
    case EXT_RECIPROCAL: return one / x;
  }
  return x;
}

#endif /* EXT_SIMD_MATH_H_ */
