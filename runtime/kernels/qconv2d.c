/*
 * y[n][oh][ow][o] = requantise(sum_{kh,kw,c} (x[n][oh sh + kh dh - top][ow sw + kw dw - left][c]
 *                                             - x_zero) * w[o][kh][kw][c])
 *
 * as a matrix product, one per group: rows are the output pixels of the whole batch, K is
 * (kh, kw, c).  Each row of A is read from the image, tap by tap, or from all taps of a line at
 * once where neighbouring pixels adjoin.  What cannot be read so where it lies - because of
 * padding, of bytes that the level multiplies in another form, of pixels that are no whole groups
 * of K or would push one another out of L1 - is copied, block by block, into lines that can.
 */
#include "conv2d.h"
#include "qgemm.h"

typedef struct {
  const ext_conv2d_params* p;
  const uint8_t* x;
  int32_t x_zero;
  int64_t channels; /* of one group */
  /* Of lines as they are read, in elements: pixels in a line, from one to the next, and lines. */
  int64_t pixels, pixel, line;
} qconv_source;

/* Image rows, or pixels of one, that one output row or pixel reads. */
EXT_INLINE int64_t reach(int64_t kernel, int64_t dilation) {
  return (kernel - 1) * dilation + 1;
}

/* Copies pixels of few channels, a constant, with zeros up to K_GROUP. */
EXT_INLINE void pack_few(const int channels, ext_dtype dtype, int64_t count,
                         const uint8_t* restrict x, qa* restrict dst) {
  for (int64_t i = 0; i < count; i++) {
    qa_run(dtype, dst + i * K_GROUP, x + i * channels, channels);
    for (int c = channels; c < K_GROUP; c++) dst[i * K_GROUP + c] = 0;
  }
}

/* Copies `count` neighbouring pixels. */
static void pack_pixels(const qconv_source* s, ext_dtype dtype, int64_t count, const uint8_t* x,
                        qa* dst) {
  const int64_t channels = s->channels, more = -channels & (K_GROUP - 1);
  const int dense = s->p->x_stride == channels;
  if (dense && s->pixel == channels) {
    qa_run(dtype, dst, x, count * channels);
  } else if (dense && s->pixel == K_GROUP && channels == 3) {
    pack_few(3, dtype, count, x, dst);
  } else if (dense && s->pixel == K_GROUP && channels == 1) {
    pack_few(1, dtype, count, x, dst);
  } else {
    for (int64_t i = 0; i < count; i++, x += s->p->x_stride, dst += s->pixel) {
      qa_run(dtype, dst, x, channels);
      for (int64_t c = 0; c < more; c++) dst[channels + c] = 0;
    }
  }
}

/* The image rows under output rows [first, past) of one image, zeros around them. */
static void pack_lines(const ext_qgemm* g, int64_t offset, int64_t first, int64_t past, qa* dst) {
  const qconv_source* s = g->source;
  const ext_conv2d_params* p = s->p;
  const int64_t image = first / p->out_h, top = first % p->out_h * p->stride_h - p->pad_top;
  const int64_t read = reach(p->kernel_h, p->dilation_h);
  const int64_t left = i64_min(p->pad_left, s->pixels);
  const int64_t inside = i64_max(0, i64_min(p->in_w, s->pixels - left));
  for (int64_t i = 0; i < (past - first - 1) * p->stride_h + read; i++, dst += s->line) {
    int64_t row = top + i;
    if (i % p->stride_h >= read) continue;
    if (row < 0 || row >= p->in_h) {
      qa_fill(g->x_dtype, dst, s->x_zero, s->line);
      continue;
    }
    qa_fill(g->x_dtype, dst, s->x_zero, left * s->pixel);
    pack_pixels(s, g->x_dtype, inside,
                s->x + offset + (image * p->in_h + row) * p->in_w * p->x_stride,
                dst + left * s->pixel);
    qa_fill(g->x_dtype, dst + (left + inside) * s->pixel, s->x_zero,
            (s->pixels - left - inside) * s->pixel);
  }
}

/* Whether no output pixel reads past the image. */
static int is_inside(const ext_conv2d_params* p) {
  return p->pad_top == 0 && p->pad_left == 0 &&
         (p->out_h - 1) * p->stride_h + reach(p->kernel_h, p->dilation_h) <= p->in_h &&
         (p->out_w - 1) * p->stride_w + reach(p->kernel_w, p->dilation_w) <= p->in_w;
}

