/*
 * hyperbolic.h - exp(x) - 1, log(1 + x) and the inverses of hyperbolic functions on a vector; a
 * part of math.h.
 */
#ifndef EXT_HYPERBOLIC_H_
#define EXT_HYPERBOLIC_H_

/* exp(x) - 1, within 2 ULP: 2^n p + (2^n - 1); from x = 20 on the 1 is below half a bit. */
EXT_INLINE vf vf_expm1(vf x) {
  const vf one = vf_set1(1.0f), far = vf_set1(20.0f);
  vf n, p = vf_exp_parts(vf_max(vf_set1(-104.0f), vf_min(vf_set1(89.0f), x)), &n);
  vf scale = vf_pow2(one, vf_min(vf_set1(32.0f), n));
  vf y = vf_select(vm_lt(far, x), vf_pow2(one + p, n), vf_fma(scale, p, scale - one));
  return vf_select(vm_lt(vf_abs(x), vf_set1(1e-8f)), x, y); /* -0 is its own */
}

/* log(1 + x + low), low less than a bit of x, within 2 ULP.  1 + x rounds to w; the rest over w
 * makes up for that.  A number that is small enough is its own logarithm, -0 as well; -1 and
 * infinity have no rest. */
EXT_INLINE vf vf_log1p_of_sum(vf x, vf low) {
  const vf one = vf_set1(1.0f);
  vf w = one + x, log = vf_log(w), rest = (x - (w - one) + low) / w;
  vm usual = vm_lt(vf_abs(log), vf_set1(1000.0f));
  return vf_select(vm_lt(vf_abs(x), vf_set1(1e-8f)), x, vf_select(usual, log + rest, log));
}
EXT_INLINE vf vf_log1p(vf x) {
  return vf_log1p_of_sum(x, vf_zero());
}

/* log1p(a + b) for a larger a, and for a beyond 10^9 log(a) + ln 2. */
EXT_INLINE vf vf_log_of_twice(vf a, vf b) {
  vf sum = a + b, low = b - (sum - a);
  vm far = vm_lt(vf_set1(1e9f), a);
  vf y = vf_log1p_of_sum(vf_select(far, a, sum), vf_select(far, vf_zero(), low));
  return vf_select(far, y + vf_set1(0.69314718f), y);
}

/* asinh(x), within 2 ULP: log(1 + |x| + x^2 / (1 + sqrt(1 + x^2))). */
EXT_INLINE vf vf_asinh(vf x) {
  const vf one = vf_set1(1.0f);
  vf size = vf_abs(x), square = size * size;
  vf y = vf_log_of_twice(size, square / (one + vf_sqrt(one + square)));
  return vf_turn(y, (vi)x & (vi)vf_set1(-0.0f));
}

/* acosh(x), within 2 ULP: log(1 + s + t), s = sqrt(2 t + t^2), t = x - 1.  NaN below 1.  What the
 * sum under the root lost goes with t. */
EXT_INLINE vf vf_acosh(vf x) {
  const vf one = vf_set1(1.0f);
  vf t = x - one, square = t * t, sum = (t + t) + square, s = vf_sqrt(sum);
  vf lost = square - (sum - (t + t)), small = vf_set1(1e-20f);
  lost = vf_select(vm_lt(t, one), vf_set1(0.5f) * lost / vf_max(small, s), vf_zero());
  vm far = vm_lt(vf_set1(1e9f), x);
  vf y = vf_log_of_twice(vf_select(far, x, s), t + lost);
  return vf_select(vm_lt(x, one), vf_set1(__builtin_nanf("")), y);
}

/* atanh(x), within 2 ULP: log(1 + 2 |x| + 2 x^2 / (1 - |x|)) / 2.  NaN beyond 1. */
EXT_INLINE vf vf_atanh(vf x) {
  const vf one = vf_set1(1.0f), half = vf_set1(0.5f);
  vf size = vf_abs(x), twice = size + size, more = twice * size / (one - size);
  vf sum = twice + more, y = half * vf_log1p_of_sum(sum, more - (sum - twice));
  y = vf_select(vm_lt(size, vf_set1(1e-4f)), size, y); /* half of a subnormal rounds */
  y = vf_select(vm_lt(one, size), vf_set1(__builtin_nanf("")), y);
  return vf_turn(y, (vi)x & (vi)vf_set1(-0.0f));
}

#endif /* EXT_HYPERBOLIC_H_ */
