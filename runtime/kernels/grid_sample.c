/*
 * y[n][oh][ow][c] = sum_{i,j} row_weight[i] column_weight[j] x[n][row[i]][column[j]][c]
 *
 * where the pixels and weights of each point are those of the place that a grid names: one pixel
 * (nearest), two along each axis (bilinear) or four (bicubic; Keys, 1981, with a = -3/4).  What of
 * them is outside of the image and stays there counts nothing, even where it is no number.  Volumes
 * have planes beside rows and columns.
 */
#include <math.h>

#include "weighted_pixels.h"

/* Elements of y times pixels of one task at least: some ten microseconds. */
static const int64_t TASK_ELEMENTS = 1 << 14;

enum { MOST_TAPS = 4 };

/* Channels that are summed up one by one. */
enum { FEW_CHANNELS = 2 };

typedef struct {
  const ext_grid_sample_params* p;
  const float *x, *grid;
  float* y;
  int64_t in_d, out_d; /* 1 of images */
} sample_job;

/* Elements from the image's first one, along one axis, and their weights. */
typedef struct {
  int64_t at[MOST_TAPS];
  float weight[MOST_TAPS];
  int count;
} axis_taps;

/* A place as the padding has it: left where it is, on the border, or reflected at the border until
 * it is inside.  A NaN is the last pixel. */
static float within(const ext_grid_sample_params* p, float at, int64_t size) {
  if (p->padding == EXT_GRID_ZEROS) return at;
  if (p->padding == EXT_GRID_REFLECTION) {
    const float low = p->align_corners ? 0.0f : -0.5f;
    const float span = (float)(p->align_corners ? size - 1 : size);
    if (span <= 0.0f) {
      at = 0.0f;
    } else {
      const float way = fabsf(at - low), flips = floorf(way / span);
      const float rest = way - flips * span, half = flips * 0.5f;
      at = (half == floorf(half) ? rest : span - rest) + low;
    }
  }
  const float most = (float)(size - 1);
  at = at < 0.0f ? 0.0f : at;
  return at < most ? at : most;
}

EXT_INLINE void add_tap(axis_taps* taps, float pixel, float weight, int64_t size, int64_t step) {
  if (!(pixel >= 0.0f && pixel <= (float)(size - 1))) return;
  taps->at[taps->count] = (int64_t)pixel * step;
  taps->weight[taps->count++] = weight;
}

/* The pixels of a place from -1 to 1 along an axis of `size` pixels, which are `step` apart. */
static void taps_of(const ext_grid_sample_params* p, float place, int64_t size, int64_t step,
                    axis_taps* taps) {
  taps->count = 0;
  /* Rounded before one is taken off, as elsewhere: of nearest pixels the last bit decides ties. */
  const volatile float scaled = (place + 1.0f) * (float)size;
  float at =
      p->align_corners ? (place + 1.0f) * ((float)(size - 1) * 0.5f) : (scaled - 1.0f) * 0.5f;
  if (p->method == EXT_GRID_BICUBIC) {
    const float first = floorf(at), t = at - first, square = t * t, cube = square * t, a = -0.75f;
    const float weight[] = {a * (cube - 2 * square + t), (a + 2) * cube - (a + 3) * square + 1,
                            -(a + 2) * cube + (2 * a + 3) * square - a * t, a * (square - cube)};
    for (int i = 0; i < MOST_TAPS; i++)
      add_tap(taps, within(p, first + (float)(i - 1), size), weight[i], size, step);
    return;
  }
  at = within(p, at, size);
  if (p->method == EXT_GRID_NEAREST) {
    add_tap(taps, rintf(at), 1.0f, size, step);
    return;
  }
  const float below = floorf(at), above = below + 1.0f;
  add_tap(taps, below, above - at, size, step);
  add_tap(taps, above, at - below, size, step);
}

