/*
 * y = x with more elements around it: a value, x mirrored, its border repeated, or x again.
 *
 * One item is a row of y along the innermost padded axis, made of units of `inner` elements; the
 * unit of x that a position shows is found per axis.
 */
#include "../simd/simd.h"

/* Elements of one task at least: some ten microseconds of memory traffic. */
static const int64_t TASK_ELEMENTS = 1 << 15;

typedef struct {
  const ext_pad_params* p;
  int64_t sizes[EXT_MAX_DIMS]; /* of y */
  const float* x;
  float* y;
} pad_job;

/* The position of x that position i of y shows along an axis; -1 for the value. */
static int64_t shown(ext_pad_mode mode, int64_t i, int64_t size) {
  if (i >= 0 && i < size) return i;
  if (mode == EXT_PAD_CONSTANT) return -1;
  if (mode == EXT_PAD_EDGE) return i < 0 ? 0 : size - 1;
  if (mode == EXT_PAD_WRAP) return (i %= size) < 0 ? i + size : i;
  return i < 0 ? -i : 2 * (size - 1) - i;
}

static void fill(float* y, int64_t n, float value) {
  int64_t i = 0;
  for (; i + VL <= n; i += VL) vf_store(y + i, vf_set1(value));
  for (; i < n; i++) y[i] = value;
}

/* The row of x that row `item` of y shows, in units; -1 where all of it is the value. */
static int64_t source_row(const pad_job* job, int64_t item) {
  const ext_pad_params* p = job->p;
  int64_t row = 0, step = 1;
  for (int32_t d = p->ndim - 2; d >= 0; d--) {
    int64_t at = shown(p->mode, item % job->sizes[d] - p->before[d], p->shape[d]);
    if (at < 0) return -1;
    item /= job->sizes[d];
    row += at * step;
    step *= p->shape[d];
  }
  return row;
}

static int pad_rows(void* context, int64_t begin, int64_t end) {
  const pad_job* job = context;
  const ext_pad_params* p = job->p;
  int32_t last = p->ndim - 1;
  int64_t inner = p->inner, size = p->shape[last], before = p->before[last];
  for (int64_t item = begin; item < end; item++) {
    float* y = job->y + item * job->sizes[last] * inner;
    int64_t row = source_row(job, item);
    if (row < 0) {
      fill(y, job->sizes[last] * inner, p->value);
      continue;
    }
    const float* x = job->x + row * size * inner;
    if (p->mode == EXT_PAD_CONSTANT) {
      fill(y, before * inner, p->value);
      copy_run(y + before * inner, x, size * inner);
      fill(y + (before + size) * inner, p->after[last] * inner, p->value);
      continue;
    }
    for (int64_t i = 0; i < job->sizes[last]; i++, y += inner) {
      if (i == before && size > 0) { /* x itself, in one piece */
        memcpy(y, x, (size_t)(size * inner) * sizeof *y);
        i += size - 1;
        y += (size - 1) * inner;
        continue;
      }
      copy_run(y, x + shown(p->mode, i - before, size) * inner, inner);
    }
  }
  return EXT_OK;
}

int EXT_NAME(ext_pad)(const ext_pad_params* p, const float* x, float* y) {
  if (p->ndim < 1 || p->ndim > EXT_MAX_DIMS) return EXT_ERR_ARGUMENT;
  pad_job job = {.p = p, .x = x, .y = y};
  int64_t rows = 1;
  for (int32_t d = 0; d < p->ndim; d++) {
    int64_t most = i64_max(p->before[d], p->after[d]);
    if (i64_min(p->before[d], p->after[d]) < 0) return EXT_ERR_ARGUMENT;
    if (p->mode == EXT_PAD_REFLECT && most > 0 && most >= p->shape[d]) return EXT_ERR_ARGUMENT;
    if (p->mode != EXT_PAD_CONSTANT && most > 0 && p->shape[d] == 0) return EXT_ERR_ARGUMENT;
    job.sizes[d] = p->before[d] + p->shape[d] + p->after[d];
    if (d < p->ndim - 1) rows *= job.sizes[d];
  }
  int64_t elements = job.sizes[p->ndim - 1] * p->inner;
  if (rows <= 0 || elements <= 0) return EXT_OK;
  return ext_parallel_for(rows, i64_max(1, TASK_ELEMENTS / elements), pad_rows, &job);
}

EXT_DISPATCH(ext_pad, (const ext_pad_params* p, const float* x, float* y), (p, x, y))
