/*
 * y[n][od][oh][ow][o] = epilogue(sum_{kd,kh,kw,c}
 *     x[n][od sd + kd dd - front][oh sh + kh dh - top][ow sw + kw dw - left][c]
 *     * w[o][kd][kh][kw][c])
 *
 * as a matrix product, one per group, whose rows are the output pixels and whose K is (kd, kh, kw,
 * c); packing a block of A reads the image, tap by tap.
 */
#include "gemm.h"

typedef struct {
  const ext_conv3d_params* p;
  const float* x;
  int64_t channels; /* of one group */
} volume_source;

/* A tap's pixel for the window that begins at (d, h, w), or NULL outside of the image. */
EXT_INLINE const float* tap_pixel(const volume_source* s, const float* image, const int64_t* corner,
                                  int64_t tap) {
  const ext_conv3d_params* p = s->p;
  int64_t d = corner[0] + tap / (p->kernel_h * p->kernel_w) * p->dilation_d;
  int64_t h = corner[1] + tap / p->kernel_w % p->kernel_h * p->dilation_h;
  int64_t w = corner[2] + tap % p->kernel_w * p->dilation_w;
  if (d < 0 || d >= p->in_d || h < 0 || h >= p->in_h || w < 0 || w >= p->in_w) return NULL;
  return image + ((d * p->in_h + h) * p->in_w + w) * p->in_c;
}

static void pack_pixels(const void* source, int64_t offset, int64_t row, int64_t rows, int64_t k0,
                        int64_t kc, float* dst) {
  const volume_source* s = source;
  const ext_conv3d_params* p = s->p;
  for (int64_t r = row; r < row + rows; r++, dst += A_STRIDE) {
    int64_t rest = r / p->out_w / p->out_h;
    int64_t corner[3] = {rest % p->out_d * p->stride_d - p->pad_front,
                         r / p->out_w % p->out_h * p->stride_h - p->pad_top,
                         r % p->out_w * p->stride_w - p->pad_left};
    const float* image = s->x + offset + rest / p->out_d * p->in_d * p->in_h * p->in_w * p->in_c;
    for (int64_t k = k0; k < k0 + kc;) {
      int64_t from = k % s->channels, count = i64_min(s->channels - from, k0 + kc - k);
      const float* pixel = tap_pixel(s, image, corner, k / s->channels);
      if (pixel)
        copy_run(dst + (k - k0), pixel + from, count);
      else
        zero_run(dst + (k - k0), count);
      k += count;
    }
  }
}

int EXT_NAME(ext_conv3d)(const ext_conv3d_params* p, const float* x, const float* w,
                         const ext_epilogue* e, float* y) {
  if (p->groups < 1 || p->in_c % p->groups || p->out_c % p->groups) return EXT_ERR_ARGUMENT;
  int64_t outputs = p->out_c / p->groups;
  volume_source s = {.p = p, .x = x, .channels = p->in_c / p->groups};
  ext_gemm g = {.m = p->batch * p->out_d * p->out_h * p->out_w,
                .n = outputs,
                .k = p->kernel_d * p->kernel_h * p->kernel_w * s.channels,
                .pack = pack_pixels,
                .source = &s,
                .panels = w,
                .y = y,
                .y_row = p->out_c,
                .epilogue = e ? *e : (ext_epilogue){0},
                .batch_ndim = p->groups > 1};
  g.batch[0] = p->groups;
  g.a_batch[0] = s.channels;
  g.b_batch[0] = ceil_div(outputs, EXT_PANEL) * EXT_PANEL * g.k;
  g.y_batch[0] = g.residual_batch[0] = g.bias_batch[0] = outputs;
  return EXT_NAME(ext_gemm_run)(&g);
}

EXT_DISPATCH(ext_conv3d,
             (const ext_conv3d_params* p, const float* x, const float* w, const ext_epilogue* e,
              float* y),
             (p, x, w, e, y))
