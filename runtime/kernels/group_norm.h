/*
 * group_norm.h - group normalisation of images that are stored as fp32 or bf16.
 *
 *   y[n][c][:] = f((x[n][c][:] - mean) / sqrt(variance + epsilon) * gamma[c] + beta[c])
 *
 * mean and variance are those of all elements of an image's group of channels.  A block of elements
 * that the cache keeps is read twice, for its mean and then for its squares, and the moments of
 * blocks are put together as Chan, Golub and LeVeque do: nothing cancels, and memory is read once
 * for the statistics.  Blocks depend on sizes alone, so that threads do not change a bit.
 *
 * Where channels are innermost, vectors run along them: moments are of each channel, and channels
 * are put together last.
 */
#ifndef EXT_GROUP_NORM_H_
#define EXT_GROUP_NORM_H_

#include "activation.h"
#include "norm_rows.h"

enum {
  BLOCK = 1 << 13,       /* elements that L1 keeps, or nearly */
  LEAST_PIXELS = 16,     /* of a block, so that putting moments together costs little */
  TILE = 1 << 12,        /* elements that are normalised before the activation reads them */
  WHOLE_GROUP = 1 << 16, /* elements of a group that one task normalises while L2 has them */
  GROUP_VECTORS = 4      /* of channels whose moments are in registers together */
};

/* `split` items to an image, of `span` pixels each where channels are last; else to a group, of
 * `span` elements.  stats has for each item its means and its sums of squares about them: one
 * number of each, or one for each of `lanes`, the channels in whole vectors. */
typedef struct {
  ext_group_norm_params p;
  int64_t size; /* elements of a group */
  int64_t split, span, lanes;
  const void* x;
  const float *gamma, *beta;
  void* y;
  float* stats;
} group_job;

/* What a stored form needs: moments of items, the settled ones of each image or group, results. */
typedef struct {
  ext_range_body moments_last, normalise_last, whole_groups, moments_first, normalise_first;
} group_bodies;

/* sum[v] = sum_p (x[p] - shift[v])^power over n pixels, of `vectors` vectors of channels; power 1
 * reads no shift.  All but n and lanes are constants. */
EXT_INLINE void pixel_sums(const int narrow, const int power, const int vectors, const int full,
                           const void* x, int64_t at, int64_t stride, int64_t n, int64_t lanes,
                           const vf* shift, vf* sum) {
  const int chains = 2 * GROUP_VECTORS / vectors;
  vf acc[2 * GROUP_VECTORS];
  EXT_UNROLL
  for (int i = 0; i < 2 * GROUP_VECTORS; i++) acc[i] = vf_zero();
  int64_t p = 0;
  for (; p + chains <= n; p += chains) {
    EXT_UNROLL
    for (int i = 0; i < 2 * GROUP_VECTORS; i++) {
      int64_t element = at + (p + i / vectors) * stride + i % vectors * VL;
      vf d = stored_load(narrow, full, x, element, lanes);
      if (power == 2) d -= shift[i % vectors];
      acc[i] = power == 1 ? acc[i] + d : vf_fma(d, d, acc[i]);
    }
  }
  for (; p < n; p++) {
    EXT_UNROLL
    for (int v = 0; v < vectors; v++) {
      vf d = stored_load(narrow, full, x, at + p * stride + v * VL, lanes);
      if (power == 2) d -= shift[v];
      acc[v] = power == 1 ? acc[v] + d : vf_fma(d, d, acc[v]);
    }
  }
  EXT_UNROLL
  for (int v = 0; v < vectors; v++) sum[v] = acc[v];
  EXT_UNROLL
  for (int i = vectors; i < 2 * GROUP_VECTORS; i++) sum[i % vectors] += acc[i];
}

/* The moments of `before` elements become those of these and of n more. */
EXT_INLINE void join_moments(float* mean, float* squares, vf more_mean, vf more_squares,
                             int64_t before, int64_t n) {
  if (before > 0) {
    float all = (float)(before + n);
    vf old = vf_load(mean), d = more_mean - old;
    more_mean = vf_fma(d, vf_set1((float)n / all), old);
    more_squares += vf_fma(d * d, vf_set1((float)before * ((float)n / all)), vf_load(squares));
  }
  vf_store(mean, more_mean);
  vf_store(squares, more_squares);
}

