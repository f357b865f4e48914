/*
 * depthwise_tile.h - a convolution whose channels are groups of their own, on all threads:
 *
 * y[n][oh][ow][c] = epilogue(sum_{kh,kw} x[n][oh sh + kh dh - top][ow sw + kw dw - left][c]
 *                                        * w[kh][kw][c])
 *
 * One vector is VL channels.  A tile is TILE_W neighbouring pixels of an output row: each input
 * column is loaded once per kernel row and goes to every pixel that it touches.  Rows outside the
 * image are left out of the kernel's range.  Tiles that touch the left or right border, or are not
 * full, ask for each column whether it is there; the others need no checks.
 *
 * The file that includes this one says how x is stored: `enum { X_BF16 = 1 }`, or 0, stands for
 * bf16, or fp32.  Sums, weights and the residual are fp32.  y is fp32, or with X_BF16 what the job
 * says.  With `enum { VOLUMES = 1 }` a window has planes as well, and w is [kd][kh][kw][c].
 */
#ifndef EXT_DEPTHWISE_TILE_H_
#define EXT_DEPTHWISE_TILE_H_

#include "../simd/bf16.h"
#include "activation.h"
#include "conv2d.h"
#include "subnormals.h"

/* Multiply-adds in a task at least, some ten microseconds. */
static const int64_t TASK_MACS = 100000;

/* Output rows below which each is made of parts, and tiles of a part at least. */
static const int64_t FEW_LINES = 8, PART_TILES = 8;

typedef struct {
  ext_conv2d_params p;              /* of one plane, where there are volumes */
  const ext_conv3d_params* volumes; /* NULL for images */
  const void* x;
  const float* w;
  ext_epilogue e;
  ext_tail tail;
  void* y;
  int narrow_y;       /* y is bf16 */
  int64_t w_row;      /* channels padded to EXT_PANEL */
  const float* pairs; /* bias and weights in the order of depthwise_pairs.h */
  int64_t parts;      /* of an output row, for threads to share */
} depthwise_job;

/* One output row: the kernel's planes and rows that lie inside, and their first image row. */
typedef struct {
  const void* x;             /* image row of plane kd0 and row kh0 of the kernel, pixel 0 */
  int64_t kd0, kd1, x_plane; /* of volumes alone */
  int64_t kh0, kh1;
  void* y; /* pixel 0 of the output row */
  const float* residual;
  float* sums; /* NULL, or [TILE_W][w_row]: where a tile's sums wait for an epilogue that is no
                  clamp; behind them as many results, with y as bf16 */
} output_row;

/* What a span of channels has in common: `full` (a constant) says that all VL lanes are there. */
EXT_INLINE vf load(const int full, const float* p, int64_t lanes) {
  return full ? vf_load(p) : vf_load_n(p, lanes);
}

/* The same of x. */
EXT_INLINE vf load_x(const int full, const void* p, int64_t lanes) {
  return stored_load(X_BF16, full, p, 0, lanes);
}

EXT_INLINE vf first_sum(const depthwise_job* job, int64_t c) {
  return job->e.bias ? vf_load(job->e.bias + c) : vf_zero(); /* padded to whole panels */
}

/* Finishes `count` (a constant) neighbouring pixels from pixel i, channel c on; pixel i is the
 * tile's pixel `first`.  With `later` (a constant) the epilogue waits for finish_sums. */
EXT_INLINE void finish(const int count, const int full, const int later, const depthwise_job* job,
                       const output_row* row, int64_t i, int64_t first, int64_t c, int64_t lanes,
                       vf* sum) {
  if (later) {
    EXT_UNROLL
    for (int k = 0; k < count; k++) vf_store(row->sums + (first + k) * job->w_row + c, sum[k]);
    return;
  }
  int64_t y_stride = job->p.y_stride, residual_stride = job->e.residual_stride;
  const int64_t at = i * y_stride + c;
  const float* residual = row->residual ? row->residual + i * residual_stride + c : NULL;
  if (residual) {
    EXT_UNROLL
    for (int k = 0; k < count; k++) sum[k] += load(full, residual + k * residual_stride, lanes);
  }
  vf low = vf_set1(job->tail.low), high = vf_set1(job->tail.high);
  EXT_UNROLL
  for (int k = 0; k < count; k++) sum[k] = vf_min(high, vf_max(low, sum[k]));
  if (X_BF16 && job->narrow_y) {
    EXT_UNROLL
    for (int k = 0; k < count; k++) stored_store(1, full, row->y, at + k * y_stride, sum[k], lanes);
  } else {
    EXT_UNROLL
    for (int k = 0; k < count; k++) stored_store(0, full, row->y, at + k * y_stride, sum[k], lanes);
  }
}

