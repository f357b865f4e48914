/*
 * y[n][oh][ow][o] = epilogue(sum_{kh,kw,c} x[n][oh sh + kh dh - top][ow sw + kw dw - left][c]
 *                                          * w[o][kh][kw][c])
 *
 * as the product of conv2d.c, but without packing: the microkernel reads its MR pixels, neighbours
 * in one output row, where they lie in the image.
 *
 * Taps above and below the image are left out of the kernel's range.  Tiles with a pixel whose
 * window leaves the image at its left or right are packed, with zeros for what is not there; but
 * where a dilation is wide, tiles have pixels with the same taps inside, and read only these.
 *
 * Results may lie apart in y, as those of a transposed convolution that have the same taps do.
 */
#include "conv2d.h"
#include "gemm_tile.h"
#include "subnormals.h"

/* Multiply-adds of a task at least, some ten microseconds. */
static const int64_t TASK_MACS = 400000;

/* Dilations from which on tiles with fewer taps are faster than packed ones with zeros, and the
 * widest kernel that has such tiles. */
enum { WIDE_DILATION = 4, WIDE_KERNEL = 15 };

/* Output rows below which each is made of parts, and register tiles of a part at least. */
static const int64_t FEW_LINES = 8, PART_TILES = 8;

/* Output columns [begin, end) with the same kernel columns [first, past) inside the image. */
typedef struct {
  int64_t begin, end, first, past;
} segment;

typedef struct {
  ext_conv2d_params p; /* y_stride is that of neighbouring results, as the residual's is */
  const ext_apart* at; /* NULL where these are neighbours in y as well */
  const float *x, *w;
  ext_epilogue e;
  ext_tail tail;
  float* y;
  int64_t channels, outputs; /* of one group */
  int64_t run, runs;         /* K of one kernel row: `runs` pieces of `run` adjacent floats */
  int64_t first, past;       /* output columns whose window lies inside the image */
  int64_t segments, tiles;   /* of an output row; none where tiles are packed at its ends */
  segment segment[2 * WIDE_KERNEL + 1];
  int64_t parts; /* of an output row, for threads to share */
} direct_job;

/* One output row: the kernel rows that lie inside the image, and where the first of them is. */
typedef struct {
  const float* x; /* the image row of kernel row kh0, at column 0 */
  int64_t kh0, kh1;
  float* y; /* pixel 0 of the output row */
  const float* residual;
} output_row;

/* Runs one tile whose operands `t` names; `i` is its first pixel. */
static void run_tile(const direct_job* job, gemm_tile* t, int64_t rows, const output_row* row,
                     int64_t i, int64_t j) {
  const float* residual = row->residual ? row->residual + i * job->e.residual_stride + j : NULL;
  float* y = row->y + i * job->p.y_stride + j;
  tile_run(tile_function(0, rows, t->columns), t, rows, &job->e, residual, y, job->p.y_stride);
}

/* A tile for columns [j, ..) of the group's outputs, without its A. */
EXT_INLINE gemm_tile tile_of(const direct_job* job, const float* w, const float* bias, int64_t kh0,
                             int64_t j) {
  const int64_t k = job->p.kernel_h * job->runs * job->run;
  gemm_tile t = {
      .columns = i64_min(TILE_N, job->outputs - j),
      .b = w + (j / EXT_PANEL * k + kh0 * job->runs * job->run) * EXT_PANEL + j % EXT_PANEL,
      .b_step = VL == EXT_PANEL ? k * EXT_PANEL : VL,
      .bias = bias ? bias + j : NULL,
      .clamp = job->tail.clamp,
      .low = job->tail.low,
      .high = job->tail.high};
  t.next = nothing_next(t.b);
  return t;
}

/* Pixels [begin, end), at most MR, whose runs [first, past) lie inside the image, and whose others
 * do not, times columns [j, ..). */
