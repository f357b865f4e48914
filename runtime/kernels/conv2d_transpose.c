/*
 * y[n][oh][ow][o] = epilogue(sum x[n][ih][iw][c] * w[c][o][kh][kw]),
 *   oh = ih sh + kh dh - top, ow = iw sw + kw dw - left
 *
 * First a matrix product per group: rows are input pixels, columns (kh, kw, o), so that every input
 * pixel has the patch that it adds to y.  Then each output pixel gathers what the patches have for
 * it, and the epilogue follows.  Patches are made for a block of output rows at a time, so that
 * they are in L2 when they are gathered; rows of the input that the next block needs as well stay
 * in a ring.  Of few channels, patches are planes (transposed_planes.h).
 */
#include "activation.h"
#include "gemm.h"
#include "subnormals.h"
#include "transposed_planes.h"

/* Floats of the patches of a block at least, a quarter of a 1 MiB L2; those of the weight, if more,
 * as each block reads it. */
static const int64_t BLOCK_FLOATS = 1 << 16;
/* Floats that one task gathers at least: some ten microseconds. */
static const int64_t TASK_FLOATS = 1 << 15;

/* y[c] = bias[c] + what the patches of `down` x `right` have for VL channels or fewer. */
EXT_INLINE vf gathered(const transpose_job* job, const float* patches, int64_t row_of_ring,
                       const taps_on* down, const taps_on* right, vf sum, int64_t lanes) {
  const ext_conv2d_params* p = &job->p;
  int64_t ih = row_of_ring;
  for (int64_t kh = down->first; kh < down->past; kh += job->vertical.step) {
    const float* row = patches + ih * job->row_floats;
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

/* y[i] = bias[i] + the patches' floats from each tap on, i < n: channels of a pixel, or those of
 * neighbours whose taps are neighbours as well. */
EXT_INLINE void gather_run(const transpose_job* job, const float* patches, int64_t row_of_ring,
                           const taps_on* down, const taps_on* right, const float* bias, int64_t n,
                           float* y) {
  int64_t c = 0;
  for (; c + VL <= n; c += VL) {
    const vf sum = bias ? vf_load(bias + c) : vf_zero();
    vf_store(y + c, gathered(job, patches + c, row_of_ring, down, right, sum, VL));
  }
  if (c == n) return;
  const vf sum = bias ? vf_load_n(bias + c, n - c) : vf_zero();
  vf_store_n(y + c, gathered(job, patches + c, row_of_ring, down, right, sum, n - c), n - c);
}

static void gather_pixel(const transpose_job* job, const float* patches, int64_t row_of_ring,
                         const taps_on* down, const taps_on* right, float* y) {
  const int64_t n = job->channels, group_floats = job->patch / job->p.groups;
  for (int64_t g = 0; g < job->p.groups; g++, patches += group_floats, y += n)
    gather_run(job, patches, row_of_ring, down, right, job->e.bias ? job->e.bias + g * n : NULL, n,
               y);
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

static int is_dense(const transpose_job* job) {
  const int64_t channels = job->p.out_c;
  return job->p.y_stride == channels && (!job->e.residual || job->e.residual_stride == channels);
}

/* Pixels of an output row, each with what follows the bias. */
static void gather_pixels(const transpose_job* job, const float* patches, int64_t row) {
  const ext_conv2d_params* p = &job->p;
  const ext_epilogue* e = &job->e;
  const taps_on down = taps_of_row(job, row % p->out_h);
  const int64_t row_of_ring = down.at % job->ring;
  float* y = job->y + row * p->out_w * p->y_stride;
  const float* residual = e->residual ? e->residual + row * p->out_w * e->residual_stride : NULL;
  const int dense = is_dense(job);
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

/* Outputs [begin, end) of a line.  Those of one q are a run: of each tap the next output's is next
 * to it in the patch, up to where the kernel has one tap less. */
static void gather_line(const transpose_job* job, const float* patches, int64_t begin, int64_t end,
                        float* y) {
  const ext_conv2d_params* p = &job->p;
  const int64_t stride = p->stride_h, n = job->channels, longer = p->kernel_h % stride;
  const taps_on right = {0, 1, 0};
  /* Divided once: a division takes longer than a short run. */
  int64_t q = (begin + p->pad_top) / stride, phase = (begin + p->pad_top) % stride;
  int64_t of_ring = q % job->ring;
  for (int64_t oh = begin, run; oh < end; oh += run, y += run * n) {
    run = i64_min(end - oh, (phase < longer ? longer : stride) - phase);
    const taps_on down = taps_inside(&job->vertical, q, phase, p->kernel_h, p->in_h);
    int64_t row = of_ring + down.at - q;
    while (row < 0) row += job->ring;
    const float* bias = job->line_bias ? job->line_bias + phase * n : NULL;
    gather_run(job, patches, row, &down, &right, bias, run * n, y);
    phase += run;
    if (phase < stride) continue;
    phase = 0, q++;
    if (++of_ring == job->ring) of_ring = 0;
  }
}

/* Output rows [begin, end) of an image, of which `row` is the first in the batch, from patches that
 * are all there. */
static void gather_rows(const transpose_job* job, const float* patches, int64_t row, int64_t begin,
                        int64_t end, float* room) {
  const ext_conv2d_params* p = &job->p;
  const int64_t floats = p->out_w * p->out_c;
  const float* residual = job->e.residual ? job->e.residual + row * floats : NULL;
  float* y = job->y + row * p->out_w * p->y_stride;
  if (job->is_line) {
    gather_line(job, patches, begin, end, y);
    finish(&job->e, residual, (end - begin) * floats, y);
  } else if (job->has_planes) {
    for (; begin < end; begin++, y += floats) {
      gather_planes(job, patches, begin, room, y);
      finish(&job->e, residual, floats, y);
      residual = residual ? residual + floats : NULL;
    }
  } else {
    for (; begin < end; begin++, row++) gather_pixels(job, patches, row);
  }
}

/* The patches of input rows [begin, end) of image n, into the ring; by way of `room`, if as
 * planes. */
static int patches_of_rows(const transpose_job* job, int64_t n, int64_t begin, int64_t end,
                           float* patches, float* room) {
  const ext_conv2d_params* p = &job->p;
  ext_gemm g = {.n = p->kernel_h * p->kernel_w * job->channels,
                .k = p->in_c / p->groups,
                .a_row = p->x_stride,
                .y_row = job->patch};
  for (int64_t run; begin < end; begin += run) {
    const int64_t at = begin % job->ring;
    run = i64_min(end - begin, job->has_planes ? rows_at_once(job) : job->ring - at);
    g.m = run * p->in_w;
    for (int64_t group = 0; group < p->groups; group++) {
      g.a = job->x + (n * p->in_h + begin) * p->in_w * p->x_stride + group * g.k;
      g.panels = job->w + group * ceil_div(g.n, EXT_PANEL) * EXT_PANEL * g.k;
      g.y = job->has_planes ? room : patches + at * job->row_floats + group * g.n;
      const int status = EXT_NAME(ext_gemm_serial)(&g, 0);
      if (status) return status;
    }
    for (int64_t i = 0; job->has_planes && i < run; i++)
      put_in_planes(job, room + i * p->in_w * job->patch,
                    patches + (begin + i) % job->ring * job->row_floats);
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
  const int64_t floats = job->ring * job->row_floats;
  const int64_t room = job->has_planes ? plane_room(job) : 0;
  float* patches = ext_workspace_alloc((size_t)i64_max(1, floats + room) * sizeof(float));
  if (!patches) return EXT_ERR_MEMORY;
  if (job->has_planes) clear_planes(job, patches);
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
    status = patches_of_rows(job, n, next, stop, patches, patches + floats);
    next = i64_max(next, stop);
    if (!status) gather_rows(job, patches, row, oh, past - n * p->out_h, patches + floats);
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

/* Whether outputs of neighbours along the line are one run. */
static int is_line(const transpose_job* job) {
  const ext_conv2d_params* p = &job->p;
  return p->in_w == 1 && p->out_w == 1 && p->kernel_w == 1 && p->stride_w == 1 && !p->pad_left &&
         p->dilation_h == 1 && p->groups == 1 && is_dense(job);
}

/* The bias once for each phase of a line's stride. */
static const float* repeat_bias(const transpose_job* job, float* biases) {
  const int64_t n = job->channels;
  for (int64_t i = 0; i < job->p.stride_h; i++) copy_run(biases + i * n, job->e.bias, n);
  return biases;
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
  job.is_line = is_line(&job);
  const int64_t biases = job.is_line && job.e.bias ? p->stride_h * p->out_c : 0;
  int64_t* tables = ext_workspace_alloc((size_t)(2 * (p->stride_h + p->stride_w)) * sizeof *tables +
                                        (size_t)biases * sizeof(float));
  if (!tables) return EXT_ERR_MEMORY;
  job.vertical = taps_of_axis(p->stride_h, p->kernel_h, p->dilation_h, tables);
  job.along = taps_of_axis(p->stride_w, p->kernel_w, p->dilation_w, tables + 2 * p->stride_h);
  if (biases) job.line_bias = repeat_bias(&job, (float*)(tables + 2 * (p->stride_h + p->stride_w)));
  job.has_planes = !job.is_line && is_dense(&job) && planes_pay(p);
  if (job.has_planes) job.planes = sizes_of_planes(&job);
  job.row_floats = (job.has_planes ? job.planes.width : p->in_w) * job.patch;
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
