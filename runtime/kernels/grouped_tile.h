/*
 * grouped_tile.h - a convolution of groups of channels, on all threads:
 *
 * y[n][oh][ow][o] = epilogue(sum_{kh,kw,c} x[n][oh sh + kh dh - top][ow sw + kw dw - left][g C + c]
 *                                          * w[kh][kw][c][o])
 *
 * where o is one of the O outputs of group g, and C its inputs.  One vector is VL outputs.  Where O
 * is less, it has those of several groups: one vector of x then holds the inputs of all of them,
 * and a permutation gives each lane input c of its own group.  Else all lanes take the same input,
 * a broadcast.
 *
 * A tile is up to GROUPED_W neighbouring pixels of an output row: each input column is permuted
 * once for each kernel row and input, and goes to every pixel that it touches.  Rows outside of the
 * image are left out of the kernel's range.  Tiles that touch the left or right border, or are not
 * full, ask for each column whether it is there; the others need no checks.
 *
 * A task is some rows of one panel of outputs, whose weights stay in L1 meanwhile.
 *
 * The file that includes this one says how x is stored: `enum { X_BF16 = 1 }`, or 0, stands for
 * bf16, or fp32.  Sums, weights and the residual are fp32.  y is fp32, or with X_BF16 what the job
 * says.
 */
#ifndef EXT_GROUPED_TILE_H_
#define EXT_GROUPED_TILE_H_

#include "../simd/bf16.h"
#include "activation.h"
#include "conv2d.h"
#include "subnormals.h"

/* Multiply-adds of a task at least, some ten microseconds. */
static const int64_t TASK_MACS = 400000;
/* Pixels for which a panel's weights are read at least, where the image has them. */
static const int64_t TASK_PIXELS = 56;

typedef struct {
  ext_conv2d_params p;
  const void* x;
  const float* w;
  ext_epilogue e;
  ext_tail tail;
  void* y;
  int narrow_y;            /* y is bf16 */
  int64_t inputs, outputs; /* of one group */
  int64_t panels, k;       /* panels of outputs, rows of a panel */
  int64_t rows;            /* of a task, of all output rows of the batch */
  int32_t lane[VL];        /* where lane's group begins, from the first one of a vector */
} grouped_job;

/* One vector of outputs of one output row. */
typedef struct {
  const void* x;  /* input 0 of the vector's first group, in column 0 of kernel row kh0 */
  const float* w; /* kernel row kh0 */
  vf bias;
  int64_t kh0, kh1;
  int64_t there; /* floats of x from its first one on to the pixel's last one, at most VL */
  int64_t lanes; /* outputs */
  void* y;       /* pixel 0 */
  const float* residual;
} grouped_row;

/* Input `c` of each lane's group.  `column` is a pixel of x; `shared` (a constant): groups share
 * the vector, whose inputs begin there; `full` (a constant): a whole vector of x is there. */
EXT_INLINE vf inputs_of(const int shared, const int full, const void* column, int64_t there,
                        int64_t c, vi lane) {
  if (shared) return vf_lanes(stored_load(X_BF16, full, column, 0, there), lane);
  return X_BF16 ? vf_set1_bf16((const uint16_t*)column + c) : vf_set1(((const float*)column)[c]);
}