EXT_INLINE void inner_tile(const direct_job* job, const output_row* row, int64_t begin, int64_t end,
                           int64_t first, int64_t past, const float* w, const float* bias,
                           int64_t j) {
  const ext_conv2d_params* p = &job->p;
  gemm_tile t = tile_of(job, w, bias, row->kh0, j);
  t.kc = job->run;
  t.a_row = p->stride_w * p->x_stride;
  t.a_line = p->dilation_h * p->in_w * p->x_stride;
  t.a_tap = p->dilation_w * p->x_stride;
  t.taps_h = past > first ? row->kh1 - row->kh0 : 0;
  t.taps_w = past - first;
  t.a = row->x;
  if (t.taps_h > 0) t.a += (begin * p->stride_w - p->pad_left) * p->x_stride + first * t.a_tap;
  t.b += first * job->run * EXT_PANEL;
  t.b_skip = (job->runs - t.taps_w) * job->run;
  run_tile(job, &t, end - begin, row, begin, j);
}

/* Copies the window of output pixel `i` to dst, [kh0 .. kh1)[kernel_w][channels]: runs of floats,
 * or where it leaves the image tap by tap. */
static void pack_window(const direct_job* job, const output_row* row, int64_t i, float* dst) {
  const ext_conv2d_params* p = &job->p;
  const int inside = i >= job->first && i < job->past;
  const int64_t pieces = inside ? job->runs : p->kernel_w;
  const int64_t size = inside ? job->run : job->channels;
  for (int64_t kh = row->kh0; kh < row->kh1; kh++) {
    const float* line = row->x + (kh - row->kh0) * p->dilation_h * p->in_w * p->x_stride;
    for (int64_t kw = 0; kw < pieces; kw++, dst += size) {
      int64_t iw = i * p->stride_w - p->pad_left + kw * p->dilation_w;
      if (iw >= 0 && iw < p->in_w)
        copy_run(dst, line + iw * p->x_stride, size);
      else
        zero_run(dst, size);
    }
  }
}

/* Pixels [begin, end), at most MR, of which some window leaves the image, times all columns. */
static void border_tile(const direct_job* job, const output_row* row, int64_t begin, int64_t end,
                        const float* w, const float* bias, float* packed) {
  const int64_t k = (row->kh1 - row->kh0) * job->p.kernel_w * job->channels;
  for (int64_t i = begin; i < end; i++) pack_window(job, row, i, packed + (i - begin) * k);
  for (int64_t j = 0; j < job->outputs; j += TILE_N) {
    gemm_tile t = tile_of(job, w, bias, row->kh0, j);
    t.a = packed;
    t.a_row = t.kc = k;
    t.taps_h = t.taps_w = 1;
    run_tile(job, &t, end - begin, row, begin, j);
  }
}

/* The tiles of a part of an output row, segment by segment. */
static void segment_tiles(const direct_job* job, const output_row* row, int64_t part,
                          const float* w, const float* bias) {
  const int64_t from = part * job->tiles / job->parts, to = (part + 1) * job->tiles / job->parts;
  for (int64_t j = 0; j < job->outputs; j += TILE_N) {
    int64_t tile = 0;
    for (int64_t n = 0; n < job->segments; n++) {
      const segment s = job->segment[n];
      const int64_t width = s.end - s.begin, count = ceil_div(width, MR);
      for (int64_t i = 0; i < count; i++, tile++)
        if (tile >= from && tile < to)
          inner_tile(job, row, s.begin + i * width / count, s.begin + (i + 1) * width / count,
                     s.first, s.past, w, bias, j);
    }
  }
}

/* Pixels [begin, end), at most MR at a time, of which each window leaves the image. */
static void border_tiles(const direct_job* job, const output_row* row, int64_t begin, int64_t end,
                         const float* w, const float* bias, float* packed) {
  for (int64_t i = begin; i < end; i += MR)
    border_tile(job, row, i, i64_min(end, i + MR), w, bias, packed);
}

/* All tiles of an output row of which tiles have all columns: to pack the inner pixels of a tile at
 * a border takes longer than a tile more. */
static void tiles_and_borders(const direct_job* job, const output_row* row, const float* w,
                              const float* bias, float* packed) {
  const int64_t width = job->past - job->first, tiles = ceil_div(width, MR);
  border_tiles(job, row, 0, job->first, w, bias, packed);
  for (int64_t i = 0; i < tiles; i++)
    inner_tile(job, row, job->first + i * width / tiles, job->first + (i + 1) * width / tiles, 0,
               job->runs, w, bias, 0);
  border_tiles(job, row, job->past, job->p.out_w, w, bias, packed);
}

