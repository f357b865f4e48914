/*
 * Passes of a Fourier transform of VL signals side by side: element n is two vectors, x[n][0] the
 * real parts and x[n][1] the imaginary ones.
 *
 *   y[q + s (r p + k)] = w^(p k) sum_{j < r} x[q + s (p + m j)] w_r^(j k)
 *
 * for p < m, q < s and k < r, where r m elements are left to transform in each of s signals, w =
 * exp(-2 pi i / (r m)) and w_r = exp(-2 pi i / r). After the last pass elements are in their order
 * (Stockham's algorithm, see C. Van Loan, Computational Frameworks for the Fast Fourier Transform,
 * 1992, section 1.7).
 */
#ifndef EXT_FOURIER_PASSES_H_
#define EXT_FOURIER_PASSES_H_

#include "../simd/simd.h"

/* Floats of an element. */
enum { POINT = 2 * VL };

/* The radices of a number below 2^63 are fewer, each 2 or more. */
enum { MOST_RADICES = 63 };

typedef struct {
  vf re, im;
} vc;

/* A pass: its radix, the elements of a signal over it, the signals; and exp(-2 pi i n / length) for
 * all n < length, of which w is number `turn`. */
typedef struct {
  int64_t radix, m, s, turn, length;
  const float* waves;
} fourier_pass;

EXT_INLINE vc vc_load(const float* x) {
  return (vc){vf_load(x), vf_load(x + VL)};
}
EXT_INLINE void vc_store(float* y, vc a) {
  vf_store(y, a.re);
  vf_store(y + VL, a.im);
}
EXT_INLINE vc vc_add(vc a, vc b) {
  return (vc){a.re + b.re, a.im + b.im};
}
EXT_INLINE vc vc_sub(vc a, vc b) {
  return (vc){a.re - b.re, a.im - b.im};
}
EXT_INLINE vc vc_mul(vc a, vc w) {
  return (vc){vf_fma(a.re, w.re, -(a.im * w.im)), vf_fma(a.re, w.im, a.im * w.re)};
}
/* Wave number n < length. */
EXT_INLINE vc vc_wave(const fourier_pass* f, int64_t n) {
  return (vc){vf_set1(f->waves[2 * n]), vf_set1(f->waves[2 * n + 1])};
}

EXT_INLINE void halves(const int plain, const fourier_pass* f, int64_t p, const float* x,
                       float* y) {
  const int64_t s = f->s * POINT, far = f->m * s;
  const vc w = vc_wave(f, p * f->turn);
  for (int64_t q = 0; q < s; q += POINT) {
    vc a = vc_load(x + q), b = vc_load(x + q + far), apart = vc_sub(a, b);
    vc_store(y + q, vc_add(a, b));
    vc_store(y + q + s, plain ? apart : vc_mul(apart, w));
  }
}

EXT_INLINE void quarters(const int plain, const fourier_pass* f, int64_t p, const float* x,
                         float* y) {
  const int64_t s = f->s * POINT, far = f->m * s;
  const vc w1 = vc_wave(f, p * f->turn), w2 = vc_wave(f, 2 * p * f->turn);
  const vc w3 = vc_wave(f, 3 * p * f->turn);
  for (int64_t q = 0; q < s; q += POINT) {
    vc a = vc_load(x + q), b = vc_load(x + q + far);
    vc c = vc_load(x + q + 2 * far), d = vc_load(x + q + 3 * far);
    vc even = vc_add(a, c), other = vc_sub(a, c), odd = vc_add(b, d), apart = vc_sub(b, d);
    vc y1 = {other.re + apart.im, other.im - apart.re}; /* - i apart */
    vc y2 = vc_sub(even, odd), y3 = {other.re - apart.im, other.im + apart.re};
    vc_store(y + q, vc_add(even, odd));
    vc_store(y + q + s, plain ? y1 : vc_mul(y1, w1));
    vc_store(y + q + 2 * s, plain ? y2 : vc_mul(y2, w2));
    vc_store(y + q + 3 * s, plain ? y3 : vc_mul(y3, w3));
  }
}

/* An odd radix that is constant where it is called. Elements j and r - j have the same cosines and
 * opposite sines, and so have results k and r - k. */
