/*
 * winograd_blocks.h - a convolution by Winograd's algorithm, on all threads:
 *
 * y[n][oh][ow][o] = epilogue(sum_{kh,kw,c} x[n][oh + kh dh - top][ow + kw dw - left][c]
 *                                          * w[o][kh][kw][c])
 * for 3 x 3 kernels of stride 1, by Winograd's F(m x m, 3 x 3) with tile = m + 2 (see
 * winograd_transform.h).  Images fall into tiles of m x m output pixels; with a dilation, every
 * dh-th row and dw-th column are an image of their own, of dh dw such.  For each block of tiles,
 * while it stays in the cache,
 *
 *   1. V[f][t][c] = (B^T d B)[f], the tile x tile input pixels of tile t, transformed
 *   2. M[f][t][o] = sum_c V[f][t][c] U[f][c][o], a matrix product for each of the tile^2
 *      "frequencies" f; U, the transformed weights, is in panels
 *   3. y = epilogue(A^T M A)
 *
 * V's rows for several f lie side by side in one packed row of the GEMM's microkernel, whose rows
 * are A_STRIDE apart: slot f of row t is at (f / slots * tiles + t) A_STRIDE + f % slots * slot.
 * More than KC channels are blocks of K, each with slots of its own.
 *
 * The file that includes this one says whether images may be stored as bf16: `enum { STORED = 1 }`,
 * or 0 for fp32 alone.  They are widened as they are read and rounded as they are written; V, U and
 * M are fp32.
 */
#ifndef EXT_WINOGRAD_BLOCKS_H_
#define EXT_WINOGRAD_BLOCKS_H_

#include "../simd/bf16.h"
#include "activation.h"
#include "gemm.h"
#include "gemm_tile.h"
#include "subnormals.h"
#include "winograd_transform.h"

enum {
  /* Rows that a matrix of U is worth that streams from L3, or from memory. */
  STREAM_ROWS = MR,
  MEMORY_ROWS = 4 * MR,
  MIN_PART = 64 /* output channels of a task at least, so that V is not transformed too often */
};

typedef struct {
  const ext_conv2d_params* p;
  ext_storage s; /* with STORED */
  const void* x;
  const float* w;
  ext_epilogue e;
  ext_tail tail;
  void* y;
  int tile;
  int64_t tiles_h, tiles_w, tiles;
  int64_t k_blocks, k_block;
  int64_t slot, slots; /* floats of a slot, slots in a row */
  int64_t rows;        /* tiles in a block at most */
  int64_t columns;     /* output channels of M at once, a multiple of TILE_N */
  int64_t blocks, parts;
} winograd_job;

/* Where V holds K block `k` of frequency f, row 0, of a block of `rows` tiles. */
EXT_INLINE float* slot_of(const winograd_job* job, float* v, int64_t rows, int64_t f, int64_t k) {
  int64_t index = f * job->k_blocks + k;
  return v + index / job->slots * rows * A_STRIDE + index % job->slots * job->slot;
}

EXT_INLINE int64_t v_floats(const winograd_job* job, int64_t rows) {
  int64_t count = job->tile * job->tile * job->k_blocks;
  return ceil_div(count, job->slots) * rows * A_STRIDE;
}

/* The image and the first output pixel of tile t; its pixels are a dilation apart. */
typedef struct {
  int64_t n, oh, ow;
} winograd_place;

EXT_INLINE winograd_place place_of(const winograd_job* job, int m, int64_t t) {
  const int64_t dh = job->p->dilation_h, dw = job->p->dilation_w;
  const int64_t tw = t % job->tiles_w, rest = t / job->tiles_w, part = rest / job->tiles_h;
  const int64_t th = rest % job->tiles_h;
  return (winograd_place){part / (dh * dw), th * m * dh + part / dw % dh, tw * m * dw + part % dw};
}

/* ------------------------------------------------------------------ images as they are stored */

EXT_INLINE int is_narrow(ext_dtype dtype) {
  return STORED && dtype == EXT_BFLOAT16;
}

/* The element `index` of an image, or NULL where there is none. */
EXT_INLINE const void* element_of(const int narrow, const void* p, int64_t index) {
  return p ? stored_element(narrow, p, index) : NULL;
}

/* ------------------------------------------------------------------ 1: the input */

/* Where a tile is: its first pixel is at (ih, iw), element `corner` of the image; the next ones are
 * `step` elements on below it, and `across` beside it. */
typedef struct {
  const ext_conv2d_params* p;
  const void* image;
  int64_t ih, iw, corner, step, across;
} winograd_window;

