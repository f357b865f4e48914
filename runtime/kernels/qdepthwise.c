/*
 * y[n][oh][ow][c] = requantise(sum_{kh,kw} (x[n][oh sh + kh dh - top][ow sw + kw dw - left][c]
 *                                           - x_zero) * w[kh][kw][c])
 *
 * A block of channels is 4 VL: the bytes of a vector.  Of every image column under an output row,
 * rows are interleaved by fours, so that the instruction for products of 8-bit integers sums up
 * four kernel rows of a channel; a column serves all kernel columns that it meets.  What lies
 * outside the image is x_zero.  Interleaving goes by 16 bytes, and so do the channels of the sums:
 * lane 4 l + i of vector v is channel 16 l + 4 v + i of the block.
 */
#include "conv2d.h"
#include "requantise.h"

/* Multiply-adds in a task at least, some ten microseconds. */
static const int64_t TASK_MACS = 200000;
enum {
  BLOCK = 4 * VL,      /* channels */
  QUAD = 4,            /* kernel rows that are summed up at once */
  QUADS = QUAD * BLOCK /* bytes of an interleaved column */
};
/* Output pixels whose columns are interleaved at once, and stay in L1. */
enum { SPAN = 32 };

typedef struct {
  ext_conv2d_params p;
  const uint8_t* x;
  ext_dtype x_dtype;
  uint8_t x_zero; /* as interleaved: with x_flip */
  uint8_t x_flip, y_flip;
  const int8_t* w;
  requantise_plan plan;
  uint8_t* y;
  int64_t w_row; /* channels, padded to EXT_PANEL */
  int64_t quads; /* of kernel rows */
  int64_t columns;
} qdepthwise_job;

/* Of a block of channels, as the lanes of its sums have them. */
typedef struct {
  int64_t c, channels;
  int32_t start[BLOCK];
  float factor[BLOCK], shift[BLOCK];
  uint8_t* w;       /* [quads][kernel_w][QUADS] */
  uint8_t* columns; /* [quads][columns][QUADS] */
  int32_t* sums;    /* [SPAN][BLOCK] in the order of channels; where plan.direct does not hold */
} channel_block;

EXT_INLINE int channel_of(int lane) {
  int v = lane / VL, l = lane % VL / 4, i = lane % 4;
  return 16 * l + 4 * v + i;
}

EXT_INLINE void interleave(const vx row[QUAD], uint8_t* to) {
  vx low[2] = {vx_low(row[0], row[1]), vx_low(row[2], row[3])};
  vx high[2] = {vx_high(row[0], row[1]), vx_high(row[2], row[3])};
  vx_store(to, vx_low_pairs(low[0], low[1]));
  vx_store(to + BLOCK, vx_high_pairs(low[0], low[1]));
  vx_store(to + 2 * BLOCK, vx_low_pairs(high[0], high[1]));
  vx_store(to + 3 * BLOCK, vx_high_pairs(high[0], high[1]));
}

/* Weights, and what their sums and the scales make of the sums of products. */
static void plan_block(const qdepthwise_job* job, int64_t c, int64_t channels, channel_block* b) {
  const ext_conv2d_params* p = &job->p;
  const requantise_plan* plan = &job->plan;
  const vx zero = {0};
  vq sum[QUAD];
  b->c = c;
  b->channels = channels;
  for (int v = 0; v < QUAD; v++) sum[v] = vq_start(vi_set1(0));
  uint8_t* to = b->w;
  for (int64_t q = 0; q < job->quads; q++)
    for (int64_t kw = 0; kw < p->kernel_w; kw++, to += QUADS) {
      vx row[QUAD];
      for (int i = 0; i < QUAD; i++) {
        int64_t kh = QUAD * q + i;
        const int8_t* w = job->w + (kh * p->kernel_w + kw) * job->w_row + c;
        row[i] = kh < p->kernel_h ? vx_load_n(w, channels) : zero;
      }
      interleave(row, to);
      for (int v = 0; v < QUAD; v++)
        sum[v] = vq_dot_quads(sum[v], zero + 1, vq_panel((const int8_t*)to + v * BLOCK));
    }
  const int32_t x_zero = QUADS_SIGNED ? (int8_t)job->x_zero : job->x_zero;
  for (int v = 0; v < QUAD; v++) vi_store(b->start + v * VL, vq_sum(sum[v], vi_set1(0)) * -x_zero);
  if (!plan->direct) return;
  const vf y_scale = vf_set1(plan->e.y_scale);
  float factor[BLOCK], shift[BLOCK];
  for (int i = 0; i < BLOCK; i += VL) {
    const int64_t lanes = clamp_lanes(channels - i);
    vf bias = plan->e.bias ? vf_load_n(plan->e.bias + c + i, lanes) : vf_zero();
    vf_store(factor + i, vf_load_n(plan->e.scale + c + i, lanes) / y_scale);
    vf_store(shift + i, bias / y_scale);
  }
  for (int lane = 0; lane < BLOCK; lane += 4) {
    memcpy(b->factor + lane, factor + channel_of(lane), 4 * sizeof(float));
    memcpy(b->shift + lane, shift + channel_of(lane), 4 * sizeof(float));
  }
}

