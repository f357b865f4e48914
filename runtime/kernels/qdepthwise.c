/*
 * y[n][oh][ow][c] = requantise(sum_{kh,kw} (x[n][oh sh + kh dh - top][ow sw + kw dw - left][c]
 *                                           - x_zero) * w[kh][kw][c])
 *
 * Such sums of few taps are whole numbers below 2^24, which fp32 holds: the kernel of depthwise.c
 * adds them up exactly.  A task goes through blocks of output rows and spans of channels; of each
 * it widens the rows of x to fp32, less x_zero, so that zeros surround the image, adds up, and
 * finishes the sums, all of which stay in L2.
 */
#include "conv2d.h"
#include "requantise.h"

/* Multiply-adds in a task at least, some ten microseconds. */
static const int64_t TASK_MACS = 200000;
enum {
  SPAN = 2 * EXT_PANEL, /* channels in a span */
  TASK_ROWS = 8         /* of a task, where there are many: neighbours share rows of x */
};

typedef struct {
  ext_conv2d_params p;
  const uint8_t* x;
  ext_dtype x_dtype;
  int32_t x_zero;
  const int8_t* w;
  requantise_plan plan;
  uint8_t* y;
  int64_t block; /* output rows in a block at most */
} qdepthwise_job;

/* Scratch memory of a task: fp32 weights [taps][SPAN], pixels of x and of y [pixels][SPAN]. */
typedef struct {
  float *w, *x, *y;
} span_memory;

/* The image rows under the output rows [first, past) of one image: [from, to), perhaps none. */
static void rows_under(const ext_conv2d_params* p, int64_t first, int64_t past, int64_t* from,
                       int64_t* to) {
  int64_t top = first * p->stride_h - p->pad_top;
  int64_t bottom = (past - 1) * p->stride_h - p->pad_top + (p->kernel_h - 1) * p->dilation_h + 1;
  *from = i64_min(i64_max(top, 0), p->in_h);
  *to = i64_max(i64_min(bottom, p->in_h), *from);
}

/* dst[i][c] = x[i][c] - zero, i < pixels `stride` apart, c < channels; further channels are 0 -
 * zero up to a multiple of EXT_PANEL, and stay finite. */
static void widen(ext_dtype dtype, int32_t zero, int64_t pixels, int64_t channels, const uint8_t* x,
                  int64_t stride, float* dst) {
  const int64_t width = ceil_div(channels, EXT_PANEL) * EXT_PANEL;
  const vi offset = vi_set1(zero);
  for (int64_t i = 0; i < pixels; i++, x += stride, dst += width)
    for (int64_t c = 0; c < width; c += VL) {
      const int64_t lanes = clamp_lanes(channels - c);
      vi v;
      if (dtype == EXT_UINT8)
        v = lanes == VL ? vi_load_u8(x + c) : vi_load_u8_n(x + c, lanes);
      else
        v = lanes == VL ? vi_load_s8(x + c) : vi_load_s8_n(x + c, lanes);
      vf_store(dst + c, vi_to_vf(v - offset));
    }
}

/* Output rows [first, past) of one image, channels [c0, c0 + channels). */
static int run_block(const qdepthwise_job* job, const span_memory* memory, int64_t image,
                     int64_t first, int64_t past, int64_t c0, int64_t channels) {
  const ext_requantise* e = &job->plan.e;
  const int64_t width = ceil_div(channels, EXT_PANEL) * EXT_PANEL;
  int64_t from, to;
  rows_under(&job->p, first, past, &from, &to);
  ext_conv2d_params p = job->p;
  const int64_t line = (image * p.in_h + from) * p.in_w;
  widen(job->x_dtype, job->x_zero, (to - from) * p.in_w, channels, job->x + line * p.x_stride + c0,
        p.x_stride, memory->x);
  p.batch = 1;
  p.pad_top += from - first * p.stride_h;
  p.in_h = to - from;
  p.out_h = past - first;
  p.in_c = p.out_c = p.groups = p.x_stride = p.y_stride = width;
  int status = EXT_NAME(ext_depthwise_sums)(&p, memory->x, memory->w, memory->y);
  if (status) return status;
  const int64_t pixel = (image * job->p.out_h + first) * p.out_w;
  requantise_tile t = {.rows = p.out_h * p.out_w, .columns = channels, .content = memory->y};
  t.width = width;
  t.scale = e->scale + c0;
  t.bias = e->bias ? e->bias + c0 : NULL;
  if (e->residual)
    t.residual = (const uint8_t*)e->residual +
                 (pixel * e->residual_stride + c0) * quantised_size(e->residual_dtype);
  t.y = job->y + (pixel * job->p.y_stride + c0) * quantised_size(e->y_dtype);
  t.y_row = job->p.y_stride;
  EXT_NAME(ext_requantise_tile)(&job->plan, TILE_FLOAT_SUMS, &t);
  return EXT_OK;
}

