/*
 * y[n][oh][ow][o] = epilogue(sum x[n][ih][iw][c] * w[c][o][kh][kw]),
 *   oh = ih sh + kh dh - top, ow = iw sw + kw dw - left
 *
 * First a matrix product per group: rows are input pixels, columns (kh, kw, o), so that every input
 * pixel has the patch that it adds to y.  Then each output pixel gathers what the patches have for
 * it, and the epilogue follows.  Patches are made for a block of output rows at a time, so that
 * they are in L2 when they are gathered; rows of the input that the next block needs as well stay
 * in a ring.
 */
#include "activation.h"
#include "gemm.h"
#include "subnormals.h"

/* Floats of the patches of a block at least, a quarter of a 1 MiB L2; those of the weight, if more,
 * as each block reads it. */
static const int64_t BLOCK_FLOATS = 1 << 16;
/* Floats that one task gathers at least: some ten microseconds. */
static const int64_t TASK_FLOATS = 1 << 15;

/* The taps of an axis on output position o, with (o + pad) = stride q + phase: first[phase], where
 * it is not past the kernel, and each `step` further, with inputs q + at[phase], and `back` less
 * each time. */
typedef struct {
  int64_t *first, *at, step, back;
} axis_taps;

typedef struct {
  ext_conv2d_params p; /* with axes changed where images are one row */
  ext_epilogue e;
  const float *x, *w;
  float* y;
  int64_t patch;       /* floats of one input pixel's patches: groups x taps x channels */
  int64_t channels;    /* outputs of one group */
  int64_t block, ring; /* output rows of a block; input rows whose patches are kept */
  axis_taps vertical, along;
} transpose_job;

/* Where the taps of one output row or pixel are: kernel positions first, first + step ... past, and
 * the inputs at, at - back ... */
typedef struct {
  int64_t first, past, at;
} taps_on;

/* Fills `memory`, twice as many numbers as the stride. */
static axis_taps taps_of_axis(int64_t stride, int64_t kernel, int64_t dilation, int64_t* memory) {
  axis_taps t = {.first = memory, .at = memory + stride, .step = 1};
  while (t.step * dilation % stride) t.step++;
  t.back = t.step * dilation / stride;
  for (int64_t phase = 0; phase < stride; phase++) {
    int64_t k = 0;
    while (k < t.step && (phase - k * dilation) % stride) k++;
    t.first[phase] = k < t.step ? k : kernel;
    t.at[phase] = (phase - k * dilation) / stride;
  }
  return t;
}

/* The taps on output position o + pad = stride q + phase that lie in an input of `size`. */
EXT_INLINE taps_on taps_inside(const axis_taps* t, int64_t q, int64_t phase, int64_t kernel,
                               int64_t size) {
  taps_on on = {t->first[phase], kernel, q + t->at[phase]};
  for (; on.first < kernel && on.at >= size; on.first += t->step) on.at -= t->back;
  if (on.first >= kernel || on.at < 0) return (taps_on){0, 0, 0};
  on.past = i64_min(kernel, on.first + (on.at / t->back + 1) * t->step);
  return on;
}

/* y[c] = bias[c] + what the patches of `down` x `right` have for VL channels or fewer. */
EXT_INLINE vf gathered(const transpose_job* job, const float* patches, int64_t row_of_ring,
                       const taps_on* down, const taps_on* right, vf sum, int64_t lanes) {
  const ext_conv2d_params* p = &job->p;
  int64_t ih = row_of_ring;
  for (int64_t kh = down->first; kh < down->past; kh += job->vertical.step) {
    const float* row = patches + ih * p->in_w * job->patch;
    int64_t iw = right->at;
    for (int64_t kw = right->first; kw < right->past; kw += job->along.step) {
      const float* tap = row + iw * job->patch + (kh * p->kernel_w + kw) * job->channels;
      sum += lanes == VL ? vf_load(tap) : vf_load_n(tap, lanes);
      iw -= job->along.back;
    }
    ih -= job->vertical.back;
    if (ih < 0) ih += job->ring;
  }
  return sum;
}