/* Writes `count` interleaved columns; row i comes from from[i], a column step[i] bytes after the
 * one before. */
EXT_INLINE void interleave_run(const int full, const channel_block* b, uint8_t flip, int64_t count,
                               const uint8_t* const from[QUAD], const int64_t step[QUAD],
                               uint8_t* to) {
  const vx flips = (vx){0} + flip;
  for (int64_t j = 0; j < count; j++, to += QUADS) {
    vx r[QUAD];
    EXT_UNROLL
    for (int i = 0; i < QUAD; i++) {
      const uint8_t* x = from[i] + j * step[i];
      r[i] = (full ? vx_load(x) : vx_load_n(x, b->channels)) ^ flips;
    }
    interleave(r, to);
  }
}

/* The same for columns outside of the image. */
static void interleave_zeros(const qdepthwise_job* job, int64_t count, uint8_t* to) {
  memset(to, job->x_zero, (size_t)(count * QUADS));
}

/* Interleaves the columns under output pixels [ow, ow + pixels) of an output row. */
static void interleave_columns(const qdepthwise_job* job, const channel_block* b, int64_t row,
                               int64_t ow, int64_t pixels) {
  const ext_conv2d_params* p = &job->p;
  const int64_t image = row / p->out_h, top = row % p->out_h * p->stride_h - p->pad_top;
  const int64_t left = ow * p->stride_w - p->pad_left;
  const int64_t count = (pixels - 1) * p->stride_w + (p->kernel_w - 1) * p->dilation_w + 1;
  const int64_t first = i64_min(i64_max(0, -left), count);
  const int64_t past = i64_max(first, i64_min(p->in_w - left, count));
  const vx outside = ((vx){0} + job->x_zero) ^ job->x_flip;
  uint8_t nothing[BLOCK];
  vx_store(nothing, outside);
  for (int64_t q = 0; q < job->quads; q++) {
    const uint8_t* from[QUAD];
    int64_t step[QUAD];
    for (int i = 0; i < QUAD; i++) {
      int64_t kh = QUAD * q + i, ih = top + kh * p->dilation_h;
      int inside = kh < p->kernel_h && ih >= 0 && ih < p->in_h;
      int64_t pixel = (image * p->in_h + ih) * p->in_w + left + first;
      from[i] = inside ? job->x + pixel * p->x_stride + b->c : nothing;
      step[i] = inside ? p->x_stride : 0;
    }
    uint8_t* to = b->columns + q * job->columns * QUADS;
    interleave_zeros(job, first, to);
    if (b->channels == BLOCK)
      interleave_run(1, b, job->x_flip, past - first, from, step, to + first * QUADS);
    else
      interleave_run(0, b, job->x_flip, past - first, from, step, to + first * QUADS);
    interleave_zeros(job, count - past, to + past * QUADS);
  }
}

/* `count` (a constant) neighbouring pixels, from `columns` on.  Writes y, or sums [count][BLOCK].
 */
