/*
 * y[n][oh][ow][o] = requantise(sum_{kh,kw,c} (x[n][ih][iw][g C + c] - x_zero) * w[kh][kw][c][o])
 *
 * with ih = oh sh + kh dh - top and iw = ow sw + kw dw - left,
 * where o is one of the C outputs of group g, which has as many inputs: a multiple of 4.  The tile
 * is that of grouped_tile.h: one vector is VL outputs, and its sums for some neighbouring pixels of
 * an output row stay in registers.  Four inputs of a group are multiplied at once.  Where C is less
 * than VL, VL bytes of x are the inputs of all groups of the vector, and a permutation gives each
 * lane four of its own group; else all lanes take the same four.
 *
 * What lies outside of the image is x_zero.  Sums of a span of pixels go to L1, from where
 * requantise.c finishes them, two panels at once.
 */
#include "conv2d.h"
#include "requantise.h"

/* Multiply-adds of a task at least, some ten microseconds. */
static const int64_t TASK_MACS = 1600000;
enum {
  QUAD = 4,                      /* inputs of a group at once */
  TASK_PIXELS = 224,             /* of one block of channels, where the image has them */
  TASK_CHANNELS = 4 * EXT_PANEL, /* a cache line: no two threads write one */
  PAIR = 2 * EXT_PANEL,          /* columns that are finished at once */
  SPAN = 56                      /* pixels that are */
};

typedef struct {
  ext_conv2d_params p;
  const uint8_t* x;
  const int8_t* w;
  requantise_plan plan;
  uint8_t* y;
  int64_t channels;        /* of a group */
  int64_t k;               /* bytes of a panel */
  int64_t rows, blocks;    /* of a task, of all output rows of the batch; of channels */
  int64_t line_step;       /* of x, between kernel rows */
  int32_t lane[VL];        /* which four of VL bytes are the first ones of lane's group */
  uint8_t nothing[4 * VL]; /* pixels outside of the image */
  uint8_t flip;            /* of x, for units that multiply bytes of one sign */
} qgrouped_job;

/* One vector of outputs of one output row. */
typedef struct {
  const uint8_t* x; /* input 0 of the vector's first group, in column 0 under kernel row 0 */
  int64_t ih;       /* the image row that is */
  const int8_t* w;
  vi start;
  int64_t lanes;      /* outputs */
  int64_t from, past; /* pixels of a span */
  int32_t* sums;      /* [past - from][PAIR] */
} qgrouped_row;

/* Four inputs of each lane's group.  `shared` (a constant): groups share the vector, of whose VL
 * bytes so many are `there`, a constant where it is VL. */
EXT_INLINE vx inputs_of(const int shared, const uint8_t* column, int64_t there, vi lane) {
  if (shared)
    return vx_lanes(there == VL ? vx_load_quarter(column) : vx_load_n(column, there), lane);
  int32_t four;
  memcpy(&four, column, sizeof four);
  return (vx)vi_set1(four);
}

/* Adds four inputs of `taps` columns of one kernel row to `width` pixels (constants both, as are
 * `shared` and `checked`; so is stride, where taps is not 1).  x is that row's column 0, x_stride
 * what lies between columns, w its weight for the first tap.  Pixel i begins at column
 * first + i stride; where `checked`, columns [0, in_w) are there. */
EXT_INLINE void add_taps(const int width, const int taps, const int64_t stride, const int shared,
                         const int checked, const qgrouped_job* job, int64_t there,
                         const uint8_t* x, int64_t x_stride, const int8_t* w, int64_t first,
                         vi lane, vq* sum) {
  const int64_t in_w = job->p.in_w, tap = job->channels * EXT_PANEL;
  const int columns = taps == 1 ? width : (width - 1) * (int)stride + taps;
  const int64_t step = taps == 1 ? stride : 1;
  const vx flip = (vx){0} + job->flip, outside = vx_load(job->nothing) ^ flip;
  vqb weight[3];
  EXT_UNROLL
  for (int k = 0; k < taps; k++) weight[k] = vq_panel(w + k * tap);
  const uint8_t* column = x + first * x_stride;
  EXT_UNROLL
  for (int j = 0; j < columns; j++, column += step * x_stride) {
    vx v = outside;
    if (!checked || (uint64_t)(first + j * step) < (uint64_t)in_w)
      v = inputs_of(shared, column, there, lane) ^ flip;
    EXT_UNROLL
    for (int k = 0; k < taps; k++) {
      const int i = taps == 1 ? j : (j - k) / (int)stride;
      if (taps == 1 || (j >= k && (j - k) % stride == 0 && i < width))
        sum[i] = vq_dot_quads(sum[i], v, weight[k]);
    }
  }
}

/* `width` pixels from ow on.  `taps` kernel columns are taken at a time, with `stride`; where taps
 * is 1, any kernel, stride and dilation will do.  All but the last three are constants. */
