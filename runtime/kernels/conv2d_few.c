/*
 * y[n][oh][ow][o] = epilogue(sum_{kh,kw,c} x[n][oh sh + kh dh - top][ow sw + kw dw - left][c]
 *                                          * w[o][kh][kw][c])
 *
 * for few outputs o, as heads of networks have: of segmentation, depth or larger images.  A panel
 * would be empty but for them, so each result is a dot of its window, which is read where it lies,
 * and its filter.  Windows side by side share the filters' vectors, filters the windows'.
 */
#include "activation.h"
#include "conv2d.h"
#include "gemv_job.h"
#include "subnormals.h"

/* Multiply-adds of one task at least: some ten microseconds. */
static const int64_t TASK_MACS = 1 << 18;

typedef struct {
  const ext_conv2d_params* p;
  const float *x, *w;
  ext_epilogue e;
  float* y;
  int adjoin; /* the taps of a row are one run in x */
} few_job;

/* Windows side by side: that of the first pixel begins at x in the kernel row `first` of those that
 * are inside of the image, [first, past), and has the taps [left, right) of each. */
typedef struct {
  const float* x;
  int64_t first, past, left, right;
} few_windows;

/* out[i out_x + j] = window i . filter j for `many` windows and `few` filters, constants. */
EXT_INLINE void dots_of_windows(const int many, const int few, const few_job* job,
                                const few_windows* at, const float* w, float* out, int64_t out_x) {
  const ext_conv2d_params* p = job->p;
  const int64_t c = p->in_c, filter = p->kernel_h * p->kernel_w * c;
  const int64_t step = p->stride_w * p->x_stride, line = p->dilation_h * p->in_w * p->x_stride;
  const int64_t taps = job->adjoin ? i64_max(1, at->right - at->left) : 1, run = taps * c;
  vf acc[DOT_MANY][DOT_FEW];
  EXT_UNROLL
  for (int i = 0; i < many; i++) {
    EXT_UNROLL
    for (int j = 0; j < few; j++) acc[i][j] = vf_zero();
  }
  for (int64_t kh = at->first; kh < at->past; kh++)
    for (int64_t kw = at->left; kw < at->right; kw += taps) {
      const float* a = at->x + (kh - at->first) * line + kw * p->dilation_w * p->x_stride;
      const float* b = w + (kh * p->kernel_w + kw) * c;
      add_dots(many, few, run, a, step, b, filter, acc);
    }
  EXT_UNROLL
  for (int i = 0; i < many; i++) {
    EXT_UNROLL
    for (int j = 0; j < few; j++) out[i * out_x + j] = vf_sum(acc[i][j]);
  }
}

/* dots_of_windows for `count` windows, `many` at a time. */
EXT_INLINE void dots_of_row(const int many, const int few, const few_job* job, few_windows at,
                            int64_t count, const float* w, float* out, int64_t out_x) {
  const int64_t step = job->p->stride_w * job->p->x_stride;
  int64_t i = 0;
  for (; i + many <= count; i += many, at.x += many * step)
    dots_of_windows(many, few, job, &at, w, out + i * out_x, out_x);
  for (; i < count; i++, at.x += step) dots_of_windows(1, few, job, &at, w, out + i * out_x, out_x);
}

/* The results of `count` windows that have the same taps, DOT_TILE at most; groups of filters read
 * them again, from L1. */
static void dots_of_tile(const few_job* job, const few_windows* at, int64_t count, float* out,
                         int64_t out_x) {
  const ext_conv2d_params* p = job->p;
  const int64_t filter = p->kernel_h * p->kernel_w * p->in_c, groups = ceil_div(p->out_c, DOT_FEW);
  for (int64_t i = 0; i < count; i += DOT_MANY) {
    few_windows some = *at;
    some.x += i * p->stride_w * p->x_stride;
    for (int64_t g = 0; g < groups; g++) {
      const int64_t j = g * p->out_c / groups, end = (g + 1) * p->out_c / groups;
      const float* w = job->w + j * filter;
      float* to = out + i * out_x + j;
      const int64_t n = i64_min(DOT_MANY, count - i);
      switch (end - j) {
        case 1: dots_of_row(MANY_OF_1, 1, job, some, n, w, to, out_x); break;
        case 2: dots_of_row(MANY_OF_2, 2, job, some, n, w, to, out_x); break;
        case 3: dots_of_row(MANY_OF_3, 3, job, some, n, w, to, out_x); break;
        default: dots_of_row(MANY_OF_4, 4, job, some, n, w, to, out_x);
      }
    }
  }
}

