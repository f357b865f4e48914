/*
 * y[n][oh][ow][o] = epilogue(sum_{kh,kw,c} x[n][oh sh + kh dh - top][ow sw + kw dw - left][c]
 *                                          * w[o][kh][kw][c])
 *
 * of fp32 operands as sums of two bf16.
 */
#define EXT_PARTS 2
#include "bgemm_conv2d.h"

int EXT_NAME(ext_conv2d_bf16x3)(const ext_conv2d_params* p, const float* x, const uint16_t* w,
                                const ext_epilogue* e, float* y) {
  const ext_storage s = {EXT_FLOAT32, EXT_FLOAT32, EXT_FLOAT32};
  return convolve(p, &s, x, w, e, y);
}

EXT_DISPATCH(ext_conv2d_bf16x3,
             (const ext_conv2d_params* p, const float* x, const uint16_t* w, const ext_epilogue* e,
              float* y),
             (p, x, w, e, y))
