/*
 * y[n][od][oh][ow][c] = epilogue(sum_{kd,kh,kw}
 *     x[n][od sd + kd dd - front][oh sh + kh dh - top][ow sw + kw dw - left][c] * w[kd][kh][kw][c])
 *
 * of fp32: see depthwise_tile.h.
 */
enum { X_BF16 = 0, VOLUMES = 1 };
#include "depthwise_tile.h"

int EXT_NAME(ext_depthwise_conv3d)(const ext_conv3d_params* p, const float* x, const float* w,
                                   const ext_epilogue* e, float* y) {
  const ext_conv2d_params plane = {.batch = p->batch,
                                   .in_h = p->in_h,
                                   .in_w = p->in_w,
                                   .in_c = p->in_c,
                                   .out_h = p->out_h,
                                   .out_w = p->out_w,
                                   .out_c = p->out_c,
                                   .kernel_h = p->kernel_h,
                                   .kernel_w = p->kernel_w,
                                   .stride_h = p->stride_h,
                                   .stride_w = p->stride_w,
                                   .pad_top = p->pad_top,
                                   .pad_left = p->pad_left,
                                   .dilation_h = p->dilation_h,
                                   .dilation_w = p->dilation_w,
                                   .groups = p->groups,
                                   .x_stride = p->in_c,
                                   .y_stride = p->out_c};
  return run_depthwise(&plane, p, x, w, e, y, 0);
}

EXT_DISPATCH(ext_depthwise_conv3d,
             (const ext_conv3d_params* p, const float* x, const float* w, const ext_epilogue* e,
              float* y),
             (p, x, w, e, y))