EXT_INLINE void tile(const int width, const int taps, const int fixed_stride, const int shared,
                     const int checked, const qgrouped_job* job, const qgrouped_row* at_row,
                     int64_t ow) {
  const ext_conv2d_params* p = &job->p;
  const qgrouped_row copy = *at_row, *row = &copy; /* a vector store may alias it */
  const int64_t stride = taps == 1 ? p->stride_w : fixed_stride;
  const int64_t first = ow * stride - p->pad_left, tap = job->channels * EXT_PANEL;
  const int64_t there = taps == 1 ? row->lanes : VL;
  const vi lanes = vi_load(job->lane);
  vq sum[QGROUPED_W];
  EXT_UNROLL
  for (int i = 0; i < width; i++) sum[i] = vq_start(row->start);
  for (int64_t kh = 0; kh < p->kernel_h; kh++) {
    const int64_t ih = row->ih + kh * p->dilation_h;
    const int inside = ih >= 0 && ih < p->in_h;
    const uint8_t* x = inside ? row->x + kh * job->line_step : job->nothing;
    const int64_t x_stride = inside ? p->x_stride : 0;
    const int8_t* w = row->w + kh * p->kernel_w * tap;
    for (int64_t c = 0; c < job->channels; c += QUAD, w += QUAD * EXT_PANEL) {
      const vi lane = lanes + (int32_t)(c / QUAD);
      const uint8_t* from = shared || !inside ? x : x + c;
      for (int64_t kw = 0; kw < p->kernel_w; kw += taps)
        add_taps(width, taps, stride, shared, checked, job, there, from, x_stride, w + kw * tap,
                 first + kw * p->dilation_w, lane, sum);
    }
  }
  EXT_UNROLL
  for (int i = 0; i < width; i++)
    if (!checked || ow + i < row->past)
      vi_store(row->sums + (ow + i - row->from) * PAIR, vq_sum(sum[i], row->start));
}

typedef void (*tile_function)(const qgrouped_job* job, const qgrouped_row* row, int64_t ow);

/* Tiles of QGROUPED_W and of half as many pixels: [half][checked]. */
typedef const tile_function tile_functions[2][2];
enum { HALF_W = QGROUPED_W / 2 };

#define EXT_TILE(name, width, taps, stride, shared, checked)                       \
  static void name(const qgrouped_job* job, const qgrouped_row* row, int64_t ow) { \
    tile(width, taps, stride, shared, checked, job, row, ow);                      \
  }