/* Applies an epilogue that is no clamp to pixels [i, i + count) of a row, all channels at once: the
 * functions in it are fastest over long runs. */
EXT_INLINE void finish_sums(const depthwise_job* job, const output_row* row, int64_t i,
                            int64_t count) {
  const float* residual = row->residual ? row->residual + i * job->e.residual_stride : NULL;
  const int narrow = X_BF16 && job->narrow_y;
  float* result = row->sums + TILE_W * job->w_row;
  const int64_t channels = job->p.in_c, y_stride = job->p.y_stride;
  EXT_NAME(ext_finish_tile)
  (&job->e, count, channels, row->sums, job->w_row, residual, job->e.residual_stride,
   narrow ? result : (float*)row->y + i * y_stride, narrow ? job->w_row : y_stride);
  if (!narrow) return;
  for (int64_t k = 0; k < count; k++) {
    const float* from = result + k * job->w_row;
    const int64_t at = (i + k) * y_stride;
    int64_t c = 0;
    for (; c + VL <= channels; c += VL) stored_store(1, 1, row->y, at + c, vf_load(from + c), VL);
    if (c < channels) stored_store(1, 0, row->y, at + c, vf_load(from + c), channels - c);
  }
}

/* Planes of the window, and where plane `kd` of it begins. */
EXT_INLINE int64_t planes_of(const output_row* row) {
  return VOLUMES ? row->kd1 - row->kd0 : 1;
}
EXT_INLINE const void* plane_of_x(const output_row* row, const void* x, int64_t kd) {
  return VOLUMES ? stored_element(X_BF16, x, kd * row->x_plane) : x;
}
EXT_INLINE const float* plane_of_w(const depthwise_job* job, const output_row* row, int64_t kd) {
  const int64_t lines = VOLUMES ? (row->kd0 + kd) * job->p.kernel_h : 0;
  return job->w + (lines + row->kh0) * job->p.kernel_w * job->w_row;
}

/* The taps of one pixel's window that lie inside the image. */
typedef struct {
  int64_t kw0, kh, kw, x_row, x_tap;
  const void* x; /* of the first such tap */
} taps_inside;

EXT_INLINE void pixel_channels(const int full, const depthwise_job* job, const output_row* row,
                               const taps_inside* in, int64_t ow, int64_t c, int64_t lanes) {
  vf sum = first_sum(job, c), odd = vf_zero();
  for (int64_t at = 0; at < planes_of(row) * in->kh; at++) {
    const int64_t kd = VOLUMES ? at / in->kh : 0, i = at - kd * in->kh;
    const float* w = plane_of_w(job, row, kd) + (i * job->p.kernel_w + in->kw0) * job->w_row + c;
    const void* x = stored_element(X_BF16, plane_of_x(row, in->x, kd), i * in->x_row + c);
    const void* next = stored_element(X_BF16, x, in->x_tap);
    int64_t k = 0;
    for (; k + 2 <= in->kw; k += 2, w += 2 * job->w_row) {
      sum = vf_fma(load_x(full, x, lanes), vf_load(w), sum);
      odd = vf_fma(load_x(full, next, lanes), vf_load(w + job->w_row), odd);
      x = stored_element(X_BF16, x, 2 * in->x_tap);
      next = stored_element(X_BF16, x, in->x_tap);
    }
    if (k < in->kw) sum = vf_fma(load_x(full, x, lanes), vf_load(w), sum);
  }
  sum += odd;
  if (row->sums)
    finish(1, full, 1, job, row, ow, 0, c, lanes, &sum);
  else
    finish(1, full, 0, job, row, ow, 0, c, lanes, &sum);
}

/* One pixel, any kernel. */
static void pixel(const depthwise_job* job, const output_row* row, int64_t ow) {
  const ext_conv2d_params* p = &job->p;
  int64_t iw0 = ow * p->stride_w - p->pad_left;
  int64_t kw0 = iw0 < 0 ? ceil_div(-iw0, p->dilation_w) : 0;
  int64_t kw1 = iw0 < p->in_w ? i64_min(p->kernel_w, ceil_div(p->in_w - iw0, p->dilation_w)) : 0;
  taps_inside in = {.kw0 = kw0, .kh = row->kh1 - row->kh0, .kw = kw1 - kw0};
  in.x_row = p->dilation_h * p->in_w * p->x_stride;
  in.x_tap = p->dilation_w * p->x_stride;
  if (in.kw > 0) {
    in.x = stored_element(X_BF16, row->x, (iw0 + kw0 * p->dilation_w) * p->x_stride);
  } else {
    in.kh = 0;
  }
  int64_t c = 0;
  for (; c + VL <= p->in_c; c += VL) pixel_channels(1, job, row, &in, ow, c, VL);
  if (c < p->in_c) pixel_channels(0, job, row, &in, ow, c, p->in_c - c);
  if (row->sums) finish_sums(job, row, ow, 1);
}