/* The pixel (i, j) of a tile, or NULL where it is padding. */
EXT_INLINE const void* pixel_of(const int narrow, const winograd_window* in, int i, int j) {
  const int64_t row = in->ih + i * in->p->dilation_h, column = in->iw + j * in->p->dilation_w;
  const int there = row >= 0 && row < in->p->in_h && column >= 0 && column < in->p->in_w;
  return there ? element_of(narrow, in->image, in->corner + i * in->step + j * in->across) : NULL;
}

/* Transforms VL channels of one tile; `inside` (a constant) says that the whole tile is in the
 * image.  Frequency f goes to slots[f]. */
EXT_INLINE void transform_input(const int tile, const int narrow, const int inside,
                                const winograd_window* in, float* const* slots, int64_t channel) {
  static const float nothing[VL] = {0};
  vf columns[WINOGRAD_MAX_TILE][WINOGRAD_MAX_TILE], line[WINOGRAD_MAX_TILE];
  EXT_UNROLL
  for (int j = 0; j < tile; j++) {
    vf d[WINOGRAD_MAX_TILE];
    EXT_UNROLL
    for (int i = 0; i < tile; i++) {
      const void* from =
          inside ? element_of(narrow, in->image, in->corner + i * in->step + j * in->across)
                 : pixel_of(narrow, in, i, j);
      d[i] = stored_load(narrow, 1, from ? from : nothing, 0, VL);
    }
    winograd_input(tile, d, d);
    EXT_UNROLL
    for (int i = 0; i < tile; i++) columns[i][j] = d[i];
  }
  EXT_UNROLL
  for (int i = 0; i < tile; i++) {
    winograd_input(tile, columns[i], line);
    EXT_UNROLL
    for (int j = 0; j < tile; j++) vf_store(slots[i * tile + j] + channel, line[j]);
  }
}

/* The same of the last `lanes` channels, less than VL: the tile is copied first, as code for every
 * pixel of it that loads some lanes alone is long. */
EXT_INLINE void transform_last(const int tile, const int narrow, const winograd_window* in,
                               int64_t lanes, float* const* slots, int64_t channel) {
  float pixels[WINOGRAD_MAX_TILE * WINOGRAD_MAX_TILE * VL];
  for (int i = 0; i < tile; i++)
    for (int j = 0; j < tile; j++) {
      const void* from = pixel_of(narrow, in, i, j);
      vf_store(pixels + (i * tile + j) * VL,
               from ? stored_load(narrow, 0, from, 0, lanes) : vf_zero());
    }
  const winograd_window copied = {.image = pixels, .step = tile * VL, .across = VL};
  transform_input(tile, 0, 1, &copied, slots, channel);
}

/* Transforms every channel of tiles [first, first + rows) into V. */
EXT_INLINE void transform_inputs(const int tile, const int narrow, const winograd_job* job,
                                 float* v, int64_t first, int64_t rows) {
  const ext_conv2d_params* p = job->p;
  const int m = tile - 2;
  const int64_t line = p->in_w * p->x_stride;
  winograd_window in = {
      .p = p, .step = p->dilation_h * line, .across = p->dilation_w * p->x_stride};
  for (int64_t r = 0; r < rows; r++) {
    const winograd_place at = place_of(job, m, first + r);
    in.ih = at.oh - p->pad_top;
    in.iw = at.ow - p->pad_left;
    in.image = element_of(narrow, job->x, at.n * p->in_h * line);
    int inside = in.ih >= 0 && in.iw >= 0 && in.ih + (tile - 1) * p->dilation_h < p->in_h &&
                 in.iw + (tile - 1) * p->dilation_w < p->in_w;
    for (int64_t k = 0; k < job->k_blocks; k++) {
      int64_t c0 = k * job->k_block, c1 = i64_min(p->in_c, c0 + job->k_block);
      float* slots[WINOGRAD_MAX_TILE * WINOGRAD_MAX_TILE];
      /* A channel's place is c in every slot once c0 is taken off. */
      for (int f = 0; f < tile * tile; f++)
        slots[f] = slot_of(job, v, job->rows, f, k) + r * A_STRIDE - c0;
      for (int64_t c = c0; c < c1; c += VL) {
        in.corner = in.ih * line + in.iw * p->x_stride + c;
        if (c1 - c < VL)
          transform_last(tile, narrow, &in, c1 - c, slots, c);
        else if (inside)
          transform_input(tile, narrow, 1, &in, slots, c);
        else
          transform_input(tile, narrow, 0, &in, slots, c);
      }
    }
  }
}

/* ------------------------------------------------------------------ 2: the products */

