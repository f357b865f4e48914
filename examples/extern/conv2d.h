/* A convolution of channels-last images, to be called from TVM. */
#ifndef CONV2D_H_
#define CONV2D_H_

#include <stdint.h>

/* y[n][i][j][o] = sum over u, v, c of
 *     x[n][i * stride_h + u - pad_top][j * stride_w + v - pad_left][c] * w[u][v][c][o],
 * x being 0 outside of the image.  Returns 1 for a stride of 0, else 0.
 *
 * byoc: x=input.NHWC[n,h,w,c] weight=weight.HWIO[kh,kw,c,o] y=output.NHWC[n,oh,ow,o]
 *       n,h,w,c,kh,kw,o=size
 *       stride_h=attr.strides[0] stride_w=attr.strides[1]
 *       pad_top=attr.padding[0] pad_left=attr.padding[1]
 *       pad_bottom=attr.padding[2] pad_right=attr.padding[3]
 *       oh=(h+pad_top+pad_bottom-kh)//stride_h+1
 *       ow=(w+pad_left+pad_right-kw)//stride_w+1
 *       op=conv2d
 */
int my_conv2d(const float* x, const float* weight, float* y, int64_t n, int64_t h, int64_t w,
              int64_t c, int64_t kh, int64_t kw, int64_t o, int64_t oh, int64_t ow,
              int64_t stride_h, int64_t stride_w, int64_t pad_top, int64_t pad_left);

#endif
