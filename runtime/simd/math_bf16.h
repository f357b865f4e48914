/*
 * math_bf16.h - functions whose results are rounded to bf16 at once: what is lost before that is
 * less than a quarter of half a unit of bf16's last place, or 2e-7.  They take half the time of
 * those in math.h.
 *
 * All are x or 1 times 1 / (1 + 2^u): so are sigmoid and silu, GELU by tanh as 1 + tanh(v) = 2 / (1
 * + exp(-2 v)), and GELU by erf with u = -log2(p / (1 - p)), p = (1 + erf(x / sqrt(2))) / 2, an odd
 * function of x.  Errors relative to a small 2^-u stay relative to the result.
 */
#ifndef EXT_MATH_BF16_H_
#define EXT_MATH_BF16_H_

#include "bf16.h"

#if !defined(EXT_ROUGH_FORMS)
/* 2^x = 2^n 2^r, |r| <= 1/2; 2^r is a polynomial of degree 3 (7.5e-5).  0 and infinity far out. */
EXT_INLINE vf vf_exp2_rough(vf x) {
  const vf magic = vf_set1(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
  vf t = vf_max(vf_set1(-150.0f), vf_min(vf_set1(150.0f), x));
  vf n = (t + magic) - magic, r = t - n;
  vf p = vf_set1(0.05517167f);
  p = vf_fma(p, r, vf_set1(0.24261114f));
  p = vf_fma(p, r, vf_set1(0.69326099f));
  p = vf_fma(p, r, vf_set1(0.99992807f));
  return vf_pow2(p, n);
}
EXT_INLINE vf vf_inverse_rough(vf x) {
  return vf_set1(1.0f) / x;
}
#endif

/* 1 / (1 + 2^u), within 2^-12.9; 0 and 1 at the infinities. */
EXT_INLINE vf vf_logistic_bf16(vf u) {
  return vf_inverse_rough(vf_set1(1.0f) + vf_exp2_rough(u));
}

/* x / 2 (1 + erf(x / sqrt(2))): u / x is a polynomial of degree 4 in x^2 (4e-4 of the result, or
 * 2e-7).  Its highest coefficient lets u become infinite where x is. */
EXT_INLINE vf vf_gelu_bf16(vf x) {
  vf s = x * x;
  vf p = vf_set1(-8.991371e-7f);
  p = vf_fma(p, s, vf_set1(2.3893719e-5f));
  p = vf_fma(p, s, vf_set1(9.2824575e-4f));
  p = vf_fma(p, s, vf_set1(-0.1070114408f));
  p = vf_fma(p, s, vf_set1(-2.300594590f));
  return x * vf_logistic_bf16(x * p);
}

/* Sigmoid, SiLU and GELU in both forms. */
EXT_INLINE vf vf_activate_bf16(const ext_unary_kind kind, vf x) {
  const vf minus_log2e = vf_set1(-1.44269504f);
  switch (kind) {
    case EXT_GELU: return vf_gelu_bf16(x);
    case EXT_GELU_TANH: { /* -2 sqrt(2 / pi) log2(e) (x + 0.044715 x^3) */
      vf p = vf_fma(vf_set1(-0.10294324f), x * x, vf_set1(-2.30220819f));
      return x * vf_logistic_bf16(x * p);
    }
    case EXT_SILU: return x * vf_logistic_bf16(minus_log2e * x);
    default: return vf_logistic_bf16(minus_log2e * x);
  }
}

#endif /* EXT_MATH_BF16_H_ */
