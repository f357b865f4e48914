/*
 * y[r][oh][ow][c] = max over the pixels (h, w) of a bin of x[h][w][c]
 *
 * A region has whole pixels, and its bins overlap where its sides are no multiples of their number
 * (R. Girshick, Fast R-CNN, 2015).
 */
#include <float.h>
#include <math.h>

#include "../simd/simd.h"

/* Pixels times channels of one task at least: some ten microseconds. */
static const int64_t TASK_ELEMENTS = 1 << 15;

typedef struct {
  const ext_roi_max_params* p;
  const float *x, *regions;
  float* y;
} roi_job;

/* Pixels of a bin along an axis. */
typedef struct {
  int64_t begin, end;
} span;

/* A place rounded to a pixel; what is far outside, or no number, somewhere outside. */
static int64_t pixel_of(float place) {
  const float most = 1e9f, rounded = roundf(place);
  return rounded > -most ? (int64_t)(rounded < most ? rounded : most) : (int64_t)-most;
}

static span bin_of(float scale, float from, float to, int64_t bin, int64_t bins, int64_t size) {
  const int64_t first = pixel_of(from * scale), last = pixel_of(to * scale);
  const float width = (float)i64_max(last - first + 1, 1) / (float)bins;
  const int64_t begin = first + (int64_t)floorf((float)bin * width);
  const int64_t end = first + (int64_t)ceilf((float)(bin + 1) * width);
  return (span){i64_min(i64_max(begin, 0), size), i64_min(i64_max(end, 0), size)};
}

/* `vectors` vectors of channels, a constant, with all lanes if `full`. */
EXT_INLINE void greatest(const int vectors, const int full, const roi_job* job, const float* x,
                         span rows, span columns, int64_t lanes, float* y) {
  const int64_t channels = job->p->channels, line = job->p->in_w * channels;
  vf most[4];
  EXT_UNROLL
  for (int v = 0; v < vectors; v++) most[v] = vf_set1(-FLT_MAX);
  for (int64_t h = rows.begin; h < rows.end; h++) {
    const float* pixel = x + h * line + columns.begin * channels;
    for (int64_t w = columns.begin; w < columns.end; w++, pixel += channels) {
      EXT_UNROLL
      for (int v = 0; v < vectors; v++) {
        const float* at = pixel + v * VL;
        most[v] = vf_max_nan(most[v], full ? vf_load(at) : vf_load_n(at, lanes));
      }
    }
  }
  EXT_UNROLL
  for (int v = 0; v < vectors; v++) {
    if (full)
      vf_store(y + v * VL, most[v]);
    else
      vf_store_n(y + v * VL, most[v], lanes);
  }
}

static void pool_bin(const roi_job* job, const float* x, span rows, span columns, float* y) {
  const int64_t channels = job->p->channels;
  if (rows.begin >= rows.end || columns.begin >= columns.end) {
    memset(y, 0, (size_t)channels * sizeof *y);
    return;
  }
  int64_t c = 0;
  for (; c + 4 * VL <= channels; c += 4 * VL) greatest(4, 1, job, x + c, rows, columns, VL, y + c);
  for (; c + VL <= channels; c += VL) greatest(1, 1, job, x + c, rows, columns, VL, y + c);
  if (c < channels) greatest(1, 0, job, x + c, rows, columns, channels - c, y + c);
}

static int lines(void* context, int64_t begin, int64_t end) {
  const roi_job* job = context;
  const ext_roi_max_params* p = job->p;
  for (int64_t line = begin; line < end; line++) {
    const int64_t r = line / p->out_h;
    const float* region = job->regions + 5 * r;
    if (!(region[0] > -1.0f && region[0] < (float)p->batch)) return EXT_ERR_INDEX;
    const float* x = job->x + (int64_t)region[0] * p->in_h * p->in_w * p->channels;
    const span rows =
        bin_of(p->scale, region[2], region[4], line - r * p->out_h, p->out_h, p->in_h);
    float* y = job->y + line * p->out_w * p->channels;
    for (int64_t ow = 0; ow < p->out_w; ow++, y += p->channels)
      pool_bin(job, x, rows, bin_of(p->scale, region[1], region[3], ow, p->out_w, p->in_w), y);
  }
  return EXT_OK;
}

int EXT_NAME(ext_roi_max)(const ext_roi_max_params* p, const float* x, const float* regions,
                          float* y) {
  if (p->regions <= 0 || p->out_h <= 0 || p->out_w <= 0 || p->channels <= 0) return EXT_OK;
  roi_job job = {p, x, regions, y};
  /* A region that is half as high and wide as the image. */
  const int64_t pixels = (p->in_h / p->out_h / 2 + 2) * (p->in_w / 2 + 2 * p->out_w);
  const int64_t of_line = pixels * (p->channels + 16);
  return ext_parallel_for(p->regions * p->out_h, i64_max(1, TASK_ELEMENTS / of_line), lines, &job);
}

EXT_DISPATCH(ext_roi_max,
             (const ext_roi_max_params* p, const float* x, const float* regions, float* y),
             (p, x, regions, y))
