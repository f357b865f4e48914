/*
 * y[n][oh][ow][o] = epilogue(sum_{kh,kw,c} x[n][oh sh + kh dh - top][ow sw + kw dw - left][c]
 *                                          * w[o][kh][kw][c])
 *
 * for few channels c, as first layers have: the product of conv2d.c with so small a K that tiles at
 * an image's borders, which conv2d_direct.c packs, take as long as some of the others.  Here the
 * lines under some output rows are copied with their padding first, so that no window leaves them.
 *
 * Then, with stride 1, where the lines are short, output rows follow one another in one row of
 * pixels as wide as the padded lines, so that tiles are full; results between the rows, of windows
 * that reach from one line to the next, are left out when the rows are copied to y.
 */
#include "conv2d.h"
#include "gemm_tile.h"
#include "subnormals.h"

/* Multiply-adds of a task at least, some ten microseconds, and floats of the rows that tiles write
 * before they are copied to y. */
static const int64_t TASK_MACS = 400000, FLAT_FLOATS = 1 << 12;

typedef struct {
  const ext_conv2d_params* p;
  const float *x, *w;
  ext_epilogue e;
  ext_tail tail;
  float* y;
  int64_t width; /* pixels of a line with its padding */
  int64_t flat;  /* output rows that follow one another in one row of pixels; 1: none do */
  int64_t most;  /* output rows of which the lines are copied at once, at most */
} shallow_job;

/* A row of `count` pixels whose windows begin at x, one after the other. */
typedef struct {
  const float *x, *residual;
  float* y;
  int64_t count, y_stride;
} pixel_row;

static void run_row(const shallow_job* job, const pixel_row* row) {
  const ext_conv2d_params* p = job->p;
  const int adjoin = p->dilation_w == 1;
  const int64_t k = p->kernel_h * p->kernel_w * p->in_c, tiles = ceil_div(row->count, MR);
  for (int64_t j = 0; j < p->out_c; j += TILE_N) {
    const int64_t columns = i64_min(TILE_N, p->out_c - j);
    const float* b = job->w + j / EXT_PANEL * k * EXT_PANEL + j % EXT_PANEL;
    for (int64_t i = 0; i < tiles; i++) {
      const int64_t first = i * row->count / tiles, rows = (i + 1) * row->count / tiles - first;
      gemm_tile t = {.a = row->x + first * p->stride_w * p->in_c,
                     .b = b,
                     .b_step = VL == EXT_PANEL ? k * EXT_PANEL : VL,
                     .next = nothing_next(b),
                     .kc = adjoin ? p->kernel_w * p->in_c : p->in_c,
                     .columns = columns,
                     .bias = job->e.bias ? job->e.bias + j : NULL,
                     .clamp = job->tail.clamp,
                     .low = job->tail.low,
                     .high = job->tail.high,
                     .a_row = p->stride_w * p->in_c,
                     .a_line = p->dilation_h * job->width * p->in_c,
                     .a_tap = p->dilation_w * p->in_c,
                     .taps_h = p->kernel_h,
                     .taps_w = adjoin ? 1 : p->kernel_w};
      const float* residual =
          row->residual ? row->residual + first * job->e.residual_stride + j : NULL;
      tile_run(tile_function(0, rows, columns), &t, rows, &job->e, residual,
               row->y + first * row->y_stride + j, row->y_stride);
    }
  }
}

/* Copies `count` lines of an image from `ih` on, with zeros for what is outside of it. */
static void copy_lines(const shallow_job* job, const float* image, int64_t ih, int64_t count,
                       float* lines) {
  const ext_conv2d_params* p = job->p;
  const int64_t floats = job->width * p->in_c, left = i64_min(floats, p->pad_left * p->in_c);
  const int64_t inside = i64_max(0, i64_min(p->in_w * p->in_c, floats - left));
  for (int64_t i = 0; i < count; i++, ih++, lines += floats) {
    if (ih < 0 || ih >= p->in_h) {
      zero_run(lines, floats);
      continue;
    }
    zero_run(lines, left);
    copy_run(lines + left, image + ih * p->in_w * p->in_c, inside);
    zero_run(lines + left + inside, floats - left - inside);
  }
}