/* Each pixel of a point, as an element, and its weight; returns how many. */
EXT_INLINE int pixels_of(const axis_taps* planes, const axis_taps* rows, const axis_taps* columns,
                         int64_t* at, float* weight) {
  int count = 0;
  for (int i = 0; i < planes->count; i++)
    for (int j = 0; j < rows->count; j++)
      for (int k = 0; k < columns->count; k++, count++) {
        at[count] = planes->at[i] + rows->at[j] + columns->at[k];
        weight[count] = planes->weight[i] * rows->weight[j] * columns->weight[k];
      }
  return count;
}

/* One channel, whose elements begin at x. */
EXT_INLINE float point_of(const axis_taps* planes, const axis_taps* rows, const axis_taps* columns,
                          const float* x) {
  float sum = 0.0f;
  for (int i = 0; i < planes->count; i++)
    for (int j = 0; j < rows->count; j++) {
      const float* line = x + planes->at[i] + rows->at[j];
      float of_row = 0.0f;
      for (int k = 0; k < columns->count; k++) of_row += line[columns->at[k]] * columns->weight[k];
      sum += of_row * (planes->weight[i] * rows->weight[j]);
    }
  return sum;
}

static void sample_row(const sample_job* job, int64_t index) {
  const ext_grid_sample_params* p = job->p;
  const int64_t plane = index / p->out_h, image = plane / job->out_d;
  const int64_t line = p->in_w * p->channels;
  const float* x = job->x + image * job->in_d * p->in_h * line;
  const float* grid = job->grid + image * p->grid_n + index % p->out_h * p->grid_h;
  if (p->volumes) grid += plane % job->out_d * p->grid_d;
  float* y = job->y + index * p->out_w * p->channels;
  axis_taps planes = {.weight = {1.0f}, .count = 1}, rows, columns;
  for (int64_t ow = 0; ow < p->out_w; ow++, grid += p->grid_w, y += p->channels) {
    if (p->volumes) taps_of(p, grid[2 * p->grid_xy], job->in_d, p->in_h * line, &planes);
    taps_of(p, grid[p->grid_xy], p->in_h, line, &rows);
    taps_of(p, grid[0], p->in_w, p->channels, &columns);
    if (p->channels <= FEW_CHANNELS) {
      for (int64_t c = 0; c < p->channels; c++) y[c] = point_of(&planes, &rows, &columns, x + c);
      continue;
    }
    int64_t at[MOST_TAPS * MOST_TAPS];
    float weight[MOST_TAPS * MOST_TAPS];
    const int count = pixels_of(&planes, &rows, &columns, at, weight);
    mix_pixels(0, count, at, weight, x, p->channels, y);
  }
}

static int sample_rows(void* context, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++) sample_row(context, i);
  return EXT_OK;
}

int EXT_NAME(ext_grid_sample)(const ext_grid_sample_params* p, const float* x, const float* grid,
                              float* y) {
  if ((uint32_t)p->method > EXT_GRID_BICUBIC || (uint32_t)p->padding > EXT_GRID_REFLECTION)
    return EXT_ERR_ARGUMENT;
  if (p->volumes && p->method == EXT_GRID_BICUBIC) return EXT_ERR_ARGUMENT;
  sample_job job = {p, x, grid, y, 1, 1};
  if (p->volumes) job.in_d = p->in_d, job.out_d = p->out_d;
  const int64_t rows = p->batch * job.out_d * p->out_h;
  if (rows <= 0 || p->out_w <= 0 || p->channels <= 0) return EXT_OK;
  static const int64_t pixels[] = {1, 4, 16};
  const int64_t of_row = p->out_w * (p->channels + 8) * pixels[p->method] * (p->volumes ? 2 : 1);
  return ext_parallel_for(rows, i64_max(1, TASK_ELEMENTS / of_row), sample_rows, &job);
}

EXT_DISPATCH(ext_grid_sample,
             (const ext_grid_sample_params* p, const float* x, const float* grid, float* y),
             (p, x, grid, y))
