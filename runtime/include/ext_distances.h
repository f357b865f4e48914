/*
 * ext_distances.h - the C interface of distances; part of ext_kernels.h, which includes it.
 */
#ifndef EXT_DISTANCES_H_
#define EXT_DISTANCES_H_

#include "ext_common.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[r][c] = sum over k of (a[r][k] - b[k][c])^2, or of |a[r][k] - b[k][c]| with `absolute`; a is
 * dense [rows, depth], b [depth, columns], y [rows, columns]. */
typedef struct {
  int64_t rows, depth, columns;
  int32_t absolute;
} ext_distances_params;
int ext_distances(const ext_distances_params* p, const float* a, const float* b, float* y);

#ifdef __cplusplus
}
#endif

#endif /* EXT_DISTANCES_H_ */