/* TILE_W pixels from ow on, one vector of channels; kernel width `taps` and `stride` are constants,
 * dilation_w is 1.  `checked` (a constant): columns may be missing, and so may pixels. */
EXT_INLINE void tile_channels(const int taps, const int stride, const int checked, const int full,
                              const int later, const depthwise_job* job, const output_row* row,
                              int64_t ow, int64_t c, int64_t lanes) {
  const ext_conv2d_params* p = &job->p;
  const int columns = (TILE_W - 1) * stride + taps;
  int64_t x_stride = p->x_stride, x_row = p->dilation_h * p->in_w * x_stride;
  int64_t w_tap = job->w_row, iw0 = ow * stride - p->pad_left;
  int64_t before = iw0 < 0 ? -iw0 : 0, past = p->in_w - iw0; /* columns [before, past) are there */
  vf sum[TILE_W];
  sum[0] = first_sum(job, c);
  EXT_UNROLL
  for (int i = 1; i < TILE_W; i++) sum[i] = sum[0];
  for (int64_t kd = 0; kd < planes_of(row); kd++) {
    const void* x =
        stored_element(X_BF16, plane_of_x(row, row->x, kd), (iw0 + before) * x_stride + c);
    const float* w = plane_of_w(job, row, kd) + c;
    for (int64_t kh = row->kh0; kh < row->kh1; kh++, x = stored_element(X_BF16, x, x_row)) {
      vf weight[8];
      EXT_UNROLL
      for (int k = 0; k < taps; k++, w += w_tap) weight[k] = vf_load(w);
      const void* column = x;
      EXT_UNROLL
      for (int j = 0; j < columns; j++) {
        if (checked && (j < before || j >= past)) continue;
        vf v = vf_keep(load_x(full, column, lanes));
        column = stored_element(X_BF16, column, x_stride);
        EXT_UNROLL
        for (int k = 0; k < taps; k++) {
          int i = (j - k) / stride;
          if (j >= k && (j - k) % stride == 0 && i < TILE_W) sum[i] = vf_fma(v, weight[k], sum[i]);
        }
      }
    }
  }
  if (!checked || ow + TILE_W <= p->out_w) {
    finish(TILE_W, full, later, job, row, ow, 0, c, lanes, sum);
    return;
  }
  float rest[TILE_W * VL];
  EXT_UNROLL
  for (int i = 0; i < TILE_W; i++) vf_store(rest + i * VL, sum[i]);
  for (int64_t i = 0; ow + i < p->out_w; i++) {
    vf one = vf_load(rest + i * VL);
    finish(1, full, later, job, row, ow + i, i, c, lanes, &one);
  }
}

/* The job and the row are copied: a vector store may alias what a pointer leads to, and nothing
 * would stay in registers from one vector of channels to the next. */
EXT_INLINE void tile(const int taps, const int stride, const int checked, const int later,
                     const depthwise_job* at, const output_row* at_row, int64_t ow) {
  const depthwise_job job = *at;
  const output_row row = *at_row;
  int64_t c = 0, channels = job.p.in_c;
  for (; c + VL <= channels; c += VL)
    tile_channels(taps, stride, checked, 1, later, &job, &row, ow, c, VL);
  if (c < channels) tile_channels(taps, stride, checked, 0, later, &job, &row, ow, c, channels - c);
  if (later) finish_sums(&job, &row, ow, i64_min(TILE_W, job.p.out_w - ow));
}

/* TILE_W pixels from ow on, all of whose columns are there, and any kernel: a tap's weight is
 * loaded once for all of them. */
