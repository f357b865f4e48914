/*
 * y[n][oh][ow][o] = epilogue(sum_{kh,kw,c} x[n][oh sh + kh dh - top][ow sw + kw dw - left][c]
 *                                          * w[o][kh][kw][c])
 *
 * of bf16 operands.
 */
#include "bgemm_conv2d.h"

int EXT_NAME(ext_conv2d_bf16)(const ext_conv2d_params* p, const ext_storage* storage, const void* x,
                              const uint16_t* w, const ext_epilogue* e, void* y) {
  return convolve(p, storage, x, w, e, y);
}

int EXT_NAME(ext_conv2d_bf16_prologue)(const ext_conv2d_params* p, const ext_prologue* before,
                                       const ext_storage* storage, const void* x, const uint16_t* w,
                                       const ext_epilogue* e, void* y) {
  if (!conv_is_point(p) || p->groups != 1 || check_storage(storage, e)) return EXT_ERR_ARGUMENT;
  ext_bgemm g = bgemm_of(p, storage, x, w, e, y);
  g.prologue = before;
  g.image_rows = i64_max(1, p->out_h * p->out_w);
  return EXT_NAME(ext_bgemm_run)(&g);
}

EXT_DISPATCH(ext_conv2d_bf16,
             (const ext_conv2d_params* p, const ext_storage* s, const void* x, const uint16_t* w,
              const ext_epilogue* e, void* y),
             (p, s, x, w, e, y))
EXT_DISPATCH(ext_conv2d_bf16_prologue,
             (const ext_conv2d_params* p, const ext_prologue* before, const ext_storage* s,
              const void* x, const uint16_t* w, const ext_epilogue* e, void* y),
             (p, before, s, x, w, e, y))