EXT_INLINE void run_pixels(const int count, const qdepthwise_job* job, const channel_block* b,
                           const uint8_t* columns, uint8_t* y, int32_t* sums) {
  const ext_conv2d_params* p = &job->p;
  const int64_t step = p->stride_w * QUADS;
  const uint8_t* w = b->w;
  vq acc[QW][QUAD];
  EXT_UNROLL
  for (int v = 0; v < QUAD; v++) {
    vq start = vq_start(vi_load(b->start + v * VL));
    EXT_UNROLL
    for (int i = 0; i < count; i++) acc[i][v] = start;
  }
  for (int64_t q = 0; q < job->quads; q++, columns += job->columns * QUADS) {
    const uint8_t* column = columns;
    for (int64_t kw = 0; kw < p->kernel_w; kw++, column += p->dilation_w * QUADS, w += QUADS) {
      EXT_UNROLL
      for (int v = 0; v < QUAD; v++) {
        vqb weight = vq_panel((const int8_t*)w + v * BLOCK);
        EXT_UNROLL
        for (int i = 0; i < count; i++)
          acc[i][v] = vq_dot_quads(acc[i][v], vx_load(column + i * step + v * BLOCK), weight);
      }
    }
  }
  const vf low = vf_set1(job->plan.low_steps), high = vf_set1(job->plan.high_steps);
  const vi zero = vi_set1(job->plan.e.y_zero + job->y_flip);
  const vx flip = (vx){0} + job->y_flip;
  EXT_UNROLL
  for (int i = 0; i < count; i++) {
    vi v[QUAD];
    EXT_UNROLL
    for (int k = 0; k < QUAD; k++) v[k] = vq_sum(acc[i][k], vi_load(b->start + k * VL));
    if (sums) {
      int32_t lanes[BLOCK];
      for (int k = 0; k < QUAD; k++) vi_store(lanes + k * VL, v[k]);
      for (int lane = 0; lane < BLOCK; lane++) sums[i * BLOCK + channel_of(lane)] = lanes[lane];
      continue;
    }
    EXT_UNROLL
    for (int k = 0; k < QUAD; k++) {
      vf value = vf_fma(vi_to_vf(v[k]), vf_load(b->factor + k * VL), vf_load(b->shift + k * VL));
      v[k] = vf_to_vi(vf_min(vf_at_least(value, low), high)) + zero;
    }
    vx bytes = vx_narrow(v[0], v[1], v[2], v[3]) ^ flip;
    if (b->channels == BLOCK)
      vx_store(y + i * p->y_stride, bytes);
    else
      vx_store_n(y + i * p->y_stride, bytes, b->channels);
  }
}

/* Finishes the sums of pixels from `pixel` of the whole batch on. */
static void finish_sums(const qdepthwise_job* job, const channel_block* b, int64_t pixel,
                        int64_t pixels, uint8_t* y) {
  const ext_requantise* e = &job->plan.e;
  requantise_tile t = {.rows = pixels, .columns = b->channels, .content = b->sums, .width = BLOCK};
  t.scale = e->scale + b->c;
  t.bias = e->bias ? e->bias + b->c : NULL;
  if (e->residual)
    t.residual = (const uint8_t*)e->residual +
                 (pixel * e->residual_stride + b->c) * quantised_size(e->residual_dtype);
  t.y = y;
  t.y_row = job->p.y_stride;
  EXT_NAME(ext_requantise_tile)(&job->plan, TILE_INT32_SUMS, &t);
}

/* Output pixels [ow, ow + pixels) of a row, one block of channels. */
static void run_span(const qdepthwise_job* job, const channel_block* b, int64_t row, int64_t ow,
                     int64_t pixels) {
  const ext_conv2d_params* p = &job->p;
  const int64_t pixel = row * p->out_w + ow, step = p->stride_w * QUADS;
  const int direct = job->plan.direct;
  uint8_t* y = job->y + (pixel * p->y_stride + b->c) * quantised_size(job->plan.e.y_dtype);
  interleave_columns(job, b, row, ow, pixels);
  int64_t i = 0;
  for (; i + QW <= pixels && direct; i += QW)
    run_pixels(QW, job, b, b->columns + i * step, y + i * p->y_stride, NULL);
  if (direct && i < pixels && pixels >= QW) {
    i = pixels - QW; /* some once more */
    run_pixels(QW, job, b, b->columns + i * step, y + i * p->y_stride, NULL);
    i = pixels;
  }
  for (; i < pixels && direct; i++)
    run_pixels(1, job, b, b->columns + i * step, y + i * p->y_stride, NULL);
  for (; i < pixels; i++) run_pixels(1, job, b, b->columns + i * step, y, b->sums + i * BLOCK);
  if (!direct) finish_sums(job, b, pixel, pixels, y);
}