/* M[f][r][j - j0] for columns [j0, j1) of every frequency; M's rows are job->columns apart. */
static void multiply(const winograd_job* job, float* v, float* products, int64_t rows, int64_t j0,
                     int64_t j1) {
  const int64_t k = job->p->in_c, panels = ceil_div(job->p->out_c, EXT_PANEL);
  const int64_t micropanels = ceil_div(rows, MR);
  for (int64_t f = 0; f < job->tile * job->tile; f++) {
    const float* u = job->w + f * panels * k * EXT_PANEL;
    for (int64_t block = 0; block < job->k_blocks; block++) {
      int64_t k0 = block * job->k_block, kc = i64_min(job->k_block, k - k0);
      const float* a = slot_of(job, v, job->rows, f, block);
      gemm_tile t = {.kc = kc, .y_row = job->columns, .c_row = job->columns};
      t.finished_row = t.y_row;
      t.b_step = VL == EXT_PANEL ? k * EXT_PANEL : VL;
      for (int64_t j = j0; j < j1; j += TILE_N) {
        t.columns = i64_min(TILE_N, ceil_div(j1 - j, TILE_STEP) * TILE_STEP);
        t.b = u + (j / EXT_PANEL * k + k0) * EXT_PANEL + j % EXT_PANEL;
        const int last = j + TILE_N >= j1;
        const int64_t ahead = last ? j0 : j + TILE_N;
        const float* next = u + k0 * EXT_PANEL;
        if (last && block + 1 < job->k_blocks)
          next += job->k_block * EXT_PANEL;
        else if (last && f + 1 < job->tile * job->tile)
          next = u + panels * k * EXT_PANEL;
        for (int64_t i = 0; i < micropanels; i++) {
          int64_t r0 = i * rows / micropanels, r1 = (i + 1) * rows / micropanels;
          t.next = next_of(i, kc, next, k * EXT_PANEL, ahead, i64_min(j1, ahead + TILE_N), t.b);
          t.a = a + r0 * A_STRIDE;
          t.y = products + (f * job->rows + r0) * job->columns + (j - j0);
          t.finished = t.y;
          t.c = block > 0 ? t.y : NULL;
          tile_function(1, r1 - r0, t.columns)(&t);
        }
      }
    }
  }
}

/* ------------------------------------------------------------------ 3: the output */

/* Finishes `width` neighbouring pixels, of which t[VL] each has `lanes` sums, where that is more
 * than a clamp of VL of them. */
static void finish_line(const int narrow, const winograd_job* job, int64_t width, int64_t lanes,
                        float* t, const void* residual, void* y) {
  enum { MAX_M = WINOGRAD_MAX_TILE - 2 };
  const int64_t dw = job->p->dilation_w, y_stride = dw * job->p->y_stride;
  const int narrow_residual = is_narrow(job->s.residual);
  int64_t residual_stride = dw * job->e.residual_stride;
  if (job->tail.clamp) {
    const vf low = vf_set1(job->tail.low), high = vf_set1(job->tail.high);
    for (int64_t j = 0; j < width; j++) {
      vf value = vf_load(t + j * VL);
      if (residual) value += stored_load(narrow_residual, 0, residual, j * residual_stride, lanes);
      stored_store(narrow, 0, y, j * y_stride, vf_min(high, vf_max(low, value)), lanes);
    }
    return;
  }
  float wide[MAX_M * VL] = {0}, values[MAX_M * VL];
  if (residual && narrow_residual) {
    for (int64_t j = 0; j < width; j++)
      vf_store(wide + j * VL, stored_load(1, 0, residual, j * residual_stride, lanes));
    residual = wide;
    residual_stride = VL;
  }
  EXT_NAME(ext_finish_tile)(&job->e, width, lanes, t, VL, residual, residual_stride,
                            narrow ? values : y, narrow ? VL : y_stride);
  for (int64_t j = 0; narrow && j < width; j++)
    stored_store(1, 0, y, j * y_stride, vf_load_n(values + j * VL, lanes), lanes);
}

/* The m x m pixels of one tile and `lanes` channels from `channel` on, of which `height` x `width`
 * are in the image; `s` points at frequency 0. */