/* `count` output rows, `row` the first in the batch, from the lines under them. */
static void run_rows(const shallow_job* job, const float* lines, int64_t row, int64_t count,
                     float* flat) {
  const ext_conv2d_params* p = job->p;
  float* y = job->y + row * p->out_w * p->y_stride;
  if (job->flat > 1) {
    const pixel_row all = {
        .x = lines, .y = flat, .count = (count - 1) * job->width + p->out_w, .y_stride = p->out_c};
    run_row(job, &all);
    for (int64_t i = 0; i < count; i++, y += p->out_w * p->y_stride)
      copy_run(y, flat + i * job->width * p->out_c, p->out_w * p->out_c);
    return;
  }
  const float* residual = job->e.residual;
  if (residual) residual += row * p->out_w * job->e.residual_stride;
  for (int64_t i = 0; i < count; i++, y += p->out_w * p->y_stride) {
    const pixel_row one = {.x = lines + i * p->stride_h * job->width * p->in_c,
                           .residual = residual,
                           .y = y,
                           .count = p->out_w,
                           .y_stride = p->y_stride};
    run_row(job, &one);
    if (residual) residual += p->out_w * job->e.residual_stride;
  }
}

/* Lines under so many output rows. */
static int64_t lines_under(const ext_conv2d_params* p, int64_t rows) {
  return (rows - 1) * p->stride_h + (p->kernel_h - 1) * p->dilation_h + 1;
}

static int rows(void* context, int64_t begin, int64_t end) {
  const shallow_job* job = context;
  const ext_conv2d_params* p = job->p;
  const int64_t most = i64_min(job->most, end - begin);
  const int64_t floats = lines_under(p, most) * job->width * p->in_c;
  const int64_t flat = job->flat > 1 ? most * job->width * p->out_c : 0;
  float* lines = ext_workspace_alloc((size_t)(floats + flat) * sizeof(float));
  if (!lines) return EXT_ERR_MEMORY;
  for (int64_t row = begin, count; row < end; row += count) {
    const int64_t n = row / p->out_h, oh = row - n * p->out_h;
    count = i64_min(i64_min(most, end - row), p->out_h - oh);
    copy_lines(job, job->x + n * p->in_h * p->in_w * p->in_c, oh * p->stride_h - p->pad_top,
               lines_under(p, count), lines);
    run_rows(job, lines, row, count, lines + floats);
  }
  ext_workspace_free(lines);
  return EXT_OK;
}

int EXT_NAME(ext_conv2d_shallow)(const ext_conv2d_params* p, const float* x, const float* w,
                                 const ext_epilogue* e, float* y) {
  if (p->batch <= 0 || p->out_h <= 0 || p->out_w <= 0 || p->out_c <= 0) return EXT_OK;
  shallow_job job = {.p = p, .x = x, .w = w, .y = y, .flat = 1};
  if (e) job.e = *e;
  job.tail = ext_plan_tail(&job.e);
  job.width = (p->out_w - 1) * p->stride_w + (p->kernel_w - 1) * p->dilation_w + 1;
  if (p->stride_h == 1 && p->stride_w == 1 && !job.e.residual && p->y_stride == p->out_c)
    job.flat = i64_max(1, FLAT_FLOATS / (job.width * p->out_c));
  const int64_t fitting = FLAT_FLOATS / (job.width * p->in_c) / p->stride_h;
  job.most = i64_max(1, job.flat > 1 ? job.flat : fitting);
  const int64_t lines = p->batch * p->out_h;
  const int64_t macs = lines * p->out_w * p->out_c * p->kernel_h * p->kernel_w * p->in_c;
  return ext_parallel_products(lines, i64_max(1, TASK_MACS * lines / i64_max(1, macs)), rows, &job);
}
