/* Elements that indices point at, moved from there or to there:
 *
 *   at(i) = sum over d of place(i)[d] strides[d] + sum over j of indices[i][j] steps[j]
 *   ext_gather:   y[i][r] = x[at(i) + r]
 *   ext_scatter:  y = data, then y[at(i) + r] = updates[i][r], or y + updates, or y * updates
 *
 * Updates come in their order on one thread, so that of several for one element the last one stays,
 * and sums have one order. */
#include "axes.h"

/* Bytes of one task at least: some ten microseconds. */
static const int64_t TASK_BYTES = 1 << 16;

typedef struct {
  const ext_indexed_params* p;
  ext_axes axes; /* that items are counted over */
  ext_scatter_kind kind;
  const void* indices;
  const char* x; /* the tensor of a gather, or the updates of a scatter */
  char* y;
  int64_t size, bytes; /* of an element, of a run */
} indexed_job;

/* Where item `item` points, whose own place adds `own`; -1 where an index lies outside. */
EXT_INLINE int64_t points_at(const indexed_job* job, int64_t item, int64_t own) {
  const ext_indexed_params* p = job->p;
  for (int32_t j = 0; j < p->coordinates; j++) {
    const int64_t i = item * p->coordinates + j, extent = p->extents[j];
    int64_t index = p->index_dtype == EXT_INT64 ? ((const int64_t*)job->indices)[i]
                                                : ((const int32_t*)job->indices)[i];
    if (index < 0) index += extent;
    if (index < 0 || index >= extent) return -1;
    own += index * p->steps[j];
  }
  return own;
}

EXT_INLINE void move_run(char* y, const char* x, int64_t bytes) {
  if (bytes == 4)
    memcpy(y, x, 4);
  else if (bytes == 8)
    memcpy(y, x, 8);
  else
    memcpy(y, x, (size_t)bytes);
}

/* Unsigned, so that sums of integers wrap around. */
#define COMBINE(type)                                     \
  do {                                                    \
    const type* from = (const type*)x;                    \
    type* to = (type*)y;                                  \
    if (job->kind == EXT_SCATTER_ADD)                     \
      for (int64_t r = 0; r < run; r++) to[r] += from[r]; \
    else                                                  \
      for (int64_t r = 0; r < run; r++) to[r] *= from[r]; \
  } while (0)

/* The greater or the smaller number; NaN where one is.  x != x is NaN alone. */
#define CHOOSE(type)                                               \
  do {                                                             \
    const type* from = (const type*)x;                             \
    type* to = (type*)y;                                           \
    const int greatest = job->kind == EXT_SCATTER_MAX;             \
    for (int64_t r = 0; r < run; r++) {                            \
      const type v = from[r];                                      \
      if ((greatest ? v > to[r] : v < to[r]) || v != v) to[r] = v; \
    }                                                              \
  } while (0)

static void put_run(const indexed_job* job, char* y, const char* x) {
  const int64_t run = job->p->run;
  const int chooses = job->kind == EXT_SCATTER_MAX || job->kind == EXT_SCATTER_MIN;
  if (job->kind == EXT_SCATTER_UPDATE)
    move_run(y, x, job->bytes);
  else if (chooses && job->p->dtype == EXT_FLOAT32)
    CHOOSE(float);
  else if (chooses && job->p->dtype == EXT_INT32)
    CHOOSE(int32_t);
  else if (chooses)
    CHOOSE(int64_t);
  else if (job->p->dtype == EXT_FLOAT32)
    COMBINE(float);
  else if (job->p->dtype == EXT_INT32)
    COMBINE(uint32_t);
  else
    COMBINE(uint64_t);
}

/* Gathers n runs of `bytes`, a constant, by one index each; item `item` is the first, at x + own,
 * and those behind it `step` further each. */
EXT_INLINE int gather_each(const int64_t bytes, const int wide, const indexed_job* job,
                           int64_t item, int64_t n, int64_t own, int64_t step) {
  const int64_t extent = job->p->extents[0];
  const int64_t along = job->p->steps[0] * job->size;
  const int64_t* far = (const int64_t*)job->indices + (wide ? item : 0);
  const int32_t* near = (const int32_t*)job->indices + (wide ? 0 : item);
  const char* x = job->x + own * job->size;
  char* y = job->y + item * bytes;
  for (int64_t i = 0; i < n; i++, x += step * job->size, y += bytes) {
    int64_t index = wide ? far[i] : near[i];
    if (index < 0) index += extent;
    if (index < 0 || index >= extent) return EXT_ERR_INDEX;
    memcpy(y, x + index * along, (size_t)bytes);
  }
  return EXT_OK;
}

#define GATHER_RUNS(bytes, wide)                                                                   \
  static int gather_##bytes##_##wide(const indexed_job* job, int64_t item, int64_t n, int64_t own, \
                                     int64_t step) {                                               \
    return gather_each(bytes, wide, job, item, n, own, step);                                      \
  }
#define GATHER_BYTES(bytes) GATHER_RUNS(bytes, 0) GATHER_RUNS(bytes, 1)
GATHER_BYTES(1)
GATHER_BYTES(2)
GATHER_BYTES(4)
GATHER_BYTES(8)

typedef int (*gather_row)(const indexed_job* job, int64_t item, int64_t n, int64_t own,
                          int64_t step);

