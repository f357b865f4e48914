/*
 * y[n][oh][ow][o] = epilogue(sum_{kh,kw,c} x[n][oh sh + kh dh - top][ow sw + kw dw - left][g C + c]
 *                                          * w[kh][kw][c][o])
 *
 * of x stored as bf16, y as bf16 or fp32, for output o of group g: see grouped_tile.h.
 */
enum { X_BF16 = 1 };
#include "grouped_tile.h"

int EXT_NAME(ext_grouped_conv2d_bf16)(const ext_conv2d_params* p, ext_dtype y_dtype,
                                      const uint16_t* x, const float* w, const ext_epilogue* e,
                                      void* y) {
  if (y_dtype != EXT_FLOAT32 && y_dtype != EXT_BFLOAT16) return EXT_ERR_ARGUMENT;
  return run_grouped(p, x, w, e, y, y_dtype == EXT_BFLOAT16);
}

EXT_DISPATCH(ext_grouped_conv2d_bf16,
             (const ext_conv2d_params* p, ext_dtype y_dtype, const uint16_t* x, const float* w,
              const ext_epilogue* e, void* y),
             (p, y_dtype, x, w, e, y))
