/*
 * y[n][oh][ow][c] = epilogue(sum_{kh,kw} x[n][oh sh + kh dh - top][ow sw + kw dw - left][c]
 *                                        * w[kh][kw][c])
 *
 * of fp32: see depthwise_tile.h.
 */
enum { X_BF16 = 0, VOLUMES = 0 };
#include "depthwise_tile.h"

int EXT_NAME(ext_depthwise_conv2d)(const ext_conv2d_params* p, const float* x, const float* w,
                                   const ext_epilogue* e, float* y) {
  return run_depthwise(p, NULL, x, w, e, y, 0);
}

EXT_DISPATCH(ext_depthwise_conv2d,
             (const ext_conv2d_params* p, const float* x, const float* w, const ext_epilogue* e,
              float* y),
             (p, x, w, e, y))
