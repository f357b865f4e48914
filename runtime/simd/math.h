/*
 * math.h - exp, log, erf, tanh and kin on a vector.
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

/* exp(x), within 2 ULP.  x = n ln 2 + r, |r| <= ln(2)/2; exp(r) = 1 + r + r^2 P(r), P of degree 4
 * (3.1e-9).  Overflows to inf, underflows through the subnormals to 0. */
EXT_INLINE vf vf_exp(vf x) {
  const vf magic = vf_set1(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
  /* Beyond these bounds the result is inf or 0 whatever x is, and n stays small. */
  vf t = vf_max(vf_set1(-104.0f), vf_min(vf_set1(89.0f), x));
  vf n = vf_fma(t, vf_set1(1.44269504f), magic) - magic;
  vf r = vf_fma(n, vf_set1(-0.693359375f), t); /* ln 2 = 0.693359375 - 2.12194440e-4, first exact */
  r = vf_fma(n, vf_set1(2.12194440e-4f), r);
  vf p = vf_set1(0.0013814466f);
  p = vf_fma(p, r, vf_set1(0.0083687808f));
  p = vf_fma(p, r, vf_set1(0.0416683927f));
  p = vf_fma(p, r, vf_set1(0.1666651964f));
  p = vf_fma(p, r, vf_set1(0.4999999404f));
  p = vf_fma(p, r * r, r) + vf_set1(1.0f);
  return vf_pow2(p, n);
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

/* tanh(x), within 6 ULP.  x P(x^2) / Q(x^2), degrees 5 and 4 (1.3e-9), for |x| <= 9.02; beyond,
 * tanh rounds to 1. */
EXT_INLINE vf vf_tanh(vf x) {
  vf s = x * x;
  vf p = vf_set1(-1.2203389e-11f);
  p = vf_fma(p, s, vf_set1(3.0584914e-8f));
  p = vf_fma(p, s, vf_set1(2.8007413e-5f));
  p = vf_fma(p, s, vf_set1(0.0038683254f));
  p = vf_fma(p, s, vf_set1(0.1367991269f));
  p = vf_fma(p, s, vf_set1(1.0f));
  vf q = vf_set1(1.2873635e-6f);
  q = vf_fma(q, s, vf_set1(3.9386272e-4f));
  q = vf_fma(q, s, vf_set1(0.0272458307f));
  q = vf_fma(q, s, vf_set1(0.4701324403f));
  q = vf_fma(q, s, vf_set1(1.0f));
  return vf_saturate(x * p / q, x, 9.02f);
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
  return vf_set1(1.0f) / (vf_set1(1.0f) + vf_exp(-x));
}

EXT_INLINE vf vf_clip(vf x, float low, float high) {
  return vf_min(vf_set1(high), vf_max(vf_set1(low), x));
}

/* exp(x) - 1 for x <= 0, within 2 ULP: 2^n (exp(r) - 1) + (2^n - 1), where exp(r) - 1 = r + r^2
 * P(r) with r and P as for exp. */
EXT_INLINE vf vf_expm1(vf x) {
  const vf magic = vf_set1(12582912.0f), one = vf_set1(1.0f);
  vf t = vf_max(vf_set1(-104.0f), vf_min(vf_zero(), x));
  vf n = vf_fma(t, vf_set1(1.44269504f), magic) - magic;
  vf r = vf_fma(n, vf_set1(-0.693359375f), t);
  r = vf_fma(n, vf_set1(2.12194440e-4f), r);
  vf p = vf_set1(0.0013814466f);
  p = vf_fma(p, r, vf_set1(0.0083687808f));
  p = vf_fma(p, r, vf_set1(0.0416683927f));
  p = vf_fma(p, r, vf_set1(0.1666651964f));
  p = vf_fma(p, r, vf_set1(0.4999999404f));
  p = vf_fma(p, r * r, r);
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
    case EXT_ELU: return vf_select(vm_lt(x, vf_zero()), vf_set1(alpha) * vf_expm1(x), x);
    case EXT_SELU: {
      vf low = vf_set1(1.67326324f) * vf_expm1(x);
      return vf_set1(1.05070099f) * vf_select(vm_lt(x, vf_zero()), low, x);
    }
    case EXT_MISH: return vf_mish(x);
    case EXT_SOFTPLUS: return vf_softplus(x);
    case EXT_FLOOR: return vf_floor(x);
    case EXT_CEIL: return -vf_floor(-x);
    case EXT_ROUND: return vf_round(x);
    case EXT_SIN: return vf_map(sinf, x);
    case EXT_COS: return vf_map(cosf, x);
    case EXT_TAN: return vf_map(tanf, x);
    case EXT_ATAN: return vf_map(atanf, x);
    case EXT_ASIN: return vf_map(asinf, x);
    case EXT_ACOS: return vf_map(acosf, x);
    case EXT_ASINH: return vf_map(asinhf, x);
    case EXT_ACOSH: return vf_map(acoshf, x);
    case EXT_ATANH: return vf_map(atanhf, x);
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