/* Output rows [begin, end) of the whole batch. */
static int qdepthwise_rows(void* context, int64_t begin, int64_t end) {
  const qdepthwise_job* job = context;
  const ext_conv2d_params* p = &job->p;
  const int64_t w_size = job->quads * p->kernel_w * QUADS;
  const int64_t sums_size = job->plan.direct ? 0 : SPAN * BLOCK * (int64_t)sizeof(int32_t);
  const int64_t size = w_size + job->quads * job->columns * QUADS + sums_size;
  uint8_t* memory = ext_workspace_alloc((size_t)size);
  if (!memory) return EXT_ERR_MEMORY;
  channel_block b = {.sums = (int32_t*)memory, .w = memory + sums_size};
  b.columns = b.w + w_size;
  for (int64_t c = 0; c < p->in_c; c += BLOCK) {
    plan_block(job, c, i64_min(BLOCK, p->in_c - c), &b);
    for (int64_t row = begin; row < end; row++)
      for (int64_t ow = 0; ow < p->out_w; ow += SPAN)
        run_span(job, &b, row, ow, i64_min(SPAN, p->out_w - ow));
  }
  ext_workspace_free(memory);
  return EXT_OK;
}

int EXT_NAME(ext_qdepthwise_conv2d)(const ext_conv2d_params* p, ext_dtype x_dtype, int32_t x_zero,
                                    const void* x, const int8_t* w, const ext_requantise* e,
                                    void* y) {
  if (p->groups != p->in_c || p->groups != p->out_c) return EXT_ERR_ARGUMENT;
  if (p->kernel_h * p->kernel_w > EXT_QUANTISED_TAPS) return EXT_ERR_ARGUMENT;
  if (x_dtype != EXT_UINT8 && x_dtype != EXT_INT8) return EXT_ERR_ARGUMENT;
  if (!holds_zero(x_dtype, x_zero)) return EXT_ERR_ARGUMENT;
  const ext_dtype multiplied = QUADS_SIGNED ? EXT_INT8 : EXT_UINT8;
  const int64_t pixels = i64_min(SPAN, i64_max(1, p->out_w));
  qdepthwise_job job = {.p = *p,
                        .x = x,
                        .x_dtype = x_dtype,
                        .x_flip = x_dtype == multiplied ? 0 : 0x80,
                        .y_flip = e->y_dtype == EXT_INT8 ? 0x80 : 0,
                        .w = w,
                        .y = y,
                        .w_row = ceil_div(p->in_c, EXT_PANEL) * EXT_PANEL,
                        .quads = ceil_div(p->kernel_h, QUAD)};
  job.x_zero = (uint8_t)x_zero ^ job.x_flip;
  job.columns = (pixels - 1) * p->stride_w + (p->kernel_w - 1) * p->dilation_w + 1;
  int status = EXT_NAME(ext_plan_requantise)(e, &job.plan);
  if (status) return status;
  const int64_t rows = p->batch * p->out_h;
  const int64_t macs = i64_max(1, p->out_w * p->in_c * p->kernel_h * p->kernel_w);
  int64_t grain = i64_max(1, TASK_MACS / macs);
  /* Weights are interleaved for each task anew. */
  grain = i64_max(grain, rows / (4 * ext_num_threads()));
  return ext_parallel_for(rows, grain, qdepthwise_rows, &job);
}

EXT_DISPATCH(ext_qdepthwise_conv2d,
             (const ext_conv2d_params* p, ext_dtype x_dtype, int32_t x_zero, const void* x,
              const int8_t* w, const ext_requantise* e, void* y),
             (p, x_dtype, x_zero, x, w, e, y))
