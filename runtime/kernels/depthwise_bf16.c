/*
 * y[n][oh][ow][c] = epilogue(sum_{kh,kw} x[n][oh sh + kh dh - top][ow sw + kw dw - left][c]
 *                                        * w[kh][kw][c])
 *
 * of x stored as bf16, y as bf16 or fp32: see depthwise_tile.h.
 */
enum { X_BF16 = 1, VOLUMES = 0 };
#include "depthwise_tile.h"

int EXT_NAME(ext_depthwise_conv2d_bf16)(const ext_conv2d_params* p, ext_dtype y_dtype,
                                        const uint16_t* x, const float* w, const ext_epilogue* e,
                                        void* y) {
  if (y_dtype != EXT_FLOAT32 && y_dtype != EXT_BFLOAT16) return EXT_ERR_ARGUMENT;
  return run_depthwise(p, NULL, x, w, e, y, y_dtype == EXT_BFLOAT16);
}

EXT_DISPATCH(ext_depthwise_conv2d_bf16,
             (const ext_conv2d_params* p, ext_dtype y_dtype, const uint16_t* x, const float* w,
              const ext_epilogue* e, void* y),
             (p, y_dtype, x, w, e, y))