/* Output rows [begin, end) of the whole batch, one span of channels. */
static int run_span(const qdepthwise_job* job, const span_memory* memory, int64_t begin,
                    int64_t end, int64_t c0, int64_t channels) {
  const ext_conv2d_params* p = &job->p;
  const int64_t w_row = ceil_div(p->in_c, EXT_PANEL) * EXT_PANEL;
  widen(EXT_INT8, 0, p->kernel_h * p->kernel_w, channels, (const uint8_t*)job->w + c0, w_row,
        memory->w);
  for (int64_t row = begin, past; row < end; row = past) {
    const int64_t image = row / p->out_h;
    past = i64_min(i64_min(row + job->block, end), (image + 1) * p->out_h);
    int status = run_block(job, memory, image, row - image * p->out_h, past - image * p->out_h, c0,
                           channels);
    if (status) return status;
  }
  return EXT_OK;
}

/* Image rows that a block widens at most. */
static int64_t block_lines(const ext_conv2d_params* p, int64_t block) {
  return i64_min(p->in_h, (block - 1) * p->stride_h + (p->kernel_h - 1) * p->dilation_h + 1);
}

static int qdepthwise_rows(void* context, int64_t begin, int64_t end) {
  const qdepthwise_job* job = context;
  const ext_conv2d_params* p = &job->p;
  const int64_t span = i64_min(SPAN, ceil_div(p->in_c, EXT_PANEL) * EXT_PANEL);
  const int64_t w_size = p->kernel_h * p->kernel_w * span;
  const int64_t x_size = block_lines(p, job->block) * p->in_w * span;
  const int64_t y_size = job->block * p->out_w * span;
  float* memory = ext_workspace_alloc((size_t)(w_size + x_size + y_size) * sizeof(float));
  if (!memory) return EXT_ERR_MEMORY;
  span_memory parts = {memory, memory + w_size, memory + w_size + x_size};
  int status = EXT_OK;
  for (int64_t c = 0; c < p->in_c && !status; c += span)
    status = run_span(job, &parts, begin, end, c, i64_min(span, p->in_c - c));
  ext_workspace_free(memory);
  return status;
}

/* Output rows whose pixels, with those of x under them, take half of L2. */
static int64_t block_rows(const ext_conv2d_params* p) {
  const int64_t pixel = SPAN * (int64_t)sizeof(float);
  const int64_t shared = (p->kernel_h - 1) * p->dilation_h * p->in_w * pixel;
  const int64_t row = (p->stride_h * p->in_w + p->out_w) * pixel;
  return i64_max(1, i64_min((ext_cache_sizes()->l2 / 2 - shared) / i64_max(1, row), p->out_h));
}

int EXT_NAME(ext_qdepthwise_conv2d)(const ext_conv2d_params* p, ext_dtype x_dtype, int32_t x_zero,
                                    const void* x, const int8_t* w, const ext_requantise* e,
                                    void* y) {
  if (p->groups != p->in_c || p->groups != p->out_c) return EXT_ERR_ARGUMENT;
  if (p->kernel_h * p->kernel_w > EXT_QUANTISED_TAPS) return EXT_ERR_ARGUMENT;
  if (x_dtype != EXT_UINT8 && x_dtype != EXT_INT8) return EXT_ERR_ARGUMENT;
  if (!holds_zero(x_dtype, x_zero)) return EXT_ERR_ARGUMENT;
  qdepthwise_job job = {.p = *p,
                        .x = x,
                        .x_dtype = x_dtype,
                        .x_zero = x_zero,
                        .w = w,
                        .y = y,
                        .block = block_rows(p)};
  int status = EXT_NAME(ext_plan_requantise)(e, &job.plan);
  if (status) return status;
  const int64_t rows = p->batch * p->out_h, threads = ext_num_threads();
  const int64_t macs = i64_max(1, p->out_w * p->in_c * p->kernel_h * p->kernel_w);
  int64_t grain = i64_max(TASK_MACS / macs, i64_min(TASK_ROWS, ceil_div(rows, threads)));
  if (threads == 1 || grain < 1) grain = i64_max(1, rows);
  return ext_parallel_for(rows, grain, qdepthwise_rows, &job);
}

EXT_DISPATCH(ext_qdepthwise_conv2d,
             (const ext_conv2d_params* p, ext_dtype x_dtype, int32_t x_zero, const void* x,
              const int8_t* w, const ext_requantise* e, void* y),
             (p, x_dtype, x_zero, x, w, e, y))