EXT_INLINE void transform_output(const int tile, const int narrow, const winograd_job* job,
                                 const float* s, int64_t frequency_step, int64_t lanes,
                                 int64_t channel, int64_t height, int64_t width, const void* y,
                                 const void* residual) {
  enum { MAX_M = WINOGRAD_MAX_TILE - 2 };
  vf columns[MAX_M][WINOGRAD_MAX_TILE];
  const int m = tile - 2;
  EXT_UNROLL
  for (int j = 0; j < tile; j++) {
    vf d[WINOGRAD_MAX_TILE], t[MAX_M];
    EXT_UNROLL
    for (int i = 0; i < tile; i++) d[i] = vf_load(s + (i * tile + j) * frequency_step);
    winograd_output(tile, d, t);
    EXT_UNROLL
    for (int i = 0; i < m; i++) columns[i][j] = t[i];
  }
  vf bias = job->e.bias ? vf_load(job->e.bias + channel) : vf_zero();
  vf low = vf_set1(job->tail.low), high = vf_set1(job->tail.high);
  const int64_t pixel = job->p->dilation_w * job->p->y_stride;
  const int64_t residual_pixel = job->p->dilation_w * job->e.residual_stride;
  const int64_t line_pixels = job->p->dilation_h * job->p->out_w;
  const int64_t row = line_pixels * job->p->y_stride;
  const int64_t residual_row = line_pixels * job->e.residual_stride;
  const int narrow_residual = is_narrow(job->s.residual);
  EXT_UNROLL
  for (int i = 0; i < m; i++) {
    if (i >= height) break;
    vf line[MAX_M];
    void* to = (void*)element_of(narrow, y, i * row);
    const void* from = element_of(narrow_residual, residual, i * residual_row);
    winograd_output(tile, columns[i], line);
    if (!job->tail.clamp || lanes < VL) {
      float t[MAX_M * VL];
      for (int j = 0; j < m; j++) vf_store(t + j * VL, line[j] + bias);
      finish_line(narrow, job, width, lanes, t, from, to);
      continue;
    }
    EXT_UNROLL
    for (int j = 0; j < m; j++) {
      if (j >= width) break;
      vf value = line[j] + bias;
      if (from) value += stored_load(narrow_residual, 1, from, 0, VL);
      stored_store(narrow, 1, to, 0, vf_min(high, vf_max(low, value)), VL);
      to = (void*)element_of(narrow, to, pixel);
      if (from) from = element_of(narrow_residual, from, residual_pixel);
    }
  }
}

EXT_INLINE void transform_outputs(const int tile, const int narrow, const winograd_job* job,
                                  const float* products, int64_t first, int64_t rows, int64_t j0,
                                  int64_t j1) {
  const ext_conv2d_params* p = job->p;
  const int m = tile - 2;
  const int64_t frequency_step = job->rows * job->columns;
  for (int64_t r = 0; r < rows; r++) {
    const winograd_place at = place_of(job, m, first + r);
    if (at.oh >= p->out_h || at.ow >= p->out_w) continue; /* of fewer rows than others */
    const int64_t pixel = (at.n * p->out_h + at.oh) * p->out_w + at.ow;
    const int64_t height = i64_min(m, ceil_div(p->out_h - at.oh, p->dilation_h));
    const int64_t width = i64_min(m, ceil_div(p->out_w - at.ow, p->dilation_w));
    for (int64_t j = j0; j < j1; j += VL) {
      const void* residual = element_of(is_narrow(job->s.residual), job->e.residual,
                                        pixel * job->e.residual_stride + j);
      transform_output(tile, narrow, job, products + r * job->columns + (j - j0), frequency_step,
                       i64_min(VL, j1 - j), j, height, width,
                       element_of(narrow, job->y, pixel * p->y_stride + j), residual);
    }
  }
}

/* ------------------------------------------------------------------ blocks and tasks */

#define EXT_WINOGRAD_STAGES(tile)                                                             \
  static void inputs_##tile(const winograd_job* job, float* v, int64_t first, int64_t rows) { \
    if (is_narrow(job->s.x))                                                                  \
      transform_inputs(tile, STORED, job, v, first, rows);                                    \
    else                                                                                      \
      transform_inputs(tile, 0, job, v, first, rows);                                         \
  }                                                                                           \
  static void outputs_##tile(const winograd_job* job, const float* products, int64_t first,   \
                             int64_t rows, int64_t j0, int64_t j1) {                          \
    if (is_narrow(job->s.y))                                                                  \
      transform_outputs(tile, STORED, job, products, first, rows, j0, j1);                    \
    else                                                                                      \
      transform_outputs(tile, 0, job, products, first, rows, j0, j1);                         \
  }
EXT_WINOGRAD_STAGES(4)
EXT_WINOGRAD_STAGES(6)
EXT_WINOGRAD_STAGES(8)

