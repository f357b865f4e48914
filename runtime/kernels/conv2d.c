/*
 * y[n][oh][ow][o] = epilogue(sum_{kh,kw,c} x[n][oh sh + kh dh - top][ow sw + kw dw - left][c]
 *                                          * w[o][kh][kw][c])
 *
 * as a matrix product, one per group: rows are the output pixels of the whole batch, K is
 * (kh, kw, c).  The matrix of patches is never stored: the microkernel reads the image itself
 * (conv2d_direct.c), or packing a block of A does, as p->in_place_rows says.
 */
#include "conv2d.h"

#include "gemm.h"

enum { MOST_SHALLOW = 4 };

typedef struct {
  const ext_conv2d_params* p;
  const float* x;
  int64_t channels; /* of one group */
  /* K falls into segments that are contiguous in x: a whole row of taps where the channels of
   * neighbouring pixels adjoin, else one tap. */
  int64_t segment_taps, segments_per_row, segment;
} conv_source;

/* Copies floats [from, to) of one segment, whose first tap is column iw0 of image row `line`. */
static void pack_border(const conv_source* s, const float* line, int64_t iw0, int64_t from,
                        int64_t to, float* dst) {
  const ext_conv2d_params* p = s->p;
  int64_t first = i64_max(0, -iw0) * s->channels;
  int64_t past = i64_min(s->segment_taps, p->in_w - iw0) * s->channels;
  first = i64_min(i64_max(first, from), to);
  past = i64_max(i64_min(past, to), first);
  zero_run(dst, first - from);
  if (past > first) copy_run(dst + (first - from), line + iw0 * p->x_stride + first, past - first);
  zero_run(dst + (past - from), to - past);
}

/* Packs K range [k0, k0 + kc) of the output pixel whose window begins at (ih, iw) of `image`. */
EXT_INLINE void pack_pixel(const conv_source* s, const float* image, int64_t ih, int64_t iw,
                           int64_t kh, int64_t kw, int64_t from, int64_t kc, float* dst) {
  const ext_conv2d_params* p = s->p;
  int64_t line_step = p->in_w * p->x_stride;
  while (kc > 0) {
    int64_t to = i64_min(s->segment, from + kc), row = ih + kh * p->dilation_h;
    int64_t column = iw + kw * p->dilation_w;
    const float* line = image + row * line_step;
    if (row < 0 || row >= p->in_h)
      zero_run(dst, to - from);
    else if (column >= 0 && column + s->segment_taps <= p->in_w)
      copy_run(dst, line + column * p->x_stride + from, to - from);
    else
      pack_border(s, line, column, from, to, dst);
    dst += to - from;
    kc -= to - from;
    from = 0;
    if (++kw == s->segments_per_row) kw = 0, kh++;
  }
}

static void pack_pixels(const void* source, int64_t offset, int64_t row, int64_t rows, int64_t k0,
                        int64_t kc, float* dst) {
  const conv_source* s = source;
  const ext_conv2d_params* p = s->p;
  int64_t ow = row % p->out_w, oh = row / p->out_w % p->out_h, n = row / (p->out_w * p->out_h);
  int64_t segment = k0 / s->segment, from = k0 - segment * s->segment;
  int64_t kh = segment / s->segments_per_row, kw = segment % s->segments_per_row;
  for (int64_t r = 0; r < rows; r++, dst += A_STRIDE) {
    const float* image = s->x + offset + n * p->in_h * p->in_w * p->x_stride;
    pack_pixel(s, image, oh * p->stride_h - p->pad_top, ow * p->stride_w - p->pad_left, kh, kw,
               from, kc, dst);
    if (++ow == p->out_w) {
      ow = 0;
      if (++oh == p->out_h) oh = 0, n++;
    }
  }
}

/* The product with every pixel of y as a row; A is x itself, as is right where conv_is_point. */
static ext_gemm gemm_of(const ext_conv2d_params* p, const float* x, const float* w,
                        const ext_epilogue* e, float* y) {
  return (ext_gemm){.m = p->batch * p->out_h * p->out_w,
                    .n = p->out_c / p->groups,
                    .k = p->kernel_h * p->kernel_w * (p->in_c / p->groups),
                    .a = x,
                    .a_row = p->x_stride,
                    .panels = w,
                    .y = y,
                    .y_row = p->y_stride,
                    .epilogue = e ? *e : (ext_epilogue){0},
                    .batch_ndim = p->groups > 1};
}

/* Whether lines are so few floats that to copy them takes less time than tiles at borders. */
static int is_shallow(const ext_conv2d_params* p) {
  return p->in_c > 0 && p->in_c <= MOST_SHALLOW && p->groups == 1 && p->x_stride == p->in_c &&
         p->kernel_w > 1 && (p->kernel_w - 1) * p->dilation_w < p->in_w;
}

int EXT_NAME(ext_conv2d)(const ext_conv2d_params* p, const float* x, const float* w,
                         const ext_epilogue* e, float* y) {
  if (p->groups < 1 || p->in_c % p->groups || p->out_c % p->groups) return EXT_ERR_ARGUMENT;
  conv_source s = {.p = p, .x = x, .channels = p->in_c / p->groups};
  int adjoin = p->dilation_w == 1 && p->x_stride == s.channels;
  s.segment_taps = adjoin ? p->kernel_w : 1;
  s.segments_per_row = adjoin ? 1 : p->kernel_w;
  s.segment = i64_max(1, s.segment_taps * s.channels);
  ext_gemm g = gemm_of(p, x, w, e, y);
  g.pack = conv_is_point(p) ? NULL : pack_pixels;
  g.source = &s;
  g.batch[0] = p->groups;
  g.a_batch[0] = s.channels;
  g.b_batch[0] = ceil_div(g.n, EXT_PANEL) * EXT_PANEL * g.k;
  g.y_batch[0] = g.residual_batch[0] = g.bias_batch[0] = g.n;
  const int window = p->kernel_h > 1 || p->kernel_w > 1;
  if (window && MR <= p->in_place_rows && !ext_gemm_parts_fit(&g))
    return (is_shallow(p) ? EXT_NAME(ext_conv2d_shallow) : EXT_NAME(ext_conv2d_direct))(p, x, w, e,
                                                                                        y);
  return EXT_NAME(ext_gemm_run)(&g);
}

int EXT_NAME(ext_conv2d_prologue)(const ext_conv2d_params* p, const ext_prologue* before,
                                  const float* x, const float* w, const ext_epilogue* e, float* y) {
  if (!conv_is_point(p) || p->groups != 1) return EXT_ERR_ARGUMENT;
  ext_gemm g = gemm_of(p, x, w, e, y);
  g.prologue = before;
  g.image_rows = i64_max(1, p->out_h * p->out_w);
  return EXT_NAME(ext_gemm_run)(&g);
}

EXT_DISPATCH(ext_conv2d,
             (const ext_conv2d_params* p, const float* x, const float* w, const ext_epilogue* e,
              float* y),
             (p, x, w, e, y))
EXT_DISPATCH(ext_conv2d_prologue,
             (const ext_conv2d_params* p, const ext_prologue* before, const float* x,
              const float* w, const ext_epilogue* e, float* y),
             (p, before, x, w, e, y))