EXT_INLINE void any_channels(const int full, const int later, const depthwise_job* job,
                             const output_row* row, int64_t ow, int64_t c, int64_t lanes) {
  const ext_conv2d_params* p = &job->p;
  const int64_t x_row = p->dilation_h * p->in_w * p->x_stride, x_tap = p->dilation_w * p->x_stride;
  const int64_t next = p->stride_w * p->x_stride;
  const int64_t first = (ow * p->stride_w - p->pad_left) * p->x_stride + c;
  vf sum[TILE_W];
  sum[0] = first_sum(job, c);
  EXT_UNROLL
  for (int i = 1; i < TILE_W; i++) sum[i] = sum[0];
  for (int64_t kd = 0; kd < planes_of(row); kd++) {
    const void* line = stored_element(X_BF16, plane_of_x(row, row->x, kd), first);
    const float* w = plane_of_w(job, row, kd) + c;
    for (int64_t kh = row->kh0; kh < row->kh1; kh++, line = stored_element(X_BF16, line, x_row)) {
      const void* tap = line;
      for (int64_t k = 0; k < p->kernel_w; k++, w += job->w_row) {
        const vf weight = vf_load(w);
        EXT_UNROLL
        for (int i = 0; i < TILE_W; i++)
          sum[i] =
              vf_fma(load_x(full, stored_element(X_BF16, tap, i * next), lanes), weight, sum[i]);
        tap = stored_element(X_BF16, tap, x_tap);
      }
    }
  }
  finish(TILE_W, full, later, job, row, ow, 0, c, lanes, sum);
}

EXT_INLINE void any_tile(const int later, const depthwise_job* at, const output_row* at_row,
                         int64_t ow) {
  const depthwise_job job = *at;
  const output_row row = *at_row;
  int64_t c = 0, channels = job.p.in_c;
  for (; c + VL <= channels; c += VL) any_channels(1, later, &job, &row, ow, c, VL);
  if (c < channels) any_channels(0, later, &job, &row, ow, c, channels - c);
  if (later) finish_sums(&job, &row, ow, TILE_W);
}

/* Pixels [begin, end) of a row by any kernel: in tiles, but at the borders. */
static void any_pixels(const depthwise_job* job, const output_row* row, int64_t begin,
                       int64_t end) {
  const ext_conv2d_params* p = &job->p;
  const int64_t reach = (p->kernel_w - 1) * p->dilation_w;
  for (int64_t ow = begin; ow < end;) {
    const int64_t first = ow * p->stride_w - p->pad_left;
    const int64_t last = first + (TILE_W - 1) * p->stride_w + reach;
    if (first < 0 || last >= p->in_w || ow + TILE_W > end) {
      pixel(job, row, ow++);
      continue;
    }
    if (row->sums)
      any_tile(1, job, row, ow);
    else
      any_tile(0, job, row, ow);
    ow += TILE_W;
  }
}

typedef void (*tile_function)(const depthwise_job* job, const output_row* row, int64_t ow);

/* The four functions for a kernel width and a stride: [later][checked]. */
#define EXT_TILE_OF(taps, stride, name, checked, later)                                 \
  static void name##_##taps##_##stride(const depthwise_job* job, const output_row* row, \
                                       int64_t ow) {                                    \
    tile(taps, stride, checked, later, job, row, ow);                                   \
  }
