/*
 * ext_cblas.h - matrix products and convolutions on the sgemm of a BLAS with the C interface.
 *
 * Generated code includes this header where a model is compiled with the library "cblas".  The
 * functions compute what their namesakes in ext_kernels.h compute, with these differences:
 *   - weights are plain: a matrix with its two strides, or HWIO per group;
 *   - a residual may not be y: an epilogue comes after the product;
 *   - every size must fit an int, or the status is EXT_ERR_ARGUMENT.
 *
 * The threads are those of ext_parallel_for: each one computes a part of the result, with a call of
 * sgemm that uses one thread.  A second pool of threads would fight with the first over the cores.
 */
#ifndef EXT_CBLAS_H_
#define EXT_CBLAS_H_

#include "ext_kernels.h"

/* b is a plain strided matrix. */
int ext_cblas_matmul(const ext_matmul_params* p, const float* a, const float* b,
                     const ext_epilogue* e, float* y);

/* w: per group [kernel_h, kernel_w, in_c / groups, out_c / groups], groups one after the other. */
int ext_cblas_conv2d(const ext_conv2d_params* p, const float* x, const float* w,
                     const ext_epilogue* e, float* y);

/* Tells the BLAS to use one thread per call, whatever `threads` is. */
void ext_cblas_set_threads(int threads);
/* Threads of the pool times those that each call of the BLAS will use. */
int ext_cblas_get_threads(void);

#endif /* EXT_CBLAS_H_ */
