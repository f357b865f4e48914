/*
 * ext_fourier.h - the C interface of Fourier transforms; part of ext_kernels.h, which includes it.
 */
#ifndef EXT_FOURIER_H_
#define EXT_FOURIER_H_

#include "ext_common.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is transformed into what; complex numbers are pairs of floats. */
typedef enum {
  EXT_FOURIER_REAL,    /* real numbers into complex ones */
  EXT_FOURIER_COMPLEX, /* complex numbers into complex ones */
  EXT_FOURIER_HALF     /* the first length / 2 + 1 of the transform of real numbers into these */
} ext_fourier_kind;

/* y[o][f][k][i] = length^(-norm / 2) sum_n x[o][f][n][i] window[n] exp(-2 pi i n k / length), for
 * k < count, or with exp(+ ...) where it is `inverse`, as EXT_FOURIER_HALF has to be.
 *
 * x[o][f] begins at x + o x_outer + f x_frame (in floats, so that frames may overlap), and is dense
 * [given, inner] from there; of `given` elements the first `length` are read (of a half spectrum
 * length / 2 + 1), and those that are not there are 0.  y is dense [outer, frames, count, inner].
 * Of a half spectrum imaginary parts of element 0, and of element length / 2 where length is even,
 * are not read, and count = length.  window has length floats, or is NULL.  waves has
 * exp(-2 pi i n / length) for all n < length; where it is NULL each call computes them.
 */
typedef struct {
  int64_t outer, frames, inner, x_outer, x_frame, given, length, count;
  ext_fourier_kind kind;
  int32_t inverse, norm;
} ext_fourier_params;
int ext_fourier(const ext_fourier_params* p, const float* x, const float* waves,
                const float* window, float* y);

#ifdef __cplusplus
}
#endif

#endif /* EXT_FOURIER_H_ */
