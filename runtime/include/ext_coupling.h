/*
 * ext_coupling.h - the C interface of probabilities of classes that are known by pairs; part of
 * ext_kernels.h, which includes it.
 */
#ifndef EXT_COUPLING_H_
#define EXT_COUPLING_H_

#include "ext_common.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[r][c]: the probabilities of the classes c that agree best with those of pairs, by the second
 * method of Wu, Lin and Weng (2004): rounds over the classes from 1 / classes on, 100 at most,
 * until no error is above 0.005 / classes.  This stop is part of the result.  x[r] has the
 * probability of the first class of each pair: (0, 1), (0, 2), ..., (1, 2), ...  x and y are dense,
 * of classes * (classes - 1) / 2 and of classes columns. */
typedef struct {
  int64_t rows, classes;
} ext_coupling_params;
int ext_coupling(const ext_coupling_params* p, const float* x, float* y);

#ifdef __cplusplus
}
#endif

#endif /* EXT_COUPLING_H_ */