#define EXT_TILES_OF(taps, stride)                             \
  EXT_TILE_OF(taps, stride, inner, 0, 0)                       \
  EXT_TILE_OF(taps, stride, border, 1, 0)                      \
  EXT_TILE_OF(taps, stride, inner_later, 0, 1)                 \
  EXT_TILE_OF(taps, stride, border_later, 1, 1)                \
  static const tile_function tiles_##taps##_##stride[2][2] = { \
      {inner_##taps##_##stride, border_##taps##_##stride},     \
      {inner_later_##taps##_##stride, border_later_##taps##_##stride}};
EXT_TILES_OF(3, 1)
EXT_TILES_OF(3, 2)
EXT_TILES_OF(5, 1)
EXT_TILES_OF(5, 2)
EXT_TILES_OF(7, 1)
EXT_TILES_OF(7, 2)

/* NULL, or the functions for tiles inside of the image and at its border. */
static const tile_function* find_tiles(const ext_conv2d_params* p, int later) {
#define EXT_CASE(taps, stride)                                                \
  if (p->dilation_w == 1 && p->kernel_w == (taps) && p->stride_w == (stride)) \
  return tiles_##taps##_##stride[later]
  EXT_CASE(3, 1);
  EXT_CASE(3, 2);
  EXT_CASE(5, 1);
  EXT_CASE(5, 2);
  EXT_CASE(7, 1);
  EXT_CASE(7, 2);
#undef EXT_CASE
  return NULL;
}

/* The planes of the kernel that row `index` of all volumes reads, and the first plane of x. */
static int64_t find_planes(const ext_conv3d_params* v, int64_t index, output_row* row) {
  const int64_t plane = index / v->out_h, n = plane / v->out_d;
  const int64_t first = (plane - n * v->out_d) * v->stride_d - v->pad_front;
  row->x_plane = v->dilation_d * v->in_h * v->in_w * v->in_c;
  row->kd0 = first < 0 ? ceil_div(-first, v->dilation_d) : 0;
  row->kd1 = first < v->in_d ? i64_min(v->kernel_d, ceil_div(v->in_d - first, v->dilation_d)) : 0;
  row->kd0 = i64_min(row->kd0, row->kd1);
  return n * v->in_d + (row->kd0 < row->kd1 ? first + row->kd0 * v->dilation_d : 0);
}

/* Part `item % parts` of output row item / parts. */
static void part_of_row(const depthwise_job* job, int64_t item, const tile_function* tiles,
                        float* sums) {
  const ext_conv2d_params* p = &job->p;
  const int64_t index = item / job->parts, part = item - index * job->parts;
  const int64_t count = ceil_div(p->out_w, TILE_W);
  const int64_t begin = part * count / job->parts * TILE_W;
  const int64_t end = i64_min(p->out_w, (part + 1) * count / job->parts * TILE_W);
  output_row row = {.sums = sums};
  kernel_rows inside = kernel_rows_inside(p, VOLUMES ? index % p->out_h : index);
  if (VOLUMES) inside.line += find_planes(job->volumes, index, &row) * p->in_h;
  row.kh0 = inside.first;
  row.kh1 = inside.past;
  row.x = stored_element(X_BF16, job->x, inside.line * p->in_w * p->x_stride);
  row.y = (void*)stored_element(job->narrow_y, job->y, index * p->out_w * p->y_stride);
  row.residual =
      job->e.residual ? job->e.residual + index * p->out_w * job->e.residual_stride : NULL;
  if (!tiles) {
    any_pixels(job, &row, begin, end);
    return;
  }
  for (int64_t ow = begin; ow < end; ow += TILE_W) {
    int64_t first = ow * p->stride_w - p->pad_left;
    int64_t last = first + (TILE_W - 1) * p->stride_w + p->kernel_w - 1;
    int inside = first >= 0 && last < p->in_w && ow + TILE_W <= p->out_w;
    tiles[!inside](job, &row, ow);
  }
}

static int rows(void* context, int64_t begin, int64_t end) {
  const depthwise_job* job = context;
  const tile_function* tiles = find_tiles(&job->p, !job->tail.clamp);
  float* sums = NULL;
  if (!job->tail.clamp) {
    const int64_t tiles_of_sums = 1 + (X_BF16 && job->narrow_y);
    sums = ext_workspace_alloc((size_t)(tiles_of_sums * TILE_W * job->w_row) * sizeof(float));
    if (!sums) return EXT_ERR_MEMORY;
  }
  for (int64_t i = begin; i < end; i++) part_of_row(job, i, tiles, sums);
  ext_workspace_free(sums);
  return EXT_OK;
}

#include "depthwise_pairs.h"

/* The convolution on all threads; `volumes` is NULL, or what has planes of p as its own. */
static int run_depthwise(const ext_conv2d_params* p, const ext_conv3d_params* volumes,
                         const void* x, const float* w, const ext_epilogue* e, void* y,
                         int narrow_y) {
  if (p->groups != p->in_c || p->groups != p->out_c) return EXT_ERR_ARGUMENT;
  depthwise_job job = {.p = *p, .volumes = volumes, .x = x, .w = w, .y = y, .narrow_y = narrow_y};
  if (e) job.e = *e;
  job.tail = ext_plan_tail(&job.e);
  job.w_row = ceil_div(p->in_c, EXT_PANEL) * EXT_PANEL;
  const int64_t planes = VOLUMES ? volumes->kernel_d : 1;
  const int64_t lines = p->batch * (VOLUMES ? volumes->out_d : 1) * p->out_h;
  const int64_t macs = i64_max(1, p->out_w * p->in_c * planes * p->kernel_h * p->kernel_w);
  const int64_t grain = i64_max(1, TASK_MACS / macs);
  if (VOLUMES || !runs_in_pairs(&job)) {
    /* Few long rows, as those of sound, are shared as well. */
    job.parts = lines < FEW_LINES ? i64_max(1, ceil_div(p->out_w, TILE_W) / PART_TILES) : 1;
    return ext_parallel_products(lines * job.parts, i64_max(1, TASK_MACS * job.parts / macs), rows,
                                 &job);
  }
  float* pairs = ext_workspace_alloc((size_t)(pairs_blocks(p) * pairs_size(p)) * sizeof(float));
  if (!pairs) return EXT_ERR_MEMORY;
  pack_pairs(&job, pairs);
  job.pairs = pairs;
  const int status = ext_parallel_products(lines, grain, pairs_rows, &job);
  ext_workspace_free(pairs);
  return status;
}

#endif /* EXT_DEPTHWISE_TILE_H_ */
