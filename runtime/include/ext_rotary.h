/*
 * ext_rotary.h - the C interface of rotary embeddings; part of ext_kernels.h, which includes it.
 */
#ifndef EXT_ROTARY_H_
#define EXT_ROTARY_H_

#include "ext_common.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of 2 half numbers, whose pairs (x[j], x[half + j]) are turned by an angle each:
 *
 *   y[..][j]        = x[..][j] cosine[..][j] - x[..][half + j] sine[..][j]
 *   y[..][half + j] = x[..][half + j] cosine[..][turned + j] + x[..][j] sine[..][turned + j]
 *
 * for j < half over the axes `shape`; stride 0 repeats a row, y is dense.  `turned` is half where
 * tables have the angles twice, else 0.  In place is allowed where x is dense. */
typedef struct {
  int32_t ndim; /* 1 .. EXT_MAX_DIMS: axes before the last one */
  int64_t shape[EXT_MAX_DIMS];
  int64_t x_strides[EXT_MAX_DIMS];
  int64_t cosine_strides[EXT_MAX_DIMS];
  int64_t sine_strides[EXT_MAX_DIMS];
  int64_t half, turned;
} ext_rotary_params;
int ext_rotary(const ext_rotary_params* p, const float* x, const float* cosine, const float* sine,
               float* y);

#ifdef __cplusplus
}
#endif

#endif /* EXT_ROTARY_H_ */