/* Whether results, and what is added to them, follow one another without gaps. */
static int is_dense(const few_job* job) {
  const int64_t n = job->p->out_c;
  return job->p->y_stride == n && (!job->e.residual || job->e.residual_stride == n);
}

/* Bias and what follows for `count` results t, rows of `width`, that begin at a pixel of y. */
static void finish(const few_job* job, int64_t pixel, int64_t count, float* t, int64_t width) {
  const ext_epilogue* e = &job->e;
  const int64_t n = job->p->out_c;
  if (e->bias)
    for (int64_t i = 0; i < count; i++)
      for (int64_t j = 0; j < n; j++) t[i * width + j] += e->bias[j];
  const float* residual = e->residual ? e->residual + pixel * e->residual_stride : NULL;
  float* y = job->y + pixel * job->p->y_stride;
  if (is_dense(job)) /* one row of all the numbers, whose vectors are full */
    EXT_NAME(ext_finish_tile)
  (e, 1, count * n, t, ceil_div(count * n, VL) * VL, residual, 0, y, 0);
  else EXT_NAME(ext_finish_tile)(e, count, n, t, width, residual, e->residual_stride, y,
                                 job->p->y_stride);
}

/* Windows from column iw0 on that have all taps inside of the image, up to `most`; else one. */
static int64_t alike(const ext_conv2d_params* p, int64_t iw0, int64_t most, few_windows* at) {
  const int64_t reach = (p->kernel_w - 1) * p->dilation_w, room = p->in_w - reach - iw0;
  at->left = iw0 < 0 ? i64_min(p->kernel_w, ceil_div(-iw0, p->dilation_w)) : 0;
  at->right = iw0 < p->in_w ? i64_min(p->kernel_w, ceil_div(p->in_w - iw0, p->dilation_w)) : 0;
  at->right = i64_max(at->left, at->right);
  return iw0 < 0 || room <= 0 ? 1 : i64_min(most, ceil_div(room, p->stride_w));
}

static int output_rows(void* context, int64_t begin, int64_t end) {
  const few_job* job = context;
  const ext_conv2d_params* p = job->p;
  const int64_t width = is_dense(job) ? p->out_c : ceil_div(p->out_c, VL) * VL;
  _Alignas(EXT_ALIGN) float t[DOT_TILE * EXT_PANEL];
  memset(t, 0, sizeof t);
  for (int64_t row = begin; row < end; row++) {
    const kernel_rows inside = kernel_rows_inside(p, row);
    for (int64_t ow = 0; ow < p->out_w;) {
      const int64_t past = i64_min(p->out_w, ow + DOT_TILE), from = ow;
      while (ow < past) {
        few_windows at = {NULL, inside.first, inside.past, 0, 0};
        const int64_t iw0 = ow * p->stride_w - p->pad_left, count = alike(p, iw0, past - ow, &at);
        /* Of an empty window no address is formed that is outside of x. */
        at.x = job->x;
        if (at.first < at.past && at.left < at.right)
          at.x += (inside.line * p->in_w + iw0) * p->x_stride;
        else
          at.past = at.first;
        dots_of_tile(job, &at, count, t + (ow - from) * width, width);
        ow += count;
      }
      finish(job, row * p->out_w + from, ow - from, t, width);
    }
  }
  return EXT_OK;
}

int EXT_NAME(ext_conv2d_few)(const ext_conv2d_params* p, const float* x, const float* w,
                             const ext_epilogue* e, float* y) {
  if (p->groups != 1 || p->out_c > EXT_PANEL) return EXT_ERR_ARGUMENT;
  if (p->batch <= 0 || p->out_h <= 0 || p->out_w <= 0 || p->out_c <= 0) return EXT_OK;
  few_job job = {.p = p, .x = x, .w = w, .y = y};
  if (e) job.e = *e;
  job.adjoin = p->dilation_w == 1 && p->x_stride == p->in_c;
  const int64_t macs = p->out_w * p->out_c * p->kernel_h * p->kernel_w * p->in_c;
  return ext_parallel_products(p->batch * p->out_h, i64_max(1, TASK_MACS / i64_max(1, macs)),
                               output_rows, &job);
}

EXT_DISPATCH(ext_conv2d_few,
             (const ext_conv2d_params* p, const float* x, const float* w, const ext_epilogue* e,
              float* y),
             (p, x, w, e, y))
