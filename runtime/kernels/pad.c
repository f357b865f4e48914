/*
 * y = x with more elements around it: a value, x mirrored, its border repeated, or x again.
 *
 * One item is a row of y along the innermost padded axis, made of units of `inner` elements; the
 * unit of x that a position shows is found per axis.
 */
#include "../simd/simd.h"

/* Elements of one task at least: some ten microseconds of memory traffic. */
static const int64_t TASK_ELEMENTS = 1 << 15;
/* Floats up to which vectors copy a run in less time than memcpy is called. */
static const int64_t MOST_COPIED = 16 * VL;

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

/* Where row `item` of y is along each axis but the last. */
static void locate_row(const pad_job* job, int64_t item, int64_t* index) {
  for (int32_t d = job->p->ndim - 2; d >= 0; d--) {
    index[d] = item % job->sizes[d];
    item /= job->sizes[d];
  }
}

static void next_row(const pad_job* job, int64_t* index) {
  for (int32_t d = job->p->ndim - 2; d >= 0; d--) {
    if (++index[d] < job->sizes[d]) return;
    index[d] = 0;
  }
}

/* The row of x that a row of y shows, in units; -1 where all of it is the value. */
static int64_t source_row(const pad_job* job, const int64_t* index) {
  const ext_pad_params* p = job->p;
  int64_t row = 0;
  for (int32_t d = 0; d < p->ndim - 1; d++) {
    const int64_t at = shown(p->mode, index[d] - p->before[d], p->shape[d]);
    if (at < 0) return -1;
    row = row * p->shape[d] + at;
  }
  return row;
}

/* Units [from, to) of a row, which are beside x. */
EXT_INLINE void show_units(const ext_pad_params* p, ext_pad_mode mode, int64_t inner, int64_t from,
                           int64_t to, const float* x, float* y) {
  const int32_t last = p->ndim - 1;
  for (int64_t i = from; i < to; i++) {
    const float* unit = x + shown(mode, i - p->before[last], p->shape[last]) * inner;
    if (inner == 1)
      y[i] = *unit;
    else
      copy_run(y + i * inner, unit, inner);
  }
}

static void show(const ext_pad_params* p, int64_t from, int64_t to, const float* x, float* y) {
  if (p->inner > 1)
    show_units(p, p->mode, p->inner, from, to, x, y);
  else if (p->mode == EXT_PAD_EDGE)
    show_units(p, EXT_PAD_EDGE, 1, from, to, x, y);
  else if (p->mode == EXT_PAD_WRAP)
    show_units(p, EXT_PAD_WRAP, 1, from, to, x, y);
  else
    show_units(p, EXT_PAD_REFLECT, 1, from, to, x, y);
}

/* A row of y, of which x is the row that it shows. */
static void pad_row(const pad_job* job, const float* x, float* y) {
  const ext_pad_params* p = job->p;
  const int32_t last = p->ndim - 1;
  const int64_t inner = p->inner, size = p->shape[last], before = p->before[last];
  const int64_t past = before + size;
  if (p->mode == EXT_PAD_CONSTANT) {
    fill(y, before * inner, p->value);
    fill(y + past * inner, p->after[last] * inner, p->value);
  } else {
    show(p, 0, before, x, y);
    show(p, past, job->sizes[last], x, y);
  }
  if (size * inner <= MOST_COPIED)
    copy_run(y + before * inner, x, size * inner);
  else
    memcpy(y + before * inner, x, (size_t)(size * inner) * sizeof *y);
}

static int pad_rows(void* context, int64_t begin, int64_t end) {
  const pad_job* job = context;
  const ext_pad_params* p = job->p;
  const int64_t inner = p->inner, width = job->sizes[p->ndim - 1];
  int64_t index[EXT_MAX_DIMS] = {0};
  locate_row(job, begin, index);
  for (int64_t item = begin; item < end; item++, next_row(job, index)) {
    float* y = job->y + item * width * inner;
    const int64_t row = source_row(job, index);
    if (row < 0)
      fill(y, width * inner, p->value);
    else
      pad_row(job, job->x + row * p->shape[p->ndim - 1] * inner, y);
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
