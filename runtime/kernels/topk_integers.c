/*
 * ext_topk of integers: values[o][j][i] = the j-th greatest of x[o][r][i] over r, or least;
 * indices[o][j][i] = its r.
 *
 * x is [outer, extent, inner], a result [outer, k, inner].  Equal values are in the order of their
 * indices.
 *
 * Each column is sorted by digits of its elements' distance from the best one, the lowest digit
 * first.  The distance of the worst says how many digits there are: one for numbers of experts.
 */
#include "../simd/simd.h"

/* Elements of one task at least: some ten microseconds. */
static const int64_t TASK_ELEMENTS = 1 << 12;
enum { DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS };

/* An element: how far it is from the best one, and where it stands. */
typedef struct {
  uint64_t distance;
  int64_t index;
} item;

typedef struct {
  const ext_topk_params* p;
  ext_dtype dtype;
  const void* x;
  void *values, *indices;
} topk_job;

EXT_INLINE int64_t read_at(ext_dtype dtype, const void* x, int64_t at) {
  return dtype == EXT_INT64 ? ((const int64_t*)x)[at] : ((const int32_t*)x)[at];
}

EXT_INLINE void write_at(ext_dtype dtype, void* y, int64_t at, int64_t value) {
  if (dtype == EXT_INT64)
    ((int64_t*)y)[at] = value;
  else
    ((int32_t*)y)[at] = (int32_t)value;
}

/* Reads a column, the first element of which is at `from`; the greatest distance in it. */
static uint64_t read_column(const topk_job* job, int64_t from, item* items) {
  const int64_t extent = job->p->extent, inner = job->p->inner;
  int64_t best = read_at(job->dtype, job->x, from), worst = best;
  for (int64_t r = 0; r < extent; r++) {
    int64_t value = read_at(job->dtype, job->x, from + r * inner);
    if (job->p->least ? value < best : value > best) best = value;
    if (job->p->least ? value > worst : value < worst) worst = value;
    items[r] = (item){(uint64_t)value, r};
  }
  for (int64_t r = 0; r < extent; r++) {
    uint64_t value = items[r].distance;
    items[r].distance = job->p->least ? value - (uint64_t)best : (uint64_t)best - value;
  }
  return job->p->least ? (uint64_t)worst - (uint64_t)best : (uint64_t)best - (uint64_t)worst;
}

/* Sorts by one digit, and keeps the order of those that are equal in it. */
static void by_digit(const item* from, item* to, int64_t count, int shift) {
  int64_t begins[DIGITS] = {0};
  for (int64_t r = 0; r < count; r++) begins[from[r].distance >> shift & (DIGITS - 1)]++;
  int64_t begin = 0;
  for (int digit = 0; digit < DIGITS; digit++) {
    int64_t found = begins[digit];
    begins[digit] = begin;
    begin += found;
  }
  for (int64_t r = 0; r < count; r++)
    to[begins[from[r].distance >> shift & (DIGITS - 1)]++] = from[r];
}

static int topk_range(void* context, int64_t begin, int64_t end) {
  const topk_job* job = context;
  const ext_topk_params* p = job->p;
  item* items = ext_workspace_alloc((size_t)(2 * p->extent) * sizeof(item));
  if (!items) return EXT_ERR_MEMORY;
  for (int64_t column = begin; column < end; column++) {
    const int64_t o = column / p->inner, i = column % p->inner;
    const int64_t from = o * p->extent * p->inner + i;
    item *sorted = items, *other = items + p->extent;
    uint64_t greatest = read_column(job, from, items);
    for (int shift = 0; shift < 64 && greatest >> shift; shift += DIGIT_BITS) {
      by_digit(sorted, other, p->extent, shift);
      item* last = sorted;
      sorted = other;
      other = last;
    }
    int64_t to = o * p->k * p->inner + i;
    for (int64_t j = 0; j < p->k; j++, to += p->inner) {
      int64_t index = sorted[j].index;
      if (job->values)
        write_at(job->dtype, job->values, to, read_at(job->dtype, job->x, from + index * p->inner));
      if (job->indices) write_at(p->index_dtype, job->indices, to, index);
    }
  }
  ext_workspace_free(items);
  return EXT_OK;
}

int EXT_NAME(ext_topk_integers)(ext_dtype dtype, const ext_topk_params* p, const void* x,
                                void* values, void* indices) {
  if (dtype != EXT_INT32 && dtype != EXT_INT64) return EXT_ERR_ARGUMENT;
  if (p->index_dtype != EXT_INT32 && p->index_dtype != EXT_INT64) return EXT_ERR_ARGUMENT;
  if (p->outer <= 0 || p->inner <= 0 || p->k <= 0) return EXT_OK;
  if (p->k > p->extent || (p->index_dtype == EXT_INT32 && p->extent > INT32_MAX))
    return EXT_ERR_ARGUMENT;
  topk_job job = {p, dtype, x, values, indices};
  return ext_parallel_for(p->outer * p->inner, i64_max(1, TASK_ELEMENTS / p->extent), topk_range,
                          &job);
}

EXT_DISPATCH(ext_topk_integers,
             (ext_dtype dtype, const ext_topk_params* p, const void* x, void* values,
              void* indices),
             (dtype, p, x, values, indices))