/* Applies an epilogue to `count` pixels from pixel i on. */
EXT_INLINE void finish(const int count, const grouped_job* job, const grouped_row* row, int64_t i,
                       vf* sum) {
  const int64_t y_stride = job->p.y_stride, residual_stride = job->e.residual_stride;
  const int narrow = X_BF16 && job->narrow_y;
  const float* residual = row->residual ? row->residual + i * residual_stride : NULL;
  if (!job->tail.clamp) {
    float t[GROUPED_W * VL], result[GROUPED_W * VL];
    EXT_UNROLL
    for (int k = 0; k < count; k++) vf_store(t + k * VL, sum[k]);
    EXT_NAME(ext_finish_tile)
    (&job->e, count, row->lanes, t, VL, residual, residual_stride,
     narrow ? result : (float*)row->y + i * y_stride, narrow ? VL : y_stride);
    if (!narrow) return;
    for (int k = 0; k < count; k++)
      vbf_store_n((uint16_t*)row->y + (i + k) * y_stride, vbf_round(vf_load(result + k * VL)),
                  row->lanes);
    return;
  }
  const vf low = vf_set1(job->tail.low), high = vf_set1(job->tail.high);
  const int full = row->lanes == VL;
  if (residual) {
    EXT_UNROLL
    for (int k = 0; k < count; k++) {
      const float* from = residual + k * residual_stride;
      sum[k] += full ? vf_load(from) : vf_load_n(from, row->lanes);
    }
  }
  EXT_UNROLL
  for (int k = 0; k < count; k++) sum[k] = vf_min(high, vf_max(low, sum[k]));
  void* y = (void*)stored_element(narrow, row->y, i * y_stride);
  EXT_UNROLL
  for (int k = 0; k < count; k++) stored_store(narrow, full, y, k * y_stride, sum[k], row->lanes);
}

/* Adds `chunk` inputs from c on of `taps` columns of one kernel row to `width` pixels (constants
 * all).  x is that row's column 0, w its weight for input c of the first tap.  Pixel i begins at
 * column first + i stride; columns [0, in_w) are there. */
EXT_INLINE void add_taps(const int width, const int taps, const int64_t stride, const int chunk,
                         const int shared, const int checked, const grouped_job* job,
                         const grouped_row* row, const void* x, const float* w, int64_t first,
                         int64_t c, const vi* lane, vf* sum) {
  const int64_t x_stride = job->p.x_stride, in_w = job->p.in_w, tap = job->inputs * EXT_PANEL;
  const int columns = taps == 1 ? width : (width - 1) * (int)stride + taps;
  const int64_t step = taps == 1 ? stride : 1;
  vf weight[3 * GROUPED_C];
  EXT_UNROLL
  for (int k = 0; k < taps; k++) EXT_UNROLL
  for (int d = 0; d < chunk; d++) weight[k * chunk + d] = vf_load(w + k * tap + d * EXT_PANEL);
  const void* column = stored_element(X_BF16, x, first * x_stride + (shared ? 0 : c));
  EXT_UNROLL
  for (int j = 0; j < columns; j++, column = stored_element(X_BF16, column, step * x_stride)) {
    if (checked && (uint64_t)(first + j * step) >= (uint64_t)in_w) continue;
    EXT_UNROLL
    for (int d = 0; d < chunk; d++) {
      const vf v = vf_keep(inputs_of(shared, !checked, column, row->there, d, lane[d]));
      EXT_UNROLL
      for (int k = 0; k < taps; k++) {
        const int i = taps == 1 ? j : (j - k) / (int)stride;
        if (taps == 1 || (j >= k && (j - k) % stride == 0 && i < width))
          sum[i] = vf_fma(v, weight[k * chunk + d], sum[i]);
      }
    }
  }
}

/* `width` pixels from ow on.  `taps` kernel columns are taken at a time, with `stride`; where taps
 * is 1, any kernel, stride and dilation will do.  All but the last three are constants. */
