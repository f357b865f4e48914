/*
 * winograd_transform.h - the one-dimensional transforms of Winograd's F(m, 3), on vectors.
 *
 * y = A^T [(G g) . (B^T d)] gives m outputs of a 3-tap filter g from m + 2 inputs d with m + 2
 * products (S. Winograd, 1980; A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural
 * Networks, 2016).  The matrices follow from interpolation at the points 0, +-a, +-b, ... and
 * infinity.  Row 0 of B^T holds the coefficients of the product of (x^2 - a^2)(x^2 - b^2)...; the
 * row of a point p those of M(x) / (x - p), with M(x) = x (x^2 - a^2)(x^2 - b^2)...; the last row
 * those of M.  Column p of A^T is 1, p, p^2, ...; all divisions are in G, which the compiler
 * applies to the weights in double precision (codegen_cc/libraries/builtin/winograd.py has the same
 * points).
 *
 * Points: F(2, 3) +-1.  F(4, 3) +-3/4, +-3/2, whose rounding errors are half of those of the usual
 * +-1, +-2.  F(6, 3) +-1, +-2, +-1/2.
 */
#ifndef EXT_WINOGRAD_TRANSFORM_H_
#define EXT_WINOGRAD_TRANSFORM_H_

#include "../simd/simd.h"

enum { WINOGRAD_MAX_TILE = 8 };

/* c a + b for a scalar c. */
EXT_INLINE vf scaled(float c, vf a, vf b) {
  return vf_fma(vf_set1(c), a, b);
}

/* t = B^T d; both may be the same. `tile` is a constant: 4, 6 or 8. */
EXT_INLINE void winograd_input(const int tile, const vf d[], vf t[]) {
  if (tile == 4) {
    vf d1 = d[1], d2 = d[2], t0 = d2 - d[0], t3 = d[3] - d1;
    t[0] = t0;
    t[1] = d2 + d1;
    t[2] = d2 - d1;
    t[3] = t3;
  } else if (tile == 6) {
    const float a = 0.75f, b = 1.5f, aa = 0.5625f, bb = 2.25f;
    vf t0 = scaled(aa * bb, d[0], scaled(-(aa + bb), d[2], d[4]));
    vf even1 = scaled(-bb, d[2], d[4]), odd1 = vf_set1(a) * scaled(-bb, d[1], d[3]);
    vf even2 = scaled(-aa, d[2], d[4]), odd2 = vf_set1(b) * scaled(-aa, d[1], d[3]);
    vf t5 = scaled(aa * bb, d[1], scaled(-(aa + bb), d[3], d[5]));
    t[0] = t0;
    t[1] = even1 + odd1;
    t[2] = even1 - odd1;
    t[3] = even2 + odd2;
    t[4] = even2 - odd2;
    t[5] = t5;
  } else {
    /* aa, bb, cc = 1, 4, 1/4: sum 21/4, sum of products of two 21/4, product 1. */
    vf t0 = scaled(5.25f, d[2] - d[4], d[6] - d[0]);
    vf even1 = scaled(-4.25f, d[4], d[2] + d[6]), odd1 = scaled(-4.25f, d[3], d[1] + d[5]);
    vf even2 = scaled(0.25f, d[2], scaled(-1.25f, d[4], d[6]));
    vf odd2 = vf_set1(2.0f) * scaled(0.25f, d[1], scaled(-1.25f, d[3], d[5]));
    vf even3 = scaled(4.0f, d[2], scaled(-5.0f, d[4], d[6]));
    vf odd3 = vf_set1(0.5f) * scaled(4.0f, d[1], scaled(-5.0f, d[3], d[5]));
    vf t7 = scaled(5.25f, d[3] - d[5], d[7] - d[1]);
    t[0] = t0;
    t[1] = even1 + odd1;
    t[2] = even1 - odd1;
    t[3] = even2 + odd2;
    t[4] = even2 - odd2;
    t[5] = even3 + odd3;
    t[6] = even3 - odd3;
    t[7] = t7;
  }
}

/* y = A^T s: tile - 2 outputs. */
EXT_INLINE void winograd_output(const int tile, const vf s[], vf y[]) {
  vf sum1 = s[1] + s[2], difference1 = s[1] - s[2];
  if (tile == 4) {
    y[0] = s[0] + sum1;
    y[1] = difference1 + s[3];
  } else if (tile == 6) {
    const float a = 0.75f, b = 1.5f;
    vf sum2 = s[3] + s[4], difference2 = s[3] - s[4];
    y[0] = s[0] + sum1 + sum2;
    y[1] = scaled(a, difference1, vf_set1(b) * difference2);
    y[2] = scaled(a * a, sum1, vf_set1(b * b) * sum2);
    y[3] = scaled(a * a * a, difference1, scaled(b * b * b, difference2, s[5]));
  } else {
    vf sum2 = s[3] + s[4], difference2 = s[3] - s[4];
    vf sum3 = s[5] + s[6], difference3 = s[5] - s[6];
    y[0] = s[0] + sum1 + (sum2 + sum3);
    y[1] = scaled(2.0f, difference2, scaled(0.5f, difference3, difference1));
    y[2] = scaled(4.0f, sum2, scaled(0.25f, sum3, sum1));
    y[3] = scaled(8.0f, difference2, scaled(0.125f, difference3, difference1));
    y[4] = scaled(16.0f, sum2, scaled(0.0625f, sum3, sum1));
    y[5] = scaled(32.0f, difference2, scaled(0.03125f, difference3, difference1)) + s[7];
  }
}

#endif /* EXT_WINOGRAD_TRANSFORM_H_ */