#define EXT_TILES_OF(name, taps, stride, shared)                \
  EXT_TILE(name##_inner, QGROUPED_W, taps, stride, shared, 0)   \
  EXT_TILE(name##_border, QGROUPED_W, taps, stride, shared, 1)  \
  EXT_TILE(name##_half, HALF_W, taps, stride, shared, 0)        \
  EXT_TILE(name##_half_border, HALF_W, taps, stride, shared, 1) \
  static tile_functions name = {{name##_inner, name##_border}, {name##_half, name##_half_border}};
EXT_TILES_OF(wide_1, 3, 1, 0)
EXT_TILES_OF(wide_2, 3, 2, 0)
EXT_TILES_OF(shared_1, 3, 1, 1)
EXT_TILES_OF(shared_2, 3, 2, 1)
/* Any kernel, stride and dilation. */
EXT_TILE(wide_any, HALF_W, 1, 0, 0, 1)
EXT_TILE(shared_any, HALF_W, 1, 0, 1, 1)
static tile_functions wide = {{wide_any, wide_any}, {wide_any, wide_any}};
static tile_functions shared = {{shared_any, shared_any}, {shared_any, shared_any}};

static tile_functions* find_tiles(const qgrouped_job* job, int* any) {
  const ext_conv2d_params* p = &job->p;
  const int several = job->channels < VL;
  *any = p->kernel_w != 3 || p->dilation_w != 1 || p->stride_w > 2;
  if (*any) return several ? &shared : &wide;
  if (p->stride_w == 1) return several ? &shared_1 : &wide_1;
  return several ? &shared_2 : &wide_2;
}

/* The tiles of a span and one vector of outputs. */
static void row_tiles(const qgrouped_job* job, const qgrouped_row* row, tile_functions* tiles,
                      int any) {
  const ext_conv2d_params* p = &job->p;
  for (int64_t ow = row->from; ow < row->past;) {
    const int half = any || row->past - ow <= HALF_W;
    const int64_t width = half ? HALF_W : QGROUPED_W;
    const int64_t first = ow * p->stride_w - p->pad_left;
    const int64_t last = first + (width - 1) * p->stride_w + p->kernel_w - 1;
    const int inside = first >= 0 && last < p->in_w && ow + width <= row->past;
    (*tiles)[half][!inside](job, row, ow);
    ow += width;
  }
}

/* A span of output row `index` of the batch, columns [c, c + columns) of one pair of panels. */
static void run_span(const qgrouped_job* job, tile_functions* tiles, int any, int64_t index,
                     int64_t from, int64_t past, int64_t c, int64_t columns, int32_t* sums) {
  const ext_conv2d_params* p = &job->p;
  const ext_requantise* e = &job->plan.e;
  const int64_t pixel = index * p->out_w + from;
  qgrouped_row row = {.from = from, .past = past};
  row.ih = index % p->out_h * p->stride_h - p->pad_top;
  for (int64_t v = 0; v < columns; v += VL) {
    const int64_t o = c + v, line = index / p->out_h * p->in_h + row.ih;
    row.x = job->x + line * p->in_w * p->x_stride + o / job->channels * job->channels;
    row.w = job->w + o / EXT_PANEL * job->k + o % EXT_PANEL * QUAD;
    row.lanes = clamp_lanes(p->out_c - o);
    row.start = vi_set1(0) - vi_load(e->w_sums + o) * job->plan.x_zero;
    row.sums = sums + v;
    if (any || row.lanes == VL)
      row_tiles(job, &row, tiles, any);
    else
      row_tiles(job, &row, job->channels < VL ? &shared : &wide, 1);
  }
  requantise_tile done = {.rows = past - from,
                          .columns = columns,
                          .content = sums,
                          .width = PAIR,
                          .y_row = p->y_stride};
  done.scale = e->scale + c;
  if (e->bias) done.bias = e->bias + c;
  if (e->residual)
    done.residual = (const uint8_t*)e->residual +
                    (pixel * e->residual_stride + c) * quantised_size(e->residual_dtype);
  done.y = job->y + (pixel * p->y_stride + c) * quantised_size(e->y_dtype);
  EXT_NAME(ext_requantise_tile)(&job->plan, TILE_INT32_SUMS, &done);
}

static int qgrouped_tasks(void* context, int64_t begin, int64_t end) {
  const qgrouped_job* job = context;
  const ext_conv2d_params* p = &job->p;
  const int64_t lines = p->batch * p->out_h;
  _Alignas(EXT_ALIGN) int32_t sums[SPAN * PAIR];
  int any;
  tile_functions* tiles = find_tiles(job, &any);
  for (int64_t task = begin; task < end; task++) {
    const int64_t row = task / job->blocks * job->rows, o = task % job->blocks * TASK_CHANNELS;
    for (int64_t i = row; i < i64_min(row + job->rows, lines); i++)
      for (int64_t ow = 0; ow < p->out_w; ow += SPAN)
        for (int64_t c = o; c < i64_min(o + TASK_CHANNELS, p->out_c); c += PAIR)
          run_span(job, tiles, any, i, ow, i64_min(ow + SPAN, p->out_w), c,
                   i64_min(PAIR, p->out_c - c), sums);
  }
  return EXT_OK;
}

int EXT_NAME(ext_qgrouped_conv2d)(const ext_conv2d_params* p, ext_dtype x_dtype, int32_t x_zero,
                                  const void* x, const int8_t* w, const ext_requantise* e,
                                  void* y) {
  if (p->groups < 1 || p->in_c != p->out_c || p->in_c % p->groups) return EXT_ERR_ARGUMENT;
  const int64_t channels = p->in_c / p->groups;
  if (channels % QUAD || (channels % EXT_PANEL && EXT_PANEL % i64_max(1, channels)))
    return EXT_ERR_ARGUMENT;
  if (p->kernel_h * p->kernel_w * channels > EXT_QUANTISED_TERMS) return EXT_ERR_ARGUMENT;
  if (x_dtype != EXT_UINT8 && x_dtype != EXT_INT8) return EXT_ERR_ARGUMENT;
  if (!holds_zero(x_dtype, x_zero)) return EXT_ERR_ARGUMENT;
  const ext_dtype multiplied = QUADS_SIGNED ? EXT_INT8 : EXT_UINT8;
  qgrouped_job job = {.p = *p, .x = x, .w = w, .y = y, .channels = channels};
  const int status = EXT_NAME(ext_plan_requantise)(e, &job.plan);
  if (status) return status;
  if (p->batch <= 0 || p->out_h <= 0 || p->out_w <= 0 || p->out_c <= 0) return EXT_OK;
  job.flip = x_dtype == multiplied ? 0 : 0x80;
  const uint8_t zero = (uint8_t)x_zero ^ job.flip;
  job.plan.x_zero = QUADS_SIGNED ? (int8_t)zero : zero;
  memset(job.nothing, (uint8_t)x_zero, sizeof job.nothing);
  for (int i = 0; i < VL; i++) job.lane[i] = (int32_t)(i / channels * (channels / QUAD));
  job.k = p->kernel_h * p->kernel_w * channels * EXT_PANEL;
  job.line_step = p->dilation_h * p->in_w * p->x_stride;
  job.blocks = ceil_div(p->out_c, TASK_CHANNELS);
  const int64_t lines = p->batch * p->out_h;
  job.rows = i64_min(lines, ceil_div(TASK_PIXELS, p->out_w));
  const int64_t macs = job.rows * p->out_w * i64_min(p->out_c, TASK_CHANNELS) * job.k / EXT_PANEL;
  return ext_parallel_for(ceil_div(lines, job.rows) * job.blocks,
                          i64_max(1, TASK_MACS / i64_max(1, macs)), qgrouped_tasks, &job);
}

EXT_DISPATCH(ext_qgrouped_conv2d,
             (const ext_conv2d_params* p, ext_dtype x_dtype, int32_t x_zero, const void* x,
              const int8_t* w, const ext_requantise* e, void* y),
             (p, x_dtype, x_zero, x, w, e, y))