EXT_INLINE void block_moments(const int narrow, const int vectors, const int full, const void* x,
                              int64_t at, int64_t stride, int64_t before, int64_t n, int64_t lanes,
                              float* mean, float* squares) {
  vf means[GROUP_VECTORS], sums[GROUP_VECTORS];
  pixel_sums(narrow, 1, vectors, full, x, at, stride, n, lanes, means, sums);
  EXT_UNROLL
  for (int v = 0; v < vectors; v++) means[v] = sums[v] / vf_set1((float)n);
  pixel_sums(narrow, 2, vectors, full, x, at, stride, n, lanes, means, sums);
  EXT_UNROLL
  for (int v = 0; v < vectors; v++)
    join_moments(mean + v * VL, squares + v * VL, means[v], sums[v], before, n);
}

/* Moments of each channel over the pixels of items. */
EXT_INLINE int moments_of_pixels(const int narrow, const group_job* job, int64_t begin,
                                 int64_t end) {
  const int64_t channels = job->p.channels, stride = job->p.x_stride;
  const int64_t block = i64_max(LEAST_PIXELS, BLOCK / channels);
  for (int64_t item = begin; item < end; item++) {
    int64_t first = item % job->split * job->span;
    int64_t pixels = i64_min(job->span, job->p.inner - first);
    int64_t start = (item / job->split * job->p.inner + first) * stride;
    float *mean = job->stats + item * 2 * job->lanes, *squares = mean + job->lanes;
    for (int64_t p = 0; p < pixels; p += block) {
      int64_t n = i64_min(block, pixels - p), at = start + p * stride, c = 0;
      for (; c + GROUP_VECTORS * VL <= channels; c += GROUP_VECTORS * VL)
        block_moments(narrow, GROUP_VECTORS, 1, job->x, at + c, stride, p, n, VL, mean + c,
                      squares + c);
      for (; c + VL <= channels; c += VL)
        block_moments(narrow, 1, 1, job->x, at + c, stride, p, n, VL, mean + c, squares + c);
      if (c < channels)
        block_moments(narrow, 1, 0, job->x, at + c, stride, p, n, channels - c, mean + c,
                      squares + c);
    }
  }
  return EXT_OK;
}

/* The first item of each image gets, for each channel, mean and gamma / sqrt(variance + epsilon) of
 * its group. */
static int settle_pixels(void* context, int64_t begin, int64_t end) {
  const group_job* job = context;
  const int64_t of_group = job->p.channels / job->p.groups;
  for (int64_t n = begin; n < end; n++) {
    float *mean = job->stats + n * job->split * 2 * job->lanes, *squares = mean + job->lanes;
    for (int64_t item = 1; item < job->split; item++) {
      const float* more = mean + item * 2 * job->lanes;
      int64_t before = item * job->span, pixels = i64_min(job->span, job->p.inner - before);
      for (int64_t c = 0; c < job->lanes; c += VL)
        join_moments(mean + c, squares + c, vf_load(more + c), vf_load(more + job->lanes + c),
                     before, pixels);
    }
    for (int64_t c0 = 0; c0 < job->p.channels; c0 += of_group) {
      double sum = 0.0, about = 0.0;
      for (int64_t c = c0; c < c0 + of_group; c++) sum += mean[c];
      const double middle = sum / (double)of_group;
      for (int64_t c = c0; c < c0 + of_group; c++) {
        double d = mean[c] - middle;
        about += squares[c] + d * d * (double)job->p.inner;
      }
      float scale = 1.0f / sqrtf((float)(about / (double)job->size) + job->p.epsilon);
      for (int64_t c = c0; c < c0 + of_group; c++) {
        mean[c] = (float)middle;
        squares[c] = job->gamma ? scale * job->gamma[c] : scale;
      }
    }
  }
  return EXT_OK;
}

/* Where results of a tile wait for the activation: in y itself if that has them without gaps. */
typedef struct {
  float* t;
  int64_t stride;
} waiting;