static void gather_pixel(const transpose_job* job, const float* patches, int64_t row_of_ring,
                         const taps_on* down, const taps_on* right, float* y) {
  const int64_t n = job->channels, group_floats = job->patch / job->p.groups;
  const float* bias = job->e.bias;
  for (int64_t g = 0; g < job->p.groups; g++, patches += group_floats, y += n) {
    int64_t c = 0;
    for (; c + VL <= n; c += VL) {
      const vf sum = bias ? vf_load(bias + g * n + c) : vf_zero();
      vf_store(y + c, gathered(job, patches + c, row_of_ring, down, right, sum, VL));
    }
    if (c == n) continue;
    const vf sum = bias ? vf_load_n(bias + g * n + c, n - c) : vf_zero();
    vf_store_n(y + c, gathered(job, patches + c, row_of_ring, down, right, sum, n - c), n - c);
  }
}

/* What follows the bias, in place. */
static void finish(const ext_epilogue* e, const float* residual, int64_t n, float* y) {
  EXT_NAME(ext_activate)(&e->before, n, y, y);
  int64_t i = 0;
  for (; residual && i < n; i += VL) {
    const int64_t lanes = i64_min(VL, n - i);
    vf_store_n(y + i, vf_load_n(y + i, lanes) + vf_load_n(residual + i, lanes), lanes);
  }
  EXT_NAME(ext_activate)(&e->after, n, y, y);
}

/* An output row of the whole batch, from patches that are all there. */
static void gather_row(const transpose_job* job, const float* patches, int64_t row) {
  const ext_conv2d_params* p = &job->p;
  const ext_epilogue* e = &job->e;
  const int64_t oh = row % p->out_h + p->pad_top;
  const taps_on down =
      taps_inside(&job->vertical, oh / p->stride_h, oh % p->stride_h, p->kernel_h, p->in_h);
  const int64_t row_of_ring = down.at % job->ring;
  float* y = job->y + row * p->out_w * p->y_stride;
  const float* residual = e->residual ? e->residual + row * p->out_w * e->residual_stride : NULL;
  const int dense = p->y_stride == p->out_c && (!residual || e->residual_stride == p->out_c);
  int64_t q = p->pad_left / p->stride_w, phase = p->pad_left % p->stride_w;
  for (int64_t ow = 0; ow < p->out_w; ow++) {
    const taps_on right = taps_inside(&job->along, q, phase, p->kernel_w, p->in_w);
    float* pixel = y + ow * p->y_stride;
    gather_pixel(job, patches, row_of_ring, &down, &right, pixel);
    if (!dense) finish(e, residual ? residual + ow * e->residual_stride : NULL, p->out_c, pixel);
    if (++phase == p->stride_w) phase = 0, q++;
  }
  if (dense) finish(e, residual, p->out_w * p->out_c, y);
}

/* The patches of input rows [begin, end) of image n, into the ring. */
static int patches_of_rows(const transpose_job* job, int64_t n, int64_t begin, int64_t end,
                           float* patches) {
  const ext_conv2d_params* p = &job->p;
  ext_gemm g = {.n = p->kernel_h * p->kernel_w * job->channels,
                .k = p->in_c / p->groups,
                .a_row = p->x_stride,
                .y_row = job->patch};
  for (int64_t run; begin < end; begin += run) {
    run = i64_min(end - begin, job->ring - begin % job->ring);
    g.m = run * p->in_w;
    for (int64_t group = 0; group < p->groups; group++) {
      g.a = job->x + (n * p->in_h + begin) * p->in_w * p->x_stride + group * g.k;
      g.panels = job->w + group * ceil_div(g.n, EXT_PANEL) * EXT_PANEL * g.k;
      g.y = patches + begin % job->ring * p->in_w * job->patch + group * g.n;
      const int status = EXT_NAME(ext_gemm_serial)(&g, 0);
      if (status) return status;
    }
  }
  return EXT_OK;
}

/* The first input row that output row oh needs. */
static int64_t lowest(const ext_conv2d_params* p, int64_t oh) {
  const int64_t from = oh + p->pad_top - (p->kernel_h - 1) * p->dilation_h;
  return from <= 0 ? 0 : ceil_div(from, p->stride_h);
}

