/*
 * y[n][oh][ow][o] = requantise(sum_{kh,kw,c} (x[n][oh sh + kh dh - top][ow sw + kw dw - left][c]
 *                                             - x_zero) * w[o][kh][kw][c])
 *
 * as a matrix product, one per group: rows are the output pixels of the whole batch, K is
 * (kh, kw, c).  Where every pixel is a row, x itself is A; else patches are packed, block by block.
 */
#include "conv2d.h"
#include "qgemm.h"

typedef struct {
  const ext_conv2d_params* p;
  const uint8_t* x;
  ext_dtype x_dtype;
  int32_t x_zero;
  int64_t channels; /* of one group */
  /* A row of taps falls into segments that are contiguous in x: all of it where the channels of
   * neighbouring pixels adjoin, else one tap each. */
  int64_t segment_taps;
} qconv_source;

/* Packs a segment whose first tap is column iw0 of image row `line`. */
EXT_INLINE void pack_segment(const qconv_source* s, const uint8_t* line, int64_t iw0, qa* dst) {
  const ext_conv2d_params* p = s->p;
  const int64_t taps = s->segment_taps, channels = s->channels;
  int64_t first = i64_min(i64_max(0, -iw0), taps);
  int64_t past = i64_max(i64_min(taps, p->in_w - iw0), first);
  qa_fill(s->x_dtype, dst, s->x_zero, first * channels);
  if (past > first)
    qa_run(s->x_dtype, dst + first * channels, line + (iw0 + first) * p->x_stride,
           (past - first) * channels);
  qa_fill(s->x_dtype, dst + past * channels, s->x_zero, (taps - past) * channels);
}

/* Packs the window that begins at (ih, iw) of `image`. */
EXT_INLINE void pack_pixel(const qconv_source* s, const uint8_t* image, int64_t ih, int64_t iw,
                           qa* dst) {
  const ext_conv2d_params* p = s->p;
  const int64_t line_step = p->in_w * p->x_stride, segment = s->segment_taps * s->channels;
  for (int64_t kh = 0; kh < p->kernel_h; kh++) {
    int64_t row = ih + kh * p->dilation_h;
    if (row < 0 || row >= p->in_h) {
      qa_fill(s->x_dtype, dst, s->x_zero, p->kernel_w * s->channels);
      dst += p->kernel_w * s->channels;
      continue;
    }
    for (int64_t kw = 0; kw < p->kernel_w; kw += s->segment_taps, dst += segment)
      pack_segment(s, image + row * line_step, iw + kw * p->dilation_w, dst);
  }
}

static void pack_pixels(const void* source, int64_t offset, int64_t row, int64_t rows, qa* dst,
                        int64_t stride) {
  const qconv_source* s = source;
  const ext_conv2d_params* p = s->p;
  int64_t ow = row % p->out_w, oh = row / p->out_w % p->out_h, n = row / (p->out_w * p->out_h);
  for (int64_t r = 0; r < rows; r++, dst += stride) {
    const uint8_t* image = s->x + offset + n * p->in_h * p->in_w * p->x_stride;
    pack_pixel(s, image, oh * p->stride_h - p->pad_top, ow * p->stride_w - p->pad_left, dst);
    if (++ow == p->out_w) {
      ow = 0;
      if (++oh == p->out_h) oh = 0, n++;
    }
  }
}

int EXT_NAME(ext_qconv2d)(const ext_conv2d_params* p, ext_dtype x_dtype, int32_t x_zero,
                          const void* x, const int8_t* w, const ext_requantise* e, void* y) {
  if (p->groups < 1 || p->in_c % p->groups || p->out_c % p->groups) return EXT_ERR_ARGUMENT;
  const int64_t channels = p->in_c / p->groups;
  int adjoin = p->dilation_w == 1 && p->x_stride == channels;
  qconv_source s = {p, x, x_dtype, x_zero, channels, adjoin ? p->kernel_w : 1};
  ext_qgemm g = {.m = p->batch * p->out_h * p->out_w,
                 .n = p->out_c / p->groups,
                 .k = p->kernel_h * p->kernel_w * channels,
                 .pack = conv_is_point(p) ? NULL : pack_pixels,
                 .source = &s,
                 .a = x,
                 .a_row = p->x_stride,
                 .panels = w,
                 .y = y,
                 .y_row = p->y_stride,
                 .batch_ndim = p->groups > 1};
  g.batch[0] = p->groups;
  g.a_batch[0] = channels;
  g.b_batch[0] = ceil_div(g.n, EXT_PANEL) * EXT_PANEL * ceil_div(g.k, K_GROUP) * K_GROUP;
  g.y_batch[0] = g.residual_batch[0] = g.column_batch[0] = g.n;
  int status = EXT_NAME(ext_qgemm_plan)(&g, x_dtype, x_zero, e);
  return status ? status : EXT_NAME(ext_qgemm_run)(&g);
}

EXT_DISPATCH(ext_qconv2d,
             (const ext_conv2d_params* p, ext_dtype x_dtype, int32_t x_zero, const void* x,
              const int8_t* w, const ext_requantise* e, void* y),
             (p, x_dtype, x_zero, x, w, e, y))