/* What gathers runs of so many bytes by one index each; NULL for other runs. */
static gather_row gather_of(const indexed_job* job) {
  const int wide = job->p->index_dtype == EXT_INT64;
  switch (job->bytes) {
    case 1: return wide ? gather_1_1 : gather_1_0;
    case 2: return wide ? gather_2_1 : gather_2_0;
    case 4: return wide ? gather_4_1 : gather_4_0;
    case 8: return wide ? gather_8_1 : gather_8_0;
    default: return NULL;
  }
}

/* n items from `item` on, a row of their axes: the first adds `own` to what its indices say, and
 * each behind it `step` more. */
EXT_INLINE int run_row(const int gathers, const indexed_job* job, int64_t item, int64_t n,
                       int64_t own, int64_t step) {
  const gather_row short_runs = gathers && job->p->coordinates == 1 ? gather_of(job) : NULL;
  if (short_runs) return short_runs(job, item, n, own, step);
  for (int64_t end = item + n; item < end; item++, own += step) {
    const int64_t at = points_at(job, item, own);
    if (at < 0) return EXT_ERR_INDEX;
    if (gathers)
      move_run(job->y + item * job->bytes, job->x + at * job->size, job->bytes);
    else
      put_run(job, job->y + at * job->size, job->x + item * job->bytes);
  }
  return EXT_OK;
}

EXT_INLINE int run_items(const int gathers, const indexed_job* job, int64_t begin, int64_t end) {
  const ext_axes* axes = &job->axes;
  const int32_t last = axes->ndim - 1;
  axes_place place = axes_begin(axes, 1, axes->ndim, begin);
  while (begin < end) {
    const int64_t n = i64_min(end - begin, axes->size[last] - place.index[last]);
    const int status = run_row(gathers, job, begin, n, place.at[0], axes->stride[0][last]);
    if (status != EXT_OK) return status;
    begin += n;
    axes_advance(axes, 1, axes->ndim, n, &place);
  }
  return EXT_OK;
}

static int gather_range(void* job, int64_t begin, int64_t end) {
  return run_items(1, job, begin, end);
}

/* Fills in what the parameters say, and how many items there are. */
static int read_params(indexed_job* job, int64_t* items) {
  static const int64_t sizes[] = {[EXT_FLOAT32] = 4, [EXT_INT32] = 4,   [EXT_INT64] = 8,
                                  [EXT_BOOL] = 1,    [EXT_INT8] = 1,    [EXT_UINT8] = 1,
                                  [EXT_FLOAT16] = 2, [EXT_BFLOAT16] = 2};
  const ext_indexed_params* p = job->p;
  if (p->ndim < 1 || p->ndim > EXT_MAX_DIMS) return EXT_ERR_ARGUMENT;
  if (p->coordinates < 1 || p->coordinates > EXT_MAX_DIMS) return EXT_ERR_ARGUMENT;
  if (p->index_dtype != EXT_INT32 && p->index_dtype != EXT_INT64) return EXT_ERR_ARGUMENT;
  if ((uint32_t)p->dtype > EXT_BFLOAT16) return EXT_ERR_ARGUMENT;
  job->size = sizes[p->dtype];
  job->bytes = p->run * job->size;
  *items = p->run > 0;
  for (int32_t d = 0; d < p->ndim; d++) {
    *items *= p->shape[d];
    axes_add(&job->axes, 1, p->shape[d], &p->strides[d]);
  }
  if (job->axes.ndim == 0) job->axes.size[job->axes.ndim++] = 1;
  return EXT_OK;
}

int EXT_NAME(ext_gather)(const ext_indexed_params* p, const void* x, const void* indices, void* y) {
  indexed_job job = {.p = p, .indices = indices, .x = x, .y = y};
  int64_t items;
  const int status = read_params(&job, &items);
  if (status != EXT_OK || items <= 0) return status;
  return ext_parallel_for(items, i64_max(1, TASK_BYTES / job.bytes), gather_range, &job);
}

int EXT_NAME(ext_scatter)(const ext_indexed_params* p, ext_scatter_kind kind, const void* data,
                          const void* indices, const void* updates, void* y) {
  indexed_job job = {.p = p, .kind = kind, .indices = indices, .x = updates, .y = y};
  int64_t items;
  const int status = read_params(&job, &items);
  if (status != EXT_OK) return status;
  if ((uint32_t)kind > EXT_SCATTER_MIN) return EXT_ERR_ARGUMENT;
  if (kind != EXT_SCATTER_UPDATE && p->dtype != EXT_FLOAT32 && p->dtype != EXT_INT32 &&
      p->dtype != EXT_INT64)
    return EXT_ERR_ARGUMENT;
  if (y != data && p->elements > 0) memcpy(y, data, (size_t)(p->elements * job.size));
  return items <= 0 ? EXT_OK : run_items(0, &job, 0, items);
}

EXT_DISPATCH(ext_gather, (const ext_indexed_params* p, const void* x, const void* indices, void* y),
             (p, x, indices, y))
EXT_DISPATCH(ext_scatter,
             (const ext_indexed_params* p, ext_scatter_kind kind, const void* data,
              const void* indices, const void* updates, void* y),
             (p, kind, data, indices, updates, y))