EXT_INLINE void tile(const int width, const int taps, const int fixed_stride, const int chunk,
                     const int shared, const int checked, const grouped_job* at,
                     const grouped_row* at_row, int64_t ow) {
  /* Copied: a vector store may alias what a pointer leads to. */
  const grouped_job job = *at;
  const grouped_row row = *at_row;
  const ext_conv2d_params* p = &job.p;
  const int64_t stride = taps == 1 ? p->stride_w : fixed_stride;
  const int64_t x_row = p->dilation_h * p->in_w * p->x_stride, first = ow * stride - p->pad_left;
  const int64_t w_row = p->kernel_w * job.inputs * EXT_PANEL;
  const vi lanes = vi_load(job.lane);
  vf sum[GROUPED_W];
  EXT_UNROLL
  for (int i = 0; i < width; i++) sum[i] = row.bias;
  for (int64_t kh = row.kh0; kh < row.kh1; kh++)
    for (int64_t c = 0; c < job.inputs; c += chunk) {
      const void* x = stored_element(X_BF16, row.x, (kh - row.kh0) * x_row);
      const float* w = row.w + (kh - row.kh0) * w_row + c * EXT_PANEL;
      vi lane[GROUPED_C];
      EXT_UNROLL
      for (int d = 0; d < chunk; d++) lane[d] = lanes + (int32_t)(c + d);
      if (taps > 1)
        add_taps(width, taps, stride, chunk, shared, checked, &job, &row, x, w, first, c, lane,
                 sum);
      else
        for (int64_t kw = 0; kw < p->kernel_w; kw++)
          add_taps(width, 1, stride, chunk, shared, checked, &job, &row, x,
                   w + kw * job.inputs * EXT_PANEL, first + kw * p->dilation_w, c, lane, sum);
    }
  if (!checked || ow + width <= p->out_w) {
    finish(width, &job, &row, ow, sum);
    return;
  }
  float rest[GROUPED_W * VL];
  EXT_UNROLL
  for (int i = 0; i < width; i++) vf_store(rest + i * VL, sum[i]);
  for (int64_t i = 0; ow + i < p->out_w; i++) {
    vf one = vf_load(rest + i * VL);
    finish(1, &job, &row, ow + i, &one);
  }
}

typedef void (*tile_function)(const grouped_job* job, const grouped_row* row, int64_t ow);

/* Tiles of GROUPED_W and of half as many pixels: [half][checked]. */
typedef const tile_function tile_functions[2][2];
enum { HALF_W = GROUPED_W / 2 };

#define EXT_TILE(name, width, taps, stride, chunk, shared, checked)              \
  static void name(const grouped_job* job, const grouped_row* row, int64_t ow) { \
    tile(width, taps, stride, chunk, shared, checked, job, row, ow);             \
  }
