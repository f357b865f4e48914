/* Internal: what the convolutions share. */
#ifndef EXT_CONV2D_H_
#define EXT_CONV2D_H_

#include "../simd/simd.h"

/* The kernel rows [first, past) of an output row that lie inside the image, and the line of x, over
 * the whole batch, under the first of them. */
typedef struct {
  int64_t first, past, line;
} kernel_rows;

/* `index` counts the output rows of the whole batch. */
EXT_INLINE kernel_rows kernel_rows_inside(const ext_conv2d_params* p, int64_t index) {
  int64_t n = index / p->out_h, ih0 = index % p->out_h * p->stride_h - p->pad_top;
  kernel_rows r = {ih0 < 0 ? ceil_div(-ih0, p->dilation_h) : 0, 0, n * p->in_h};
  if (ih0 < p->in_h) r.past = i64_min(p->kernel_h, ceil_div(p->in_h - ih0, p->dilation_h));
  r.first = i64_min(r.first, r.past);
  if (r.first < r.past) r.line += ih0 + r.first * p->dilation_h;
  return r;
}

/* Whether every pixel of x is a row of A, where the convolution is a matrix product. */
EXT_INLINE int conv_is_point(const ext_conv2d_params* p) {
  return p->kernel_h == 1 && p->kernel_w == 1 && p->pad_top == 0 && p->pad_left == 0 &&
         p->stride_h == 1 && p->stride_w == 1 && p->out_h == p->in_h && p->out_w == p->in_w;
}

/* ext_conv2d without packing; groups divide the channels. */
int EXT_NAME(ext_conv2d_direct)(const ext_conv2d_params* p, const float* x, const float* w,
                                const ext_epilogue* e, float* y);

/* The same for images of few channels, not in groups and dense. */
int EXT_NAME(ext_conv2d_shallow)(const ext_conv2d_params* p, const float* x, const float* w,
                                 const ext_epilogue* e, float* y);

#endif /* EXT_CONV2D_H_ */