/* y[i][j] = f(t[i][j]), i < rows, j < columns; t is y's own memory where `in_place`. */
EXT_INLINE void finish_rows_of(const int narrow, const ext_activation* f, waiting from,
                               int in_place, int64_t rows, int64_t columns, void* y, int64_t at,
                               int64_t stride) {
  if (f->kind != EXT_IDENTITY) {
    if (from.stride == columns)
      EXT_NAME(ext_activate)(f, rows * columns, from.t, from.t);
    else
      for (int64_t i = 0; i < rows; i++)
        EXT_NAME(ext_activate)(f, columns, from.t + i * from.stride, from.t + i * from.stride);
  }
  if (in_place) return;
  for (int64_t i = 0; i < rows; i++) {
    const float* t = from.t + i * from.stride;
    int64_t to = at + i * stride, j = 0;
    for (; j + VL <= columns; j += VL) stored_store(narrow, 1, y, to + j, vf_load(t + j), VL);
    if (j < columns) stored_store(narrow, 0, y, to + j, vf_load_n(t + j, columns - j), columns - j);
  }
}

/* t[p][:] = (x[p][:] - mean) * scale + beta of `vectors` vectors of channels, n pixels. */
EXT_INLINE void scale_pixels(const int narrow, const int vectors, const int full, const void* x,
                             int64_t at, int64_t x_stride, int64_t n, int64_t lanes,
                             const float* mean, const float* scale, const float* beta, float* t,
                             int64_t t_stride) {
  vf m[GROUP_VECTORS], s[GROUP_VECTORS], b[GROUP_VECTORS];
  EXT_UNROLL
  for (int v = 0; v < vectors; v++) {
    m[v] = stored_load(0, full, mean, v * VL, lanes);
    s[v] = stored_load(0, full, scale, v * VL, lanes);
    b[v] = beta ? stored_load(0, full, beta, v * VL, lanes) : vf_zero();
  }
  for (int64_t p = 0; p < n; p++) {
    EXT_UNROLL
    for (int v = 0; v < vectors; v++) {
      vf u = stored_load(narrow, full, x, at + p * x_stride + v * VL, lanes);
      stored_store(0, full, t, p * t_stride + v * VL, vf_fma(u - m[v], s[v], b[v]), lanes);
    }
  }
}

/* Columns [c0, c0 + width) of n pixels of image `item`, from the pixel number `first` on. */
EXT_INLINE void normalise_tile(const int narrow_x, const int narrow_y, const group_job* job,
                               int64_t image, int64_t first, int64_t n, int64_t c0, int64_t width) {
  const int64_t x_stride = job->p.x_stride, y_stride = job->p.y_stride;
  const float *mean = job->stats + image * job->split * 2 * job->lanes, *scale = mean + job->lanes;
  const int64_t pixel = image * job->p.inner + first, to = pixel * y_stride + c0;
  float memory[TILE];
  const int in_place = !narrow_y;
  waiting t = in_place ? (waiting){(float*)job->y + to, y_stride} : (waiting){memory, width};
  int64_t c = 0;
  for (; c + GROUP_VECTORS * VL <= width; c += GROUP_VECTORS * VL)
    scale_pixels(narrow_x, GROUP_VECTORS, 1, job->x, pixel * x_stride + c0 + c, x_stride, n, VL,
                 mean + c0 + c, scale + c0 + c, job->beta ? job->beta + c0 + c : NULL, t.t + c,
                 t.stride);
  for (; c < width; c += VL) {
    const float* beta = job->beta ? job->beta + c0 + c : NULL;
    int64_t lanes = i64_min(VL, width - c), at = pixel * x_stride + c0 + c;
    if (lanes == VL)
      scale_pixels(narrow_x, 1, 1, job->x, at, x_stride, n, VL, mean + c0 + c, scale + c0 + c, beta,
                   t.t + c, t.stride);
    else
      scale_pixels(narrow_x, 1, 0, job->x, at, x_stride, n, lanes, mean + c0 + c, scale + c0 + c,
                   beta, t.t + c, t.stride);
  }
  finish_rows_of(narrow_y, &job->p.after, t, in_place, n, width, job->y, to, y_stride);
}

