/*
 * y[n][oh][ow][o] = epilogue(sum_{kh,kw,c} x[n][oh + kh dh - top][ow + kw dw - left][c]
 *                                          * w[o][kh][kw][c])
 *
 * for 3 x 3 kernels of stride 1, computed in fp32, of images that are stored as bf16 or fp32, each:
 * see winograd_blocks.h.
 */
enum { STORED = 1 };
#include "winograd_blocks.h"

int EXT_NAME(ext_conv2d_winograd_bf16)(const ext_conv2d_params* p, int32_t tile,
                                       const ext_storage* s, const void* x, const float* w,
                                       const ext_epilogue* e, void* y) {
  const ext_dtype dtypes[] = {s->x, s->y, e && e->residual ? s->residual : s->y};
  for (int i = 0; i < 3; i++)
    if (dtypes[i] != EXT_FLOAT32 && dtypes[i] != EXT_BFLOAT16) return EXT_ERR_ARGUMENT;
  return convolve(p, tile, s, x, w, e, y);
}

EXT_DISPATCH(ext_conv2d_winograd_bf16,
             (const ext_conv2d_params* p, int32_t tile, const ext_storage* s, const void* x,
              const float* w, const ext_epilogue* e, void* y),
             (p, tile, s, x, w, e, y))
