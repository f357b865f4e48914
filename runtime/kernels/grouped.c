/*
 * y[n][oh][ow][o] = epilogue(sum_{kh,kw,c} x[n][oh sh + kh dh - top][ow sw + kw dw - left][g C + c]
 *                                          * w[kh][kw][c][o])
 *
 * of fp32, for output o of group g: see grouped_tile.h.
 */
enum { X_BF16 = 0 };
#include "grouped_tile.h"

int EXT_NAME(ext_grouped_conv2d)(const ext_conv2d_params* p, const float* x, const float* w,
                                 const ext_epilogue* e, float* y) {
  return run_grouped(p, x, w, e, y, 0);
}

EXT_DISPATCH(ext_grouped_conv2d,
             (const ext_conv2d_params* p, const float* x, const float* w, const ext_epilogue* e,
              float* y),
             (p, x, w, e, y))