/* All tiles of a part of an output row.  The weights of a tile's columns stay in L1 or L2 for all
 * of them. */
static void row_tiles(const direct_job* job, const output_row* row, int64_t part, const float* w,
                      const float* bias, float* packed) {
  if (job->segments > 0) {
    segment_tiles(job, row, part, w, bias);
    return;
  }
  if (job->outputs <= TILE_N && job->parts == 1) {
    tiles_and_borders(job, row, w, bias, packed);
    return;
  }
  const int64_t width = job->p.out_w, tiles = ceil_div(width, MR);
  const int64_t from = part * tiles / job->parts, to = (part + 1) * tiles / job->parts;
  for (int64_t j = 0; j < job->outputs; j += TILE_N)
    for (int64_t i = from; i < to; i++) {
      int64_t begin = i * width / tiles, end = (i + 1) * width / tiles;
      if (begin >= job->first && end <= job->past)
        inner_tile(job, row, begin, end, 0, job->runs, w, bias, j);
    }
  for (int64_t i = from; i < to; i++) {
    int64_t begin = i * width / tiles, end = (i + 1) * width / tiles;
    if (begin < job->first || end > job->past) border_tile(job, row, begin, end, w, bias, packed);
  }
}

/* Floats from the first pixel of y, or of the residual, to the first one of output row `index`,
 * with results `stride` apart. */
static int64_t row_at(const direct_job* job, int64_t index, int64_t stride) {
  const ext_conv2d_params* p = &job->p;
  const ext_apart* at = job->at;
  if (!at) return index * p->out_w * stride;
  const int64_t n = index / p->out_h, h = index - n * p->out_h, image = n / at->planes;
  const int64_t plane = image * at->depth + at->first_d + (n - image * at->planes) * at->step_d;
  const int64_t line = plane * at->height + at->first_h + h * at->step_h;
  return (line * at->width + at->first_w) * (stride / at->step_w);
}

/* Part `item % parts` of output row item / parts. */
static void part_of_row(const direct_job* job, int64_t item, float* packed) {
  const ext_conv2d_params* p = &job->p;
  const int64_t index = item / job->parts;
  const int64_t k = p->kernel_h * p->kernel_w * job->channels;
  const kernel_rows inside = kernel_rows_inside(p, index);
  output_row row = {.kh0 = inside.first, .kh1 = inside.past};
  for (int64_t g = 0; g < p->groups; g++) {
    const float* w = job->w + g * ceil_div(job->outputs, EXT_PANEL) * EXT_PANEL * k;
    const float* bias = job->e.bias ? job->e.bias + g * job->outputs : NULL;
    row.x = job->x + inside.line * p->in_w * p->x_stride + g * job->channels;
    row.y = job->y + row_at(job, index, p->y_stride) + g * job->outputs;
    row.residual = NULL;
    if (job->e.residual)
      row.residual =
          job->e.residual + row_at(job, index, job->e.residual_stride) + g * job->outputs;
    row_tiles(job, &row, item - index * job->parts, w, bias, packed);
  }
}

static int rows(void* context, int64_t begin, int64_t end) {
  const direct_job* job = context;
  const int64_t k = job->p.kernel_h * job->p.kernel_w * job->channels;
  float* packed = NULL;
  if (job->segments == 0 && (job->first > 0 || job->past < job->p.out_w)) {
    packed = ext_workspace_alloc((size_t)(MR * k) * sizeof(float));
    if (!packed) return EXT_ERR_MEMORY;
  }
  for (int64_t i = begin; i < end; i++) part_of_row(job, i, packed);
  ext_workspace_free(packed);
  return EXT_OK;
}

/* The output columns whose window lies inside the image: [first, past). */
static void find_inner_columns(direct_job* job) {
  const ext_conv2d_params* p = &job->p;
  int64_t last_tap = (p->kernel_w - 1) * p->dilation_w;
  int64_t room = p->in_w - 1 - last_tap + p->pad_left; /* of a window's first column */
  job->first = i64_min(p->out_w, ceil_div(i64_max(0, p->pad_left), p->stride_w));
  job->past = room < 0 ? 0 : i64_min(p->out_w, room / p->stride_w + 1);
  job->past = i64_max(job->first, job->past);
}