/* Tasks are (block of tiles, part of the output channels). */
static int winograd_tasks(void* context, int64_t begin, int64_t end) {
  const winograd_job* job = context;
  int64_t area = job->tile * job->tile, v_size = v_floats(job, job->rows);
  float* v =
      ext_workspace_alloc((size_t)(v_size + area * job->rows * job->columns) * sizeof(float));
  if (!v) return EXT_ERR_MEMORY;
  float* products = v + v_size;
  int64_t n = job->p->out_c, tiles_n = ceil_div(n, TILE_N), done = -1;
  for (int64_t task = begin; task < end; task++) {
    int64_t block = task / job->parts, part = task % job->parts;
    int64_t first = block * job->tiles / job->blocks;
    int64_t rows = (block + 1) * job->tiles / job->blocks - first;
    int64_t j0 = part * tiles_n / job->parts * TILE_N;
    int64_t j1 = i64_min(n, (part + 1) * tiles_n / job->parts * TILE_N);
    if (block != done) {
      if (job->tile == 4) inputs_4(job, v, first, rows);
      if (job->tile == 6) inputs_6(job, v, first, rows);
      if (job->tile == 8) inputs_8(job, v, first, rows);
      done = block;
    }
    for (int64_t j = j0; j < j1; j += job->columns) {
      int64_t to = i64_min(j1, j + job->columns);
      multiply(job, v, products, rows, j, to);
      if (job->tile == 4) outputs_4(job, products, first, rows, j, to);
      if (job->tile == 6) outputs_6(job, products, first, rows, j, to);
      if (job->tile == 8) outputs_8(job, products, first, rows, j, to);
    }
  }
  ext_workspace_free(v);
  return EXT_OK;
}

static void plan(winograd_job* job, int64_t threads) {
  const int64_t area = job->tile * job->tile, k = job->p->in_c, n = job->p->out_c;
  job->k_blocks = i64_max(1, ceil_div(k, KC));
  job->k_block = ceil_div(ceil_div(k, job->k_blocks), VL) * VL;
  job->k_blocks = i64_max(1, ceil_div(k, job->k_block));
  job->slot = job->k_block;
  job->slots = i64_max(1, A_STRIDE / job->slot);
  /* V may take five eighths of L2, where rows need not be many, and M a quarter. */
  const ext_caches* caches = ext_cache_sizes();
  int64_t most = caches->l2 / 8 * 5 / (area * i64_max(k, 1) * (int64_t)sizeof(float));
  int64_t least =
      area * k * n * (int64_t)sizeof(float) > caches->l3 / 4 ? MEMORY_ROWS : STREAM_ROWS;
  job->blocks = ceil_div(job->tiles, i64_max(most, least));
  /* As many blocks for every thread, where there are that many. */
  if (job->tiles >= threads * 2 * least) job->blocks = ceil_div(job->blocks, threads) * threads;
  job->parts = 1;
  if (job->blocks % threads != 0 && job->blocks < 4 * threads)
    job->parts = i64_max(1, i64_min(threads, n / MIN_PART));
  job->rows = ceil_div(job->tiles, job->blocks);
  int64_t width = caches->l2 / 4 / (area * job->rows * (int64_t)sizeof(float)) / TILE_N * TILE_N;
  job->columns = i64_max(TILE_N, i64_min(width, ceil_div(n, TILE_N) * TILE_N));
}

static int convolve(const ext_conv2d_params* p, int32_t tile, const ext_storage* storage,
                    const void* x, const float* w, const ext_epilogue* e, void* y) {
  int fits = p->kernel_h == 3 && p->kernel_w == 3 && p->stride_h == 1 && p->stride_w == 1 &&
             p->dilation_h > 0 && p->dilation_w > 0 && p->groups == 1;
  if (!fits || (tile != 4 && tile != 6 && tile != 8)) return EXT_ERR_ARGUMENT;
  winograd_job job = {.p = p, .s = *storage, .x = x, .w = w, .y = y, .tile = tile};
  if (e) job.e = *e;
  job.tail = ext_plan_tail(&job.e);
  job.tiles_h = ceil_div(ceil_div(p->out_h, p->dilation_h), tile - 2);
  job.tiles_w = ceil_div(ceil_div(p->out_w, p->dilation_w), tile - 2);
  job.tiles = p->batch * p->dilation_h * p->dilation_w * job.tiles_h * job.tiles_w;
  if (job.tiles <= 0 || p->out_c <= 0) return EXT_OK;
  plan(&job, ext_num_threads());
  return ext_parallel_products(job.blocks * job.parts, 1, winograd_tasks, &job);
}

#endif /* EXT_WINOGRAD_BLOCKS_H_ */
