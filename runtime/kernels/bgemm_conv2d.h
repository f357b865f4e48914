/*
 * bgemm_conv2d.h - the convolutions of conv2d_bf16 and conv2d_bf16x3 as the loops of bgemm.h take
 * them: a matrix product, one per group.  Rows are the output pixels of the whole batch, K is
 * (kh, kw, c).  Where every pixel is a row, x itself is A; else patches are packed, block by block.
 */
#ifndef EXT_BGEMM_CONV2D_H_
#define EXT_BGEMM_CONV2D_H_

#include "bgemm.h"
#include "conv2d.h"

typedef struct {
  const ext_conv2d_params* p;
  const void* x;
  ext_dtype dtype;
  int64_t channels; /* of one group */
  /* K falls into segments that are contiguous in x: a whole row of taps where the channels of
   * neighbouring pixels adjoin, else one tap. */
  int64_t segment_taps, segments_per_row, segment;
} conv_source;

/* Packs elements [from, to) of one segment, whose first tap is column iw0 of the image row that
 * begins at x[line]; columns outside of the image are 0. */
static void pack_border(const conv_source* s, int64_t line, int64_t iw0, int64_t from, int64_t to,
                        ba* dst) {
  const ext_conv2d_params* p = s->p;
  int64_t first = i64_max(0, -iw0) * s->channels;
  int64_t past = i64_min(s->segment_taps, p->in_w - iw0) * s->channels;
  first = i64_min(i64_max(first, from), to);
  past = i64_max(i64_min(past, to), first);
  ba_zeros(dst, first - from);
  if (past > first)
    ba_run(s->dtype, dst + (first - from),
           stored_at(s->x, s->dtype, line + iw0 * p->x_stride + first), past - first);
  ba_zeros(dst + (past - from), to - past);
}

/* Packs K range [from, from + kc) of the window that begins at (ih, iw) of the image at x[image];
 * `from` counts from segment kw of kernel row kh. */
EXT_INLINE void pack_pixel(const conv_source* s, int64_t image, int64_t ih, int64_t iw, int64_t kh,
                           int64_t kw, int64_t from, int64_t kc, ba* dst) {
  const ext_conv2d_params* p = s->p;
  const int64_t line_step = p->in_w * p->x_stride;
  while (kc > 0) {
    int64_t to = i64_min(s->segment, from + kc), row = ih + kh * p->dilation_h;
    int64_t column = iw + kw * p->dilation_w, line = image + row * line_step;
    if (row < 0 || row >= p->in_h)
      ba_zeros(dst, to - from);
    else if (column >= 0 && column + s->segment_taps <= p->in_w)
      ba_run(s->dtype, dst, stored_at(s->x, s->dtype, line + column * p->x_stride + from),
             to - from);
    else
      pack_border(s, line, column, from, to, dst);
    dst += to - from;
    kc -= to - from;
    from = 0;
    if (++kw == s->segments_per_row) kw = 0, kh++;
  }
}

/* Packs whole windows of pixels that lie inside of the image, as what begins at x[first] has them:
 * the same segments for each pixel, `step` elements further on. */
EXT_INLINE void pack_inside(const ext_dtype dtype, const conv_source* s, int64_t first,
                            int64_t pixels, ba* dst, int64_t stride) {
  const ext_conv2d_params* p = s->p;
  const int64_t step = p->stride_w * p->x_stride, line = p->dilation_h * p->in_w * p->x_stride;
  const int64_t tap = p->dilation_w * p->x_stride, segment = s->segment;
  for (int64_t i = 0; i < pixels; i++, first += step, dst += stride) {
    ba* to = dst;
    for (int64_t kh = 0; kh < p->kernel_h; kh++)
      for (int64_t kw = 0; kw < s->segments_per_row; kw++, to += segment)
        ba_run(dtype, to, stored_at(s->x, dtype, first + kh * line + kw * tap), segment);
  }
}

/* The same of bf16 where a segment is a row of taps of at most `vectors`, a constant: whole vectors
 * are copied, as far as the last row, of what the next row writes over. */
EXT_INLINE void pack_rows_inside(const int vectors, const conv_source* s, int64_t first,
                                 int64_t pixels, ba* dst, int64_t stride) {
  const ext_conv2d_params* p = s->p;
  const int64_t step = p->stride_w * p->x_stride, line = p->dilation_h * p->in_w * p->x_stride;
  const int64_t segment = s->segment, last = p->kernel_h - 1;
  const uint16_t* x = (const uint16_t*)s->x + first;
  for (int64_t i = 0; i < pixels; i++, x += step, dst += stride) {
    for (int64_t kh = 0; kh < last; kh++) {
      EXT_UNROLL
      for (int v = 0; v < vectors; v++)
        ba_vector_of_bf16(dst + kh * segment + v * VL, x + kh * line + v * VL);
    }
    ba_run_of_bf16(dst + last * segment, x + last * line, segment);
  }
}