/* The segment that begins at output column `begin`. */
static segment segment_at(const ext_conv2d_params* p, int64_t begin) {
  segment s = {begin, p->out_w, p->kernel_w, 0};
  for (int64_t kw = 0; kw < p->kernel_w; kw++) {
    const int64_t left = p->pad_left - kw * p->dilation_w, room = p->in_w + left;
    const int64_t enters = ceil_div(i64_max(0, left), p->stride_w);
    const int64_t leaves = ceil_div(i64_max(0, room), p->stride_w);
    if (enters <= begin && begin < leaves) {
      s.first = i64_min(s.first, kw);
      s.past = kw + 1;
    }
    if (enters > begin) s.end = i64_min(s.end, enters);
    if (leaves > begin) s.end = i64_min(s.end, leaves);
  }
  if (s.first > s.past) s.first = s.past;
  return s;
}

/* Each kernel column begins to be inside once, and ceases to be once. */
static void find_segments(direct_job* job) {
  const ext_conv2d_params* p = &job->p;
  if (p->dilation_w < WIDE_DILATION || p->kernel_w < 2 || p->kernel_w > WIDE_KERNEL) return;
  for (int64_t begin = 0; begin < p->out_w;) {
    const segment s = segment_at(p, begin);
    job->segment[job->segments++] = s;
    job->tiles += ceil_div(s.end - begin, MR);
    begin = s.end;
  }
}

/* On all threads; `at` as in the job. */
static int run_direct(const ext_conv2d_params* p, const ext_apart* at, const float* x,
                      const float* w, const ext_epilogue* e, float* y) {
  if (p->batch <= 0 || p->out_h <= 0 || p->out_w <= 0 || p->out_c <= 0) return EXT_OK;
  direct_job job = {.p = *p, .at = at, .x = x, .w = w, .y = y};
  if (e) job.e = *e;
  if (at) {
    job.p.y_stride *= at->step_w;
    job.e.residual_stride *= at->step_w;
  }
  job.tail = ext_plan_tail(&job.e);
  job.channels = p->in_c / p->groups;
  job.outputs = p->out_c / p->groups;
  /* Neighbouring taps adjoin where a pixel is its channels and no more. */
  int adjoin = p->dilation_w == 1 && p->x_stride == job.channels;
  job.runs = adjoin ? 1 : p->kernel_w;
  job.run = adjoin ? p->kernel_w * job.channels : job.channels;
  find_inner_columns(&job);
  find_segments(&job);
  int64_t macs = p->batch * p->out_h * p->out_w * job.outputs * p->groups * p->kernel_h *
                 p->kernel_w * job.channels;
  int64_t lines = p->batch * p->out_h;
  /* Few long rows, as those of sound, are shared as well. */
  job.parts = lines < FEW_LINES ? i64_max(1, ceil_div(p->out_w, MR) / PART_TILES) : 1;
  lines *= job.parts;
  return ext_parallel_products(lines, i64_max(1, TASK_MACS * lines / i64_max(1, macs)), rows, &job);
}

int EXT_NAME(ext_conv2d_direct)(const ext_conv2d_params* p, const float* x, const float* w,
                                const ext_epilogue* e, float* y) {
  return run_direct(p, NULL, x, w, e, y);
}

int EXT_NAME(ext_conv2d_apart)(const ext_conv2d_params* p, const ext_apart* at, const float* x,
                               const float* w, const ext_epilogue* e, float* y) {
  if (p->groups < 1 || p->in_c % p->groups || p->out_c % p->groups) return EXT_ERR_ARGUMENT;
  if (p->batch > 0 && (at->planes < 1 || at->step_w < 1)) return EXT_ERR_ARGUMENT;
  return run_direct(p, at, x, w, e, y);
}

EXT_DISPATCH(ext_conv2d_apart,
             (const ext_conv2d_params* p, const ext_apart* at, const float* x, const float* w,
              const ext_epilogue* e, float* y),
             (p, at, x, w, e, y))