/* Where A is found, in the image or in copied lines. */
static void place_rows(ext_qgemm* g, qconv_source* s, ext_dtype x_dtype) {
  const ext_conv2d_params* p = s->p;
  const int64_t depth = ceil_div(s->channels, K_GROUP) * K_GROUP;
  if (is_inside(p) && qa_in_place(x_dtype, s->channels, p->stride_w * p->x_stride, p->out_w)) {
    s->pixel = p->x_stride;
    s->line = p->in_w * p->x_stride;
    g->a_image = p->in_h * s->line;
  } else {
    const int64_t cache_line = EXT_ALIGN / (int64_t)sizeof(qa);
    const int64_t row = p->stride_w * depth * (int64_t)sizeof(qa) / (int64_t)sizeof(float);
    s->pixel = depth + (QROWS_STEP > 1 || QR <= ext_rows_in_place(row) ? 0 : cache_line);
    s->pixels = (p->out_w - 1) * p->stride_w + reach(p->kernel_w, p->dilation_w);
    s->line = s->pixels * s->pixel;
    g->pack = pack_lines;
    g->packed_more = i64_max(0, (reach(p->kernel_h, p->dilation_h) - p->stride_h) * s->line);
  }
  const int adjoin = p->dilation_w == 1 && s->pixel == depth;
  g->run = adjoin ? p->kernel_w * depth : depth;
  g->taps[0] = p->kernel_h;
  g->taps[1] = adjoin ? 1 : p->kernel_w;
  g->tap_step[0] = p->dilation_h * s->line;
  g->tap_step[1] = p->dilation_w * s->pixel;
  g->terms = p->kernel_h * p->kernel_w * s->channels;
  g->source = s;
  g->a = s->x;
  g->lines = p->batch * p->out_h;
  g->image_lines = i64_max(1, p->out_h);
  g->width = p->out_w;
  g->a_row = p->stride_w * s->pixel;
  g->a_line = p->stride_h * s->line;
}

#if defined(EXT_UNTILED)
int EXT_UNTILED_NAME(ext_qconv2d)(const ext_conv2d_params* p, ext_dtype x_dtype, int32_t x_zero,
                                  const void* x, const int8_t* w, const ext_requantise* e, void* y);
#endif

int EXT_NAME(ext_qconv2d)(const ext_conv2d_params* p, ext_dtype x_dtype, int32_t x_zero,
                          const void* x, const int8_t* w, const ext_requantise* e, void* y) {
  if (p->groups < 1 || p->in_c % p->groups || p->out_c % p->groups) return EXT_ERR_ARGUMENT;
  const int64_t channels = p->in_c / p->groups, taps = p->kernel_h * p->kernel_w;
#if defined(EXT_UNTILED)
  if (!tiles_pay(p->batch * p->out_h * p->out_w, taps * channels))
    return EXT_UNTILED_NAME(ext_qconv2d)(p, x_dtype, x_zero, x, w, e, y);
#endif
  qconv_source s = {.p = p, .x = x, .x_zero = x_zero, .channels = channels};
  ext_qgemm g = {.m = p->batch * p->out_h * p->out_w,
                 .n = p->out_c / p->groups,
                 .panels = w,
                 .y = y,
                 .y_row = p->y_stride,
                 .batch_ndim = p->groups > 1};
  const qgemm_matrix points = {x, channels, p->x_stride, 1};
  if (conv_is_point(p))
    EXT_NAME(ext_qgemm_rows)(&g, &points, x_dtype);
  else
    place_rows(&g, &s, x_dtype);
  g.batch[0] = p->groups;
  g.a_batch[0] = channels;
  g.b_batch[0] =
      ceil_div(g.n, EXT_PANEL) * EXT_PANEL * taps * ceil_div(channels, K_GROUP) * K_GROUP;
  g.y_batch[0] = g.residual_batch[0] = g.column_batch[0] = g.n;
  int status = EXT_NAME(ext_qgemm_plan)(&g, x_dtype, x_zero, e);
  return status ? status : EXT_NAME(ext_qgemm_run)(&g);
}

EXT_DISPATCH(ext_qconv2d,
             (const ext_conv2d_params* p, ext_dtype x_dtype, int32_t x_zero, const void* x,
              const int8_t* w, const ext_requantise* e, void* y),
             (p, x_dtype, x_zero, x, w, e, y))