/* Chooses for `pixels` neighbours. */
static void pack_neighbours(const conv_source* s, int64_t first, int64_t pixels, ba* dst,
                            int64_t stride) {
  const ext_conv2d_params* p = s->p;
  const int64_t vectors = ceil_div(s->segment, VL), line = p->dilation_h * p->in_w * p->x_stride;
  const int overlap = s->segments_per_row == 1 && line >= vectors * VL &&
                      (p->kernel_h - 2) * s->segment + vectors * VL <= stride;
  if (s->dtype == EXT_FLOAT32)
    pack_inside(EXT_FLOAT32, s, first, pixels, dst, stride);
  else if (overlap && vectors == 1)
    pack_rows_inside(1, s, first, pixels, dst, stride);
  else if (overlap && vectors == 2)
    pack_rows_inside(2, s, first, pixels, dst, stride);
  else
    pack_inside(EXT_BFLOAT16, s, first, pixels, dst, stride);
}

/* How many output columns from ow on, `count` at most, have windows that lie inside of the image,
 * in a row whose window does. */
EXT_INLINE int64_t columns_inside(const ext_conv2d_params* p, int64_t ow, int64_t count) {
  const int64_t room = p->in_w - 1 - (p->kernel_w - 1) * p->dilation_w + p->pad_left;
  if (ow * p->stride_w < p->pad_left || room < 0) return 0;
  return i64_max(0, i64_min(count, room / p->stride_w + 1 - ow));
}

static void pack_pixels(const void* source, int64_t offset, int64_t row, int64_t rows, int64_t k0,
                        int64_t kc, ba* dst, int64_t stride) {
  const conv_source* s = source;
  const ext_conv2d_params* p = s->p;
  int64_t ow = row % p->out_w, oh = row / p->out_w % p->out_h, n = row / (p->out_w * p->out_h);
  int64_t segment = k0 / s->segment, from = k0 - segment * s->segment;
  int64_t kh = segment / s->segments_per_row, kw = segment % s->segments_per_row;
  const int whole = kc == p->kernel_h * s->segments_per_row * s->segment;
  for (int64_t r = 0, count; r < rows; r += count, dst += count * stride) {
    const int64_t ih = oh * p->stride_h - p->pad_top, iw = ow * p->stride_w - p->pad_left;
    const int64_t image = offset + n * p->in_h * p->in_w * p->x_stride;
    const int inside = ih >= 0 && ih + (p->kernel_h - 1) * p->dilation_h < p->in_h;
    count = whole && inside ? columns_inside(p, ow, i64_min(rows - r, p->out_w - ow)) : 0;
    if (count > 0) {
      const int64_t first = image + (ih * p->in_w + iw) * p->x_stride;
      pack_neighbours(s, first, count, dst, stride);
    } else {
      count = 1;
      pack_pixel(s, image, ih, iw, kh, kw, from, kc, dst);
    }
    ow += count;
    if (ow == p->out_w) {
      ow = 0;
      if (++oh == p->out_h) oh = 0, n++;
    }
  }
}

/* The product with every pixel of y as a row; A is x itself, as is right where conv_is_point. */
EXT_INLINE ext_bgemm bgemm_of(const ext_conv2d_params* p, const ext_storage* storage, const void* x,
                              const uint16_t* w, const ext_epilogue* e, void* y) {
  return (ext_bgemm){.m = p->batch * p->out_h * p->out_w,
                     .n = p->out_c / p->groups,
                     .k = p->kernel_h * p->kernel_w * (p->in_c / p->groups),
                     .s = *storage,
                     .a = x,
                     .a_row = p->x_stride,
                     .panels = w,
                     .y = y,
                     .y_row = p->y_stride,
                     .epilogue = e ? *e : (ext_epilogue){0},
                     .batch_ndim = p->groups > 1};
}

static int convolve(const ext_conv2d_params* p, const ext_storage* storage, const void* x,
                    const uint16_t* w, const ext_epilogue* e, void* y) {
  if (p->groups < 1 || p->in_c % p->groups || p->out_c % p->groups) return EXT_ERR_ARGUMENT;
  if (check_storage(storage, e)) return EXT_ERR_ARGUMENT;
  conv_source s = {.p = p, .x = x, .dtype = storage->x, .channels = p->in_c / p->groups};
  int adjoin = p->dilation_w == 1 && p->x_stride == s.channels;
  s.segment_taps = adjoin ? p->kernel_w : 1;
  s.segments_per_row = adjoin ? 1 : p->kernel_w;
  s.segment = i64_max(1, s.segment_taps * s.channels);
  ext_bgemm g = bgemm_of(p, storage, x, w, e, y);
  g.pack = conv_is_point(p) ? NULL : pack_pixels;
  g.source = &s;
  g.batch[0] = p->groups;
  g.a_batch[0] = s.channels;
  g.b_batch[0] = ceil_div(g.n, EXT_PANEL) * ceil_div(g.k, 2) * BPAIR;
  g.y_batch[0] = g.residual_batch[0] = g.bias_batch[0] = g.n;
  return EXT_BGEMM_RUN(&g);
}

#endif /* EXT_BGEMM_CONV2D_H_ */
