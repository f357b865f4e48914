/* Internal: the ways to a convolution that ext_conv2d chooses from. */
#ifndef EXT_CONV2D_H_
#define EXT_CONV2D_H_

#include "gemm.h"

/* ext_conv2d without packing; groups divide the channels. */
int EXT_NAME(ext_conv2d_direct)(const ext_conv2d_params* p, const float* x, const float* w,
                                const ext_epilogue* e, float* y);

#endif /* EXT_CONV2D_H_ */