static int output_rows(void* context, int64_t begin, int64_t end) {
  const transpose_job* job = context;
  const ext_conv2d_params* p = &job->p;
  const int64_t floats = job->ring * p->in_w * job->patch;
  float* patches = ext_workspace_alloc((size_t)i64_max(1, floats) * sizeof(float));
  if (!patches) return EXT_ERR_MEMORY;
  int status = EXT_OK;
  int64_t image = -1, next = 0; /* the input row whose patches come next */
  for (int64_t row = begin, past; row < end && !status; row = past) {
    const int64_t n = row / p->out_h, oh = row % p->out_h;
    if (n != image) next = 0;
    image = n;
    past = i64_min(i64_min(end, row + job->block), (n + 1) * p->out_h);
    const int64_t highest = (past - 1 - n * p->out_h + p->pad_top) / p->stride_h;
    next = i64_max(next, lowest(p, oh));
    const int64_t stop = i64_min(p->in_h, highest + 1);
    status = patches_of_rows(job, n, next, stop, patches);
    next = i64_max(next, stop);
    for (int64_t r = row; r < past && !status; r++) gather_row(job, patches, r);
  }
  ext_workspace_free(patches);
  return status;
}

/* Images of one row, as lines are, are blocked along it: in memory they are columns as well. */
static void turn_row(ext_conv2d_params* p) {
  if (p->in_h != 1 || p->out_h != 1 || p->kernel_h != 1 || p->pad_top) return;
  p->in_h = p->in_w, p->out_h = p->out_w, p->kernel_h = p->kernel_w, p->stride_h = p->stride_w;
  p->pad_top = p->pad_left, p->dilation_h = p->dilation_w;
  p->in_w = p->out_w = p->kernel_w = p->stride_w = p->dilation_w = 1;
  p->pad_left = 0;
}

int EXT_NAME(ext_conv2d_transpose)(const ext_conv2d_params* params, const float* x, const float* w,
                                   const ext_epilogue* e, float* y) {
  transpose_job job = {.p = *params, .x = x, .w = w, .y = y};
  ext_conv2d_params* p = &job.p;
  if (p->groups < 1 || p->in_c % p->groups || p->out_c % p->groups) return EXT_ERR_ARGUMENT;
  if (p->stride_h < 1 || p->stride_w < 1) return EXT_ERR_ARGUMENT;
  turn_row(p);
  const int64_t rows = p->batch * p->out_h, row_floats = p->out_w * p->out_c;
  if (rows <= 0 || row_floats <= 0) return EXT_OK;
  if (e) job.e = *e;
  job.channels = p->out_c / p->groups;
  job.patch = p->kernel_h * p->kernel_w * p->out_c;
  int64_t* tables = ext_workspace_alloc((size_t)(2 * (p->stride_h + p->stride_w)) * sizeof *tables);
  if (!tables) return EXT_ERR_MEMORY;
  job.vertical = taps_of_axis(p->stride_h, p->kernel_h, p->dilation_h, tables);
  job.along = taps_of_axis(p->stride_w, p->kernel_w, p->dilation_w, tables + 2 * p->stride_h);
  const int64_t weight = job.patch * (p->in_c / p->groups);
  const int64_t wanted = i64_max(BLOCK_FLOATS, weight) / i64_max(1, p->in_w * job.patch);
  job.block = i64_max(1, wanted) * p->stride_h;
  const int64_t reach = (p->kernel_h - 1) * p->dilation_h;
  job.ring = i64_max(1, i64_min(p->in_h, (job.block - 1 + reach) / p->stride_h + 2));
  /* Tasks of some blocks: each makes anew what reaches over from the one before. */
  const int64_t share = ceil_div(rows, 4 * ext_num_threads());
  const int64_t grain = i64_max(i64_max(1, TASK_FLOATS / row_floats), i64_max(share, job.block));
  const int status = ext_parallel_products(rows, grain, output_rows, &job);
  ext_workspace_free(tables);
  return status;
}

EXT_DISPATCH(ext_conv2d_transpose,
             (const ext_conv2d_params* p, const float* x, const float* w, const ext_epilogue* e,
              float* y),
             (p, x, w, e, y))
