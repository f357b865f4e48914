/*
 * y[n][od][oh][ow][o] = epilogue(sum_{kd,kh,kw,c}
 *     x[n][od sd + kd dd - front][oh sh + kh dh - top][ow sw + kw dw - left][c]
 *     * w[o][kd][kh][kw][c])
 *
 * as a matrix product, one per group, whose rows are the output pixels and whose K is (kd, kh, kw,
 * c); packing a block of A reads the image, line of taps by line.
 */
#include "gemm.h"

typedef struct {
  const ext_conv3d_params* p;
  const float* x;
  int64_t channels; /* of one group */
} volume_source;

/* Elements [begin, end) of a line of taps, of which those of pixel w are the first: [kw][c].  Taps
 * side by side that all channels are read of lie in memory as they lie in the line. */
static void pack_line(const volume_source* s, const float* line, int64_t w, int64_t begin,
                      int64_t end, float* dst) {
  const ext_conv3d_params* p = s->p;
  const int64_t channels = s->channels;
  if (p->dilation_w == 1 && channels == p->in_c) {
    int64_t from = i64_max(begin, i64_min(end, -w * channels));
    int64_t to = i64_max(from, i64_min(end, (p->in_w - w) * channels));
    zero_run(dst, from - begin);
    if (to - from >= VL)
      copy_run(dst + from - begin, line + (w * channels + from), to - from);
    else
      for (int64_t i = from; i < to; i++) dst[i - begin] = line[w * channels + i];
    zero_run(dst + to - begin, end - to);
    return;
  }
  for (int64_t k = begin; k < end;) {
    int64_t tap = k / channels, from = k - tap * channels, at = w + tap * p->dilation_w;
    int64_t count = i64_min(channels - from, end - k);
    const float* pixel = at >= 0 && at < p->in_w ? line + at * p->in_c + from : NULL;
    if (!pixel)
      zero_run(dst + k - begin, count);
    else if (count >= VL)
      copy_run(dst + k - begin, pixel, count);
    else /* one by one: what vectors store in part is slow to read again */
      for (int64_t i = 0; i < count; i++) dst[k - begin + i] = pixel[i];
    k += count;
  }
}

static void pack_pixels(const void* source, int64_t offset, int64_t row, int64_t rows, int64_t k0,
                        int64_t kc, float* dst) {
  const volume_source* s = source;
  const ext_conv3d_params* p = s->p;
  const int64_t width = p->kernel_w * s->channels; /* of a line of taps */
  const int64_t first = width ? k0 / width : 0;
  for (int64_t r = row; r < row + rows; r++, dst += A_STRIDE) {
    int64_t line_of = r / p->out_w, plane_of = line_of / p->out_h, image_of = plane_of / p->out_d;
    int64_t d0 = (plane_of - image_of * p->out_d) * p->stride_d - p->pad_front;
    int64_t h0 = (line_of - plane_of * p->out_h) * p->stride_h - p->pad_top;
    int64_t w0 = (r - line_of * p->out_w) * p->stride_w - p->pad_left;
    const float* image = s->x + offset + image_of * p->in_d * p->in_h * p->in_w * p->in_c;
    int64_t kd = first / p->kernel_h, kh = first - kd * p->kernel_h, k = k0 - first * width;
    for (int64_t done = 0; done < kc; k = 0) {
      int64_t end = i64_min(width, k + kc - done);
      int64_t d = d0 + kd * p->dilation_d, h = h0 + kh * p->dilation_h;
      if (d < 0 || d >= p->in_d || h < 0 || h >= p->in_h)
        zero_run(dst + done, end - k);
      else
        pack_line(s, image + (d * p->in_h + h) * p->in_w * p->in_c, w0, k, end, dst + done);
      done += end - k;
      if (++kh == p->kernel_h) kh = 0, kd++;
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