EXT_INLINE void odd_parts(const int r, const int plain, const fourier_pass* f, int64_t p,
                          const float* x, float* y) {
  enum { MOST = 3 }; /* (7 - 1) / 2 */
  const int half = (r - 1) / 2;
  const int64_t s = f->s * POINT, far = f->m * s, step = f->length / r;
  vf cosine[MOST], sine[MOST];
  EXT_UNROLL
  for (int k = 0; k < half; k++) {
    cosine[k] = vf_set1(f->waves[2 * (k + 1) * step]);
    sine[k] = vf_set1(-f->waves[2 * (k + 1) * step + 1]);
  }
  for (int64_t q = 0; q < s; q += POINT) {
    const vc first = vc_load(x + q);
    vc sum[MOST], apart[MOST], all = first;
    EXT_UNROLL
    for (int j = 0; j < half; j++) {
      vc a = vc_load(x + q + (j + 1) * far), b = vc_load(x + q + (r - 1 - j) * far);
      sum[j] = vc_add(a, b), apart[j] = vc_sub(a, b);
      all = vc_add(all, sum[j]);
    }
    vc_store(y + q, all);
    EXT_UNROLL
    for (int k = 1; k <= half; k++) {
      vc even = first, odd = {vf_zero(), vf_zero()};
      EXT_UNROLL
      for (int j = 1; j <= half; j++) {
        const int turns = j * k % r, at = turns > half ? r - turns : turns;
        const vf c = cosine[at - 1], d = turns > half ? -sine[at - 1] : sine[at - 1];
        even = (vc){vf_fma(sum[j - 1].re, c, even.re), vf_fma(sum[j - 1].im, c, even.im)};
        odd = (vc){vf_fma(apart[j - 1].im, d, odd.re), vf_fma(-apart[j - 1].re, d, odd.im)};
      }
      vc one = vc_add(even, odd), other = vc_sub(even, odd);
      if (!plain) {
        one = vc_mul(one, vc_wave(f, k * p * f->turn));
        other = vc_mul(other, vc_wave(f, (r - k) * p * f->turn));
      }
      vc_store(y + q + k * s, one);
      vc_store(y + q + (r - k) * s, other);
    }
  }
}

/* Results k and r - k for two k, which are the same where one is left: with sums over all elements
 * times cosines and times sines, these are C - i S and C + i S. */
EXT_INLINE void two_results(const fourier_pass* f, int64_t p, const int64_t k[2], const float* x,
                            float* y) {
  const int64_t r = f->radix, s = f->s * POINT, far = f->m * s, step = f->length / r;
  const vc first = vc_load(x);
  vc even[2] = {first, first}, odd[2] = {{vf_zero(), vf_zero()}, {vf_zero(), vf_zero()}};
  int64_t turns[2] = {k[0], k[1]};
  for (int64_t j = 1; j < r; j++) {
    const vc a = vc_load(x + j * far);
    EXT_UNROLL
    for (int i = 0; i < 2; i++) {
      const vc w = vc_wave(f, turns[i] * step);
      even[i] = (vc){vf_fma(a.re, w.re, even[i].re), vf_fma(a.im, w.re, even[i].im)};
      odd[i] = (vc){vf_fma(a.im, w.im, odd[i].re), vf_fma(a.re, w.im, odd[i].im)};
      turns[i] += k[i];
      if (turns[i] >= r) turns[i] -= r;
    }
  }
  for (int i = 0; i < 2; i++) {
    vc one = {even[i].re - odd[i].re, even[i].im + odd[i].im};
    vc other = {even[i].re + odd[i].re, even[i].im - odd[i].im};
    vc_store(y + k[i] * s, vc_mul(one, vc_wave(f, k[i] * p * f->turn)));
    vc_store(y + (r - k[i]) * s, vc_mul(other, vc_wave(f, (r - k[i]) * p * f->turn)));
  }
}

/* Any odd radix: each result is a sum over all elements. */
static void any_parts(const fourier_pass* f, int64_t p, const float* x, float* y) {
  const int64_t r = f->radix, s = f->s * POINT, far = f->m * s;
  for (int64_t q = 0; q < s; q += POINT) {
    vc all = vc_load(x + q);
    for (int64_t j = 1; j < r; j++) all = vc_add(all, vc_load(x + q + j * far));
    vc_store(y + q, all);
    for (int64_t k = 1; 2 * k < r; k += 2)
      two_results(f, p, (int64_t[]){k, i64_min(k + 1, r / 2)}, x + q, y + q);
  }
}

EXT_INLINE void part(const int plain, const fourier_pass* f, int64_t p, const float* x, float* y) {
  switch (f->radix) {
    case 2: halves(plain, f, p, x, y); return;
    case 3: odd_parts(3, plain, f, p, x, y); return;
    case 4: quarters(plain, f, p, x, y); return;
    case 5: odd_parts(5, plain, f, p, x, y); return;
    case 7: odd_parts(7, plain, f, p, x, y); return;
    default: any_parts(f, p, x, y);
  }
}

static void run_pass(const fourier_pass* f, const float* x, float* y) {
  const int64_t s = f->s * POINT;
  part(1, f, 0, x, y);
  for (int64_t p = 1; p < f->m; p++) part(0, f, p, x + p * s, y + p * f->radix * s);
}

/* Radices whose product is n > 0; returns how many. */
static int fourier_radices(int64_t n, int64_t radices[MOST_RADICES]) {
  int count = 0;
  for (; n % 4 == 0; n /= 4) radices[count++] = 4;
  for (int64_t r = 2; n > 1; r++) {
    if (r * r > n) r = n;
    for (; n % r == 0; n /= r) radices[count++] = r;
  }
  return count;
}

#endif /* EXT_FOURIER_PASSES_H_ */
