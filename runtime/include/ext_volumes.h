/*
 * ext_volumes.h - the C interface of convolutions of volumes, and of transposed ones by place in a
 * stride; part of ext_kernels.h, which includes it.
 */
#ifndef EXT_VOLUMES_H_
#define EXT_VOLUMES_H_

#include "ext_common.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ext_conv2d with one axis more, depth, outside of height.  Images are dense [batch, depth, height,
 * width, channel]; w: per group the panels of B[kernel_d * kernel_h * kernel_w * in_c/groups]
 * [out_c/groups]. */
typedef struct {
  int64_t batch, in_d, in_h, in_w, in_c;
  int64_t out_d, out_h, out_w, out_c;
  int64_t kernel_d, kernel_h, kernel_w;
  int64_t stride_d, stride_h, stride_w;
  int64_t pad_front, pad_top, pad_left;
  int64_t dilation_d, dilation_h, dilation_w;
  int64_t groups; /* divides in_c and out_c */
} ext_conv3d_params;
int ext_conv3d(const ext_conv3d_params* p, const float* x, const float* w, const ext_epilogue* e,
               float* y);
/* groups == in_c == out_c.  w is [kernel_d][kernel_h][kernel_w][channels padded to EXT_PANEL]. */
int ext_depthwise_conv3d(const ext_conv3d_params* p, const float* x, const float* w,
                         const ext_epilogue* e, float* y);

/* Where results are that lie apart: that of image n, line h and pixel w is the pixel
 * [n / planes][first_d + n % planes * step_d][first_h + h * step_h][first_w + w * step_w]. */
typedef struct {
  int64_t depth, height, width; /* of all of y; the depth of images is 1 */
  int64_t first_d, first_h, first_w;
  int64_t step_d, step_h, step_w;
  int64_t planes; /* results along the depth */
} ext_apart;
/* ext_conv2d whose results, and the residual's elements, lie apart; reads the image in place.  The
 * padding may be below 0: windows then begin inside of the image.  Transposed convolutions are one
 * such for each place of a result in a stride. */
int ext_conv2d_apart(const ext_conv2d_params* p, const ext_apart* at, const float* x,
                     const float* w, const ext_epilogue* e, float* y);

#ifdef __cplusplus
}
#endif

#endif /* EXT_VOLUMES_H_ */
