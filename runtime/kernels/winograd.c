/*
 * y[n][oh][ow][o] = epilogue(sum_{kh,kw,c} x[n][oh + kh dh - top][ow + kw dw - left][c]
 *                                          * w[o][kh][kw][c])
 *
 * for 3 x 3 kernels of stride 1, of images in fp32: see winograd_blocks.h.
 */
enum { STORED = 0 };
#include "winograd_blocks.h"

int EXT_NAME(ext_conv2d_winograd)(const ext_conv2d_params* p, int32_t tile, const float* x,
                                  const float* w, const ext_epilogue* e, float* y) {
  const ext_storage s = {EXT_FLOAT32, EXT_FLOAT32, EXT_FLOAT32};
  return convolve(p, tile, &s, x, w, e, y);
}

EXT_DISPATCH(ext_conv2d_winograd,
             (const ext_conv2d_params* p, int32_t tile, const float* x, const float* w,
              const ext_epilogue* e, float* y),
             (p, tile, x, w, e, y))
