/*
 * y[r][oh][ow][c] = 1 / n sum over the n samples of a bin of sum_{i,j} u[i] v[j]
 * x[row[i]][column[j]][c]
 *
 * u and v weigh the two rows and columns that a sample lies between.  All pixels that samples of a
 * bin read are summed up in registers, a few vectors of channels at a time (K. He et al., Mask
 * R-CNN, 2017).
 */
#include <math.h>

#include "weighted_pixels.h"

/* Pixels times channels of one task at least: some ten microseconds. */
static const int64_t TASK_ELEMENTS = 1 << 15;

/* Pixels that are summed up at once; a sample has four. */
enum { MOST_PIXELS = 64 };

typedef struct {
  const ext_roi_align_params* p;
  const float *x, *regions;
  float* y;
} roi_job;

/* A bin along one axis: where it begins, how wide it is, and how many samples it has. */
typedef struct {
  float begin, width;
  int64_t count;
} bin_samples;

static bin_samples samples_of(const ext_roi_align_params* p, float begin, float end, int64_t bin,
                              int64_t bins) {
  const float from = begin * p->scale, size = end * p->scale - from;
  const float extent = p->aligned || !(size < 1.0f) ? size : 1.0f;
  bin_samples made = {.width = extent / (float)bins, .count = p->samples};
  made.begin = from + (float)bin * made.width;
  if (p->samples <= 0) /* none of what is no number, or a million pixels wide: 0 */
    made.count = made.width > 0.0f && made.width < 1e6f ? (int64_t)ceilf(made.width) : 0;
  return made;
}

/* Sample i of a bin. */
EXT_INLINE float place_of(bin_samples b, int64_t i) {
  return b.begin + ((float)i + 0.5f) * b.width / (float)b.count;
}

/* The two pixels that a place lies between, as elements from the first one, and their weights;
 * returns 0 where it is outside. */
EXT_INLINE int between(float at, int64_t size, int64_t step, int64_t pixel[2], float weight[2]) {
  if (!(at >= -1.0f && at <= (float)size)) return 0;
  const float most = (float)(size - 1), place = fminf(fmaxf(at, 0.0f), most);
  const int64_t low = (int64_t)place;
  pixel[0] = low * step;
  pixel[1] = (low + 1 < size ? low + 1 : low) * step;
  weight[1] = place - (float)low;
  weight[0] = 1.0f - weight[1];
  return 1;
}

static void pool_bin(const ext_roi_align_params* p, const float* x, bin_samples down,
                     bin_samples across, float* y) {
  const float share = 1.0f / (float)i64_max(1, down.count * across.count);
  int64_t at[MOST_PIXELS];
  float weight[MOST_PIXELS];
  int count = 0, summed = 0;
  for (int64_t i = 0; i < down.count; i++) {
    int64_t row[2], column[2];
    float u[2], v[2];
    if (!between(place_of(down, i), p->in_h, p->in_w * p->channels, row, u)) continue;
    for (int64_t j = 0; j < across.count; j++) {
      if (!between(place_of(across, j), p->in_w, p->channels, column, v)) continue;
      for (int k = 0; k < 4; k++, count++) {
        at[count] = row[k / 2] + column[k % 2];
        weight[count] = u[k / 2] * v[k % 2] * share;
      }
      if (count < MOST_PIXELS) continue;
      if (summed++)
        mix_pixels(1, count, at, weight, x, p->channels, y);
      else
        mix_pixels(0, count, at, weight, x, p->channels, y);
      count = 0;
    }
  }
  if (!summed)
    mix_pixels(0, count, at, weight, x, p->channels, y);
  else if (count)
    mix_pixels(1, count, at, weight, x, p->channels, y);
}

static int lines(void* context, int64_t begin, int64_t end) {
  const roi_job* job = context;
  const ext_roi_align_params* p = job->p;
  for (int64_t line = begin; line < end; line++) {
    const int64_t r = line / p->out_h;
    const float* region = job->regions + 5 * r;
    if (!(region[0] > -1.0f && region[0] < (float)p->batch)) return EXT_ERR_INDEX;
    const float* x = job->x + (int64_t)region[0] * p->in_h * p->in_w * p->channels;
    const bin_samples down = samples_of(p, region[2], region[4], line - r * p->out_h, p->out_h);
    float* y = job->y + line * p->out_w * p->channels;
    for (int64_t ow = 0; ow < p->out_w; ow++, y += p->channels)
      pool_bin(p, x, down, samples_of(p, region[1], region[3], ow, p->out_w), y);
  }
  return EXT_OK;
}

int EXT_NAME(ext_roi_align)(const ext_roi_align_params* p, const float* x, const float* regions,
                            float* y) {
  if (p->in_h < 1 || p->in_w < 1) return EXT_ERR_ARGUMENT;
  if (p->regions <= 0 || p->out_h <= 0 || p->out_w <= 0 || p->channels <= 0) return EXT_OK;
  roi_job job = {p, x, regions, y};
  const int64_t samples = p->samples > 0 ? p->samples : 2;
  const int64_t of_line = p->out_w * (p->channels + 16) * 4 * samples * samples;
  return ext_parallel_for(p->regions * p->out_h, i64_max(1, TASK_ELEMENTS / of_line), lines, &job);
}

EXT_DISPATCH(ext_roi_align,
             (const ext_roi_align_params* p, const float* x, const float* regions, float* y),
             (p, x, regions, y))
