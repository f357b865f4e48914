/*
 * y[n][oh][ow][c] = the mean of x[n][h][w][c], h in [oh in_h / out_h, ceil((oh + 1) in_h / out_h)),
 *                                              w in [ow in_w / out_w, ceil((ow + 1) in_w / out_w))
 *
 * Vectorised over channels, BLOCK vectors at a time.  Windows overlap by a row or a column where
 * the image has no multiple of their number; memory speed decides.
 */
#include "../simd/simd.h"

enum { BLOCK = 4 };
/* Elements read by one task at least, some ten microseconds. */
static const int64_t TASK_READS = 1 << 16;

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

/* The mean of `vectors` vectors of channels, a constant, with all lanes if `full`; x is the corner
 * of a window of `rows` times `columns` pixels. */
EXT_INLINE void mean(const int vectors, const int full, const ext_adaptive_pool_params* p,
                     const float* x, int64_t rows, int64_t columns, int64_t lanes, float* y) {
  const vf count = vf_set1((float)(rows * columns));
  vf sum[BLOCK];
  EXT_UNROLL
  for (int v = 0; v < vectors; v++) sum[v] = vf_zero();
  for (int64_t h = 0; h < rows; h++) {
    const float* pixel = x + h * p->in_w * p->channels;
    for (int64_t w = 0; w < columns; w++, pixel += p->channels) {
      EXT_UNROLL
      for (int v = 0; v < vectors; v++)
        sum[v] += full ? vf_load(pixel + v * VL) : vf_load_n(pixel + v * VL, lanes);
    }
  }
  EXT_UNROLL
  for (int v = 0; v < vectors; v++) {
    if (full)
      vf_store(y + v * VL, sum[v] / count);
    else
      vf_store_n(y + v * VL, sum[v] / count, lanes);
  }
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
      const float* x = image + at.begin * channels;
      int64_t c = 0;
      for (; c + BLOCK * VL <= channels; c += BLOCK * VL)
        mean(BLOCK, 1, p, x + c, height, width, VL, y + c);
      for (; c + VL <= channels; c += VL) mean(1, 1, p, x + c, height, width, VL, y + c);
      if (c < channels) mean(1, 0, p, x + c, height, width, channels - c, y + c);
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