EXT_INLINE int normalise_pixels(const int narrow_x, const int narrow_y, const group_job* job,
                                int64_t begin, int64_t end) {
  const int64_t width = i64_min(TILE, job->p.channels), rows = i64_max(1, TILE / width);
  for (int64_t item = begin; item < end; item++) {
    int64_t first = item % job->split * job->span;
    int64_t last = i64_min(first + job->span, job->p.inner);
    for (int64_t p = first; p < last; p += rows)
      for (int64_t c = 0; c < job->p.channels; c += width)
        normalise_tile(narrow_x, narrow_y, job, item / job->split, p, i64_min(rows, last - p), c,
                       i64_min(width, job->p.channels - c));
  }
  return EXT_OK;
}

/* n elements of one channel from `at` on. */
EXT_INLINE void normalise_run(const int narrow_x, const int narrow_y, const group_job* job,
                              int64_t channel, int64_t at, int64_t n, float mean, float inverse) {
  const vf m = vf_set1(mean), s = vf_set1(job->gamma ? inverse * job->gamma[channel] : inverse);
  const vf b = vf_set1(job->beta ? job->beta[channel] : 0.0f);
  float memory[TILE];
  for (int64_t done = 0; done < n; done += TILE) {
    const int64_t count = i64_min(TILE, n - done), start = at + done;
    float* t = narrow_y ? memory : (float*)job->y + start;
    int64_t i = 0;
    for (; i + VL <= count; i += VL)
      vf_store(t + i, vf_fma(stored_load(narrow_x, 1, job->x, start + i, VL) - m, s, b));
    if (i < count) {
      vf u = stored_load(narrow_x, 0, job->x, start + i, count - i);
      vf_store_n(t + i, vf_fma(u - m, s, b), count - i);
    }
    finish_rows_of(narrow_y, &job->p.after, (waiting){t, count}, !narrow_y, 1, count, job->y, start,
                   count);
  }
}

/* Items are groups, all of each at once. */
EXT_INLINE int whole_groups(const int narrow_x, const int narrow_y, const group_job* job,
                            int64_t begin, int64_t end) {
  const int64_t of_group = job->p.channels / job->p.groups, inner = job->p.inner;
  for (int64_t item = begin; item < end; item++) {
    const int64_t at = item * job->size, first = item % job->p.groups * of_group;
    const void* x = stored_element(narrow_x, job->x, at);
    float mean = moment(1, narrow_x, x, job->size, 0.0f) / (float)job->size;
    float variance = moment(2, narrow_x, x, job->size, mean) / (float)job->size;
    float inverse = 1.0f / sqrtf(variance + job->p.epsilon);
    for (int64_t c = 0; c < of_group; c++)
      normalise_run(narrow_x, narrow_y, job, first + c, at + c * inner, inner, mean, inverse);
  }
  return EXT_OK;
}

/* Items are parts of groups, which lie in one piece. */
EXT_INLINE int moments_of_parts(const int narrow, const group_job* job, int64_t begin,
                                int64_t end) {
  for (int64_t item = begin; item < end; item++) {
    int64_t first = item % job->split * job->span, n = i64_min(job->span, job->size - first);
    const void* x = stored_element(narrow, job->x, item / job->split * job->size + first);
    float mean = moment(1, narrow, x, n, 0.0f) / (float)n;
    job->stats[2 * item] = mean;
    job->stats[2 * item + 1] = moment(2, narrow, x, n, mean);
  }
  return EXT_OK;
}

/* The first part of each group gets mean and 1 / sqrt(variance + epsilon) of the group. */
static int settle_parts(void* context, int64_t begin, int64_t end) {
  const group_job* job = context;
  for (int64_t group = begin; group < end; group++) {
    float* stats = job->stats + group * job->split * 2;
    double mean = stats[0], squares = stats[1];
    for (int64_t part = 1; part < job->split; part++) {
      double before = (double)(part * job->span), d = stats[2 * part] - mean;
      double n = (double)i64_min(job->span, job->size - part * job->span);
      mean += d * (n / (before + n));
      squares += stats[2 * part + 1] + d * d * (before * n / (before + n));
    }
    stats[0] = (float)mean;
    stats[1] = 1.0f / sqrtf((float)(squares / (double)job->size) + job->p.epsilon);
  }
  return EXT_OK;
}

