/*
 * Internal: rows of a transposed convolution of few channels, from patches that lie as planes
 *
 *   [tap][channel][zeros, in_w, zeros]
 *
 * of each input row, so that a vector is of neighbours along the row, whatever the channels:
 *
 *   sums[phase][o][q] = bias[o] + sum over taps of plane[tap][o][q + at]
 *
 * and y has the phases and channels of each q side by side.
 */
#ifndef EXT_TRANSPOSED_PLANES_H_
#define EXT_TRANSPOSED_PLANES_H_

#include "transpose.h"
#include "transposed_taps.h"

/* Vectors of a line at once, and floats of patches that are put into planes at once. */
enum { PLANE_VECTORS = 4, PLANE_FLOATS = 1 << 13 };

/* Planes take less time than pixel after pixel where a vector has room for some pixels' channels,
 * and a row has some vectors. */
static int planes_pay(const ext_conv2d_params* p) {
  return p->groups == 1 && 2 * p->out_c <= VL && p->in_w >= 2 * VL;
}

static plane_sizes sizes_of_planes(const transpose_job* job) {
  const ext_conv2d_params* p = &job->p;
  const axis_taps* t = &job->along;
  plane_sizes sizes = {.first_q = p->pad_left / p->stride_w};
  sizes.number = (p->out_w - 1 + p->pad_left) / p->stride_w - sizes.first_q + 1;
  sizes.line = ceil_div(sizes.number, VL) * VL;
  int64_t lowest = 0, highest = p->in_w - 1;
  for (int64_t phase = 0; phase < p->stride_w; phase++) {
    if (t->first[phase] >= p->kernel_w) continue;
    const int64_t from = sizes.first_q + t->at[phase];
    const int64_t further = (p->kernel_w - 1 - t->first[phase]) / t->step;
    lowest = i64_min(lowest, from - further * t->back);
    highest = i64_max(highest, from + sizes.line - 1);
  }
  sizes.left = -lowest;
  sizes.width = highest + 1 - lowest;
  return sizes;
}

/* Input rows whose patches are put into planes at once. */
static int64_t rows_at_once(const transpose_job* job) {
  return i64_max(1, PLANE_FLOATS / (job->p.in_w * job->patch));
}

/* What is beside the lines of all planes is zero. */
static void clear_planes(const transpose_job* job, float* planes) {
  const plane_sizes* sizes = &job->planes;
  const int64_t past = sizes->left + job->p.in_w;
  for (int64_t i = 0; i < job->ring * job->patch; i++, planes += sizes->width) {
    zero_run(planes, sizes->left);
    zero_run(planes + past, sizes->width - past);
  }
}

/* Puts the patches of an input row, one after the other, into its planes. */
static void put_in_planes(const transpose_job* job, const float* patches, float* planes) {
  const plane_sizes* sizes = &job->planes;
  transpose(job->patch, job->p.in_w, patches, job->patch, planes + sizes->left, sizes->width);
}

/* Sums of `vectors` vectors from q on: `tap` is where the first tap of a row has them, the next one
 * `step` floats further. */
EXT_INLINE void sum_planes(const int vectors, const transpose_job* job, const float* planes,
                           int64_t row_of_ring, const taps_on* down, int64_t tap, int64_t taps,
                           int64_t step, vf bias, float* sums) {
  const ext_conv2d_params* p = &job->p;
  vf acc[PLANE_VECTORS];
  EXT_UNROLL
  for (int v = 0; v < vectors; v++) acc[v] = bias;
  int64_t ih = row_of_ring;
  for (int64_t kh = down->first; kh < down->past; kh += job->vertical.step) {
    const float* at =
        planes + ih * job->row_floats + tap + kh * p->kernel_w * job->channels * job->planes.width;
    for (int64_t i = 0; i < taps; i++, at += step) {
      EXT_UNROLL
      for (int v = 0; v < vectors; v++) acc[v] = acc[v] + vf_load(at + v * VL);
    }
    ih -= job->vertical.back;
    if (ih < 0) ih += job->ring;
  }
  EXT_UNROLL
  for (int v = 0; v < vectors; v++) vf_store(sums + v * VL, acc[v]);
}

/* The line of sums of one phase and channel. */
static void sum_line(const transpose_job* job, const float* planes, int64_t row_of_ring,
                     const taps_on* down, int64_t phase, int64_t channel, float* sums) {
  const plane_sizes* sizes = &job->planes;
  const axis_taps* t = &job->along;
  const int64_t first = t->first[phase], kernel = job->p.kernel_w, width = sizes->width;
  const int64_t taps = first < kernel ? (kernel - 1 - first) / t->step + 1 : 0;
  const int64_t step = t->step * job->channels * width - t->back;
  const int64_t tap =
      (first * job->channels + channel) * width + sizes->left + sizes->first_q + t->at[phase];
  const vf bias = job->e.bias ? vf_set1(job->e.bias[channel]) : vf_zero();
  int64_t q = 0;
  for (; q + PLANE_VECTORS * VL <= sizes->line; q += PLANE_VECTORS * VL)
    sum_planes(PLANE_VECTORS, job, planes, row_of_ring, down, tap + q, taps, step, bias, sums + q);
  for (; q < sizes->line; q += VL)
    sum_planes(1, job, planes, row_of_ring, down, tap + q, taps, step, bias, sums + q);
}

/* Floats that patches wait in, and rows of sums. */
static int64_t plane_room(const transpose_job* job) {
  const int64_t lines = job->p.stride_w * job->channels;
  return i64_max(rows_at_once(job) * job->p.in_w * job->patch,
                 lines * (job->planes.line + job->planes.number));
}

/* y[out_w][channels] = an output row without what follows the bias; `room` is plane_room's. */
static void gather_planes(const transpose_job* job, const float* planes, int64_t oh, float* room,
                          float* y) {
  const ext_conv2d_params* p = &job->p;
  const plane_sizes* sizes = &job->planes;
  const taps_on down = taps_of_row(job, oh);
  const int64_t lines = p->stride_w * job->channels, floats = p->out_w * job->channels;
  const int64_t cut = p->pad_left % p->stride_w * job->channels;
  for (int64_t i = 0; i < lines; i++)
    sum_line(job, planes, down.at % job->ring, &down, i / job->channels, i % job->channels,
             room + i * sizes->line);
  const int whole = cut == 0 && floats == sizes->number * lines;
  float* row = whole ? y : room + lines * sizes->line;
  transpose(sizes->number, lines, room, sizes->line, row, lines);
  if (!whole) copy_run(y, row + cut, floats);
}

#endif /* EXT_TRANSPOSED_PLANES_H_ */