#define EXT_TILES_OF(name, taps, stride, chunk, shared)                \
  EXT_TILE(name##_inner, GROUPED_W, taps, stride, chunk, shared, 0)    \
  EXT_TILE(name##_border, GROUPED_W, taps, stride, chunk, shared, 1)   \
  EXT_TILE(name##_half, HALF_W, taps, stride, chunk, shared, 0)        \
  EXT_TILE(name##_half_border, HALF_W, taps, stride, chunk, shared, 1) \
  static tile_functions name = {{name##_inner, name##_border}, {name##_half, name##_half_border}};
EXT_TILES_OF(wide_1, 3, 1, GROUPED_C, 0)
EXT_TILES_OF(wide_2, 3, 2, GROUPED_C, 0)
EXT_TILES_OF(shared_1, 3, 1, GROUPED_C, 1)
EXT_TILES_OF(shared_2, 3, 2, GROUPED_C, 1)
/* Any kernel, stride, dilation and number of inputs. */
EXT_TILE(wide_any, HALF_W, 1, 0, 1, 0, 1)
EXT_TILE(shared_any, HALF_W, 1, 0, 1, 1, 1)
static tile_functions wide = {{wide_any, wide_any}, {wide_any, wide_any}};
static tile_functions shared = {{shared_any, shared_any}, {shared_any, shared_any}};

static tile_functions* find_tiles(const grouped_job* job, int* any) {
  const ext_conv2d_params* p = &job->p;
  const int several = job->outputs < VL;
  *any = p->kernel_w != 3 || p->dilation_w != 1 || p->stride_w > 2 || job->inputs % GROUPED_C;
  if (*any) return several ? &shared : &wide;
  if (p->stride_w == 1) return several ? &shared_1 : &wide_1;
  return several ? &shared_2 : &wide_2;
}

/* The tiles of one output row and one vector of outputs. */
static void row_tiles(const grouped_job* job, const grouped_row* row, tile_functions* tiles,
                      int any) {
  const ext_conv2d_params* p = &job->p;
  for (int64_t ow = 0; ow < p->out_w;) {
    const int half = any || p->out_w - ow <= HALF_W;
    const int64_t width = half ? HALF_W : GROUPED_W;
    const int64_t first = ow * p->stride_w - p->pad_left;
    const int64_t last = first + (width - 1) * p->stride_w + p->kernel_w - 1;
    const int inside = first >= 0 && last < p->in_w && ow + width <= p->out_w && row->there == VL;
    (*tiles)[half][!inside](job, row, ow);
    ow += width;
  }
}

/* Output row `index` of the batch, vector of outputs from `first` on. */
static void one_vector(const grouped_job* job, int64_t index, int64_t first, tile_functions* tiles,
                       int any) {
  const ext_conv2d_params* p = &job->p;
  const kernel_rows inside = kernel_rows_inside(p, index);
  const int64_t input = first / job->outputs * job->inputs, pixel = index * p->out_w;
  const float* panel = job->w + first / EXT_PANEL * job->k * EXT_PANEL + first % EXT_PANEL;
  grouped_row row = {
      .kh0 = inside.first,
      .kh1 = inside.past,
      .x = stored_element(X_BF16, job->x, inside.line * p->in_w * p->x_stride + input),
      .w = panel + inside.first * p->kernel_w * job->inputs * EXT_PANEL,
      .bias = job->e.bias ? vf_load(job->e.bias + first) : vf_zero(),
      .there = job->outputs < VL ? clamp_lanes(p->in_c - input) : VL,
      .lanes = clamp_lanes(p->out_c - first),
      .y = (void*)stored_element(job->narrow_y, job->y, pixel * p->y_stride + first)};
  if (job->e.residual) row.residual = job->e.residual + pixel * job->e.residual_stride + first;
  row_tiles(job, &row, tiles, any);
}

static int tasks(void* context, int64_t begin, int64_t end) {
  const grouped_job* job = context;
  const int64_t lines = job->p.batch * job->p.out_h;
  int any;
  tile_functions* tiles = find_tiles(job, &any);
  for (int64_t task = begin; task < end; task++) {
    const int64_t row = task / job->panels * job->rows, o = task % job->panels * EXT_PANEL;
    for (int64_t v = o; v < i64_min(o + EXT_PANEL, job->p.out_c); v += VL)
      for (int64_t i = row; i < i64_min(row + job->rows, lines); i++)
        one_vector(job, i, v, tiles, any);
  }
  return EXT_OK;
}

/* The convolution on all threads. */
static int run_grouped(const ext_conv2d_params* p, const void* x, const float* w,
                       const ext_epilogue* e, void* y, int narrow_y) {
  if (p->groups < 1 || p->in_c % p->groups || p->out_c % p->groups) return EXT_ERR_ARGUMENT;
  if (p->batch <= 0 || p->out_h <= 0 || p->out_w <= 0 || p->out_c <= 0) return EXT_OK;
  grouped_job job = {.p = *p, .x = x, .w = w, .y = y, .narrow_y = narrow_y};
  job.inputs = p->in_c / p->groups;
  job.outputs = p->out_c / p->groups;
  const int whole = job.outputs % EXT_PANEL == 0;
  if (!whole && (EXT_PANEL % job.outputs || job.inputs > job.outputs)) return EXT_ERR_ARGUMENT;
  if (e) job.e = *e;
  job.tail = ext_plan_tail(&job.e);
  for (int i = 0; i < VL; i++) job.lane[i] = (int32_t)(i / job.outputs * job.inputs);
  job.panels = ceil_div(p->out_c, EXT_PANEL);
  job.k = p->kernel_h * p->kernel_w * job.inputs;
  const int64_t lines = p->batch * p->out_h;
  job.rows = i64_min(lines, ceil_div(TASK_PIXELS, p->out_w));
  const int64_t macs = job.rows * p->out_w * EXT_PANEL * job.k;
  return ext_parallel_products(ceil_div(lines, job.rows) * job.panels,
                               i64_max(1, TASK_MACS / i64_max(1, macs)), tasks, &job);
}

#endif /* EXT_GROUPED_TILE_H_ */