/* The same items again; a part may end within a channel. */
EXT_INLINE int normalise_parts(const int narrow_x, const int narrow_y, const group_job* job,
                               int64_t begin, int64_t end) {
  const int64_t of_group = job->p.channels / job->p.groups, inner = job->p.inner;
  for (int64_t item = begin; item < end; item++) {
    int64_t group = item / job->split, at = item % job->split * job->span;
    const int64_t last = i64_min(at + job->span, job->size);
    const float* stats = job->stats + group * job->split * 2;
    while (at < last) {
      int64_t channel = at / inner, n = i64_min((channel + 1) * inner, last) - at;
      normalise_run(narrow_x, narrow_y, job, group % job->p.groups * of_group + channel,
                    group * job->size + at, n, stats[0], stats[1]);
      at += n;
    }
  }
  return EXT_OK;
}

static int in_three_passes(group_job* job, int64_t blocks, int64_t numbers, ext_range_body moments,
                           ext_range_body settle, ext_range_body normalise) {
  const int64_t items = blocks * job->split;
  job->stats = ext_workspace_alloc((size_t)(items * numbers) * sizeof(float));
  if (!job->stats) return EXT_ERR_MEMORY;
  int64_t grain = i64_max(1, TASK_ELEMENTS / (job->span * numbers / 2));
  int status = ext_parallel_for(items, grain, moments, job);
  if (status == EXT_OK) status = ext_parallel_for(blocks, 1, settle, job);
  if (status == EXT_OK) status = ext_parallel_for(items, grain, normalise, job);
  ext_workspace_free(job->stats);
  return status;
}

static int group_norm(group_job* job, const group_bodies* of) {
  const ext_group_norm_params* p = &job->p;
  if (p->batch <= 0 || p->channels <= 0 || p->inner <= 0) return EXT_OK;
  if (p->groups <= 0 || p->channels % p->groups != 0) return EXT_ERR_ARGUMENT;
  job->size = p->channels / p->groups * p->inner;
  if (p->channels_last) {
    job->lanes = ceil_div(p->channels, VL) * VL;
    job->span = i64_min(p->inner, i64_max(4 * LEAST_PIXELS, TASK_ELEMENTS / p->channels));
    job->split = ceil_div(p->inner, job->span);
    return in_three_passes(job, p->batch, 2 * job->lanes, of->moments_last, settle_pixels,
                           of->normalise_last);
  }
  const int64_t groups = p->batch * p->groups;
  if (job->size <= WHOLE_GROUP)
    return ext_parallel_for(groups, i64_max(1, TASK_ELEMENTS / job->size), of->whole_groups, job);
  job->span = TASK_ELEMENTS;
  job->split = ceil_div(job->size, job->span);
  return in_three_passes(job, groups, 2, of->moments_first, settle_parts, of->normalise_first);
}

/* The bodies for what is stored as bf16 where `nx` and `ny` are 1. */
#define GROUP_NORM_BODIES(nx, ny)                                                              \
  static int moments_last_##nx##ny(void* job, int64_t begin, int64_t end) {                    \
    return moments_of_pixels(nx, job, begin, end);                                             \
  }                                                                                            \
  static int normalise_last_##nx##ny(void* job, int64_t begin, int64_t end) {                  \
    return normalise_pixels(nx, ny, job, begin, end);                                          \
  }                                                                                            \
  static int whole_groups_##nx##ny(void* job, int64_t begin, int64_t end) {                    \
    return whole_groups(nx, ny, job, begin, end);                                              \
  }                                                                                            \
  static int moments_first_##nx##ny(void* job, int64_t begin, int64_t end) {                   \
    return moments_of_parts(nx, job, begin, end);                                              \
  }                                                                                            \
  static int normalise_first_##nx##ny(void* job, int64_t begin, int64_t end) {                 \
    return normalise_parts(nx, ny, job, begin, end);                                           \
  }                                                                                            \
  static const group_bodies bodies_##nx##ny = {moments_last_##nx##ny, normalise_last_##nx##ny, \
                                               whole_groups_##nx##ny, moments_first_##nx##ny,  \
                                               normalise_first_##nx##ny};

#endif /* EXT_GROUP_NORM_H_ */
