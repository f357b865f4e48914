/*
 * y[n][oh][ow][c] = the mean of x[n][h][w][c], h in [oh in_h / out_h, ceil((oh + 1) in_h / out_h)),
 *                                              w in [ow in_w / out_w, ceil((ow + 1) in_w / out_w))
 *
 * Windows overlap by a row or a column where the image has no multiple of their number; memory
 * speed decides.
 */
#include "pool_window.h"

typedef struct {
  const ext_adaptive_pool_params* p;
  const float* x;
  float* y;
} adaptive_job;

/* Rows or columns of a window. */
typedef struct {
  int64_t begin, end;
} span;

static span window_of(int64_t index, int64_t size, int64_t count) {
  return (span){index * size / count, ceil_div((index + 1) * size, count)};
}

static int lines(void* context, int64_t begin, int64_t end) {
  const adaptive_job* job = context;
  const ext_adaptive_pool_params* p = job->p;
  const int64_t channels = p->channels;
  for (int64_t line = begin; line < end; line++) {
    const int64_t n = line / p->out_h;
    const span rows = window_of(line - n * p->out_h, p->in_h, p->out_h);
    const float* image = job->x + (n * p->in_h + rows.begin) * p->in_w * channels;
    float* y = job->y + line * p->out_w * channels;
    for (int64_t ow = 0; ow < p->out_w; ow++, y += channels) {
      const span at = window_of(ow, p->in_w, p->out_w);
      const int64_t height = rows.end - rows.begin, width = at.end - at.begin;
      channels_of(0, 0, channels, (const char*)(image + at.begin * channels), height,
                  p->in_w * channels, width, channels, (float)(height * width), (char*)y);
    }
  }
  return EXT_OK;
}

int EXT_NAME(ext_adaptive_avg_pool2d)(const ext_adaptive_pool_params* p, const float* x, float* y) {
  if (p->batch <= 0 || p->out_h <= 0 || p->out_w <= 0 || p->channels <= 0) return EXT_OK;
  adaptive_job job = {p, x, y};
  const int64_t reads = (p->in_h / p->out_h + 1) * (p->in_w + p->out_w) * p->channels;
  return ext_parallel_for(p->batch * p->out_h, i64_max(1, TASK_READS / reads), lines, &job);
}

EXT_DISPATCH(ext_adaptive_avg_pool2d, (const ext_adaptive_pool_params* p, const float* x, float* y),
             (p, x, y))
