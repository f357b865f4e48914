/*
 * y[o][i] = the first r at which x[o][r][i] is greatest, or least; the first NaN wins.
 *
 * A contiguous slice is read twice: for its extreme value, then for the first place of it.
 */
#include "../simd/simd.h"

/* Elements of one task at least: some ten microseconds. */
static const int64_t TASK_ELEMENTS = 1 << 15;
/* Columns whose best values so far are kept beside each other. */
enum { COLUMNS = 64 };

typedef struct {
  int32_t least;
  int64_t reduce, inner, blocks; /* blocks of COLUMNS in `inner` */
  const float* x;
  int64_t* y;
} arg_job;

/* Whether a value takes the place of the best one before it. */
EXT_INLINE int beats(const int least, float value, float best) {
  return best == best && (value != value || (least ? value < best : value > best));
}

static int64_t slice_with_nan(const float* x, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (x[i] != x[i]) return i;
  return 0;
}

/* Lanes, and places that float32 tells apart. */
static const float LANE[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
enum { MOST_PLACES = 1 << 24 };

EXT_INLINE int64_t slice(const int least, const float* x, int64_t n) {
  const vf lane = vf_load(LANE), never = vf_set1(MOST_PLACES);
  const vf worst = vf_set1(least ? __builtin_inff() : -__builtin_inff());
  vf best = worst;
  for (int64_t i = 0; i < n; i += VL) {
    vf v = n - i >= VL ? vf_load(x + i) : vf_load_n(x + i, n - i);
    if (n - i < VL) v = vf_select(vm_lt(lane, vf_set1((float)(n - i))), v, worst);
    best = least ? vf_min_nan(best, v) : vf_max_nan(best, v);
  }
  if (vm_any(vm_nan(best))) return slice_with_nan(x, n);
  const vf value = vf_set1(least ? -vf_most(vf_zero() - best) : vf_most(best));
  for (int64_t begin = 0; begin < n; begin += MOST_PLACES) {
    const int64_t count = i64_min(MOST_PLACES, n - begin);
    vf first = never;
    for (int64_t i = 0; i < count; i += VL) {
      const int64_t lanes = i64_min(VL, count - i);
      const vf v = lanes == VL ? vf_load(x + begin + i) : vf_load_n(x + begin + i, lanes);
      const vf place = lane + vf_set1((float)i);
      const vf here = vf_select(least ? vm_lt(value, v) : vm_lt(v, value), never, place);
      first = vf_min(first, here);
    }
    const float place = -vf_most(vf_zero() - first);
    if (place < (float)count) return begin + (int64_t)place;
  }
  return 0;
}

EXT_INLINE void columns(const int least, const float* x, int64_t reduce, int64_t inner,
                        int64_t count, int64_t* y) {
  float best[COLUMNS];
  for (int64_t i = 0; i < count; i++) {
    best[i] = x[i];
    y[i] = 0;
  }
  for (int64_t r = 1; r < reduce; r++) {
    x += inner;
    for (int64_t i = 0; i < count; i++) {
      int better = beats(least, x[i], best[i]);
      best[i] = better ? x[i] : best[i];
      y[i] = better ? r : y[i];
    }
  }
}

static int arg_range(void* context, int64_t begin, int64_t end) {
  const arg_job* job = context;
  for (int64_t item = begin; item < end; item++) {
    if (job->inner == 1) {
      const float* row = job->x + item * job->reduce;
      job->y[item] = job->least ? slice(1, row, job->reduce) : slice(0, row, job->reduce);
      continue;
    }
    int64_t o = item / job->blocks, i = item % job->blocks * COLUMNS;
    const float* x = job->x + o * job->reduce * job->inner + i;
    int64_t* y = job->y + o * job->inner + i;
    int64_t count = i64_min(COLUMNS, job->inner - i);
    if (job->least)
      columns(1, x, job->reduce, job->inner, count, y);
    else
      columns(0, x, job->reduce, job->inner, count, y);
  }
  return EXT_OK;
}

int EXT_NAME(ext_argreduce)(int32_t least, int64_t outer, int64_t reduce, int64_t inner,
                            const float* x, int64_t* y) {
  if (outer <= 0 || inner <= 0) return EXT_OK;
  if (reduce <= 0) return EXT_ERR_ARGUMENT;
  arg_job job = {least != 0, reduce, inner, ceil_div(inner, COLUMNS), x, y};
  int64_t elements = reduce * i64_min(inner, COLUMNS);
  return ext_parallel_for(outer * job.blocks, i64_max(1, TASK_ELEMENTS / elements), arg_range,
                          &job);
}

EXT_DISPATCH(ext_argreduce,
             (int32_t least, int64_t outer, int64_t reduce, int64_t inner, const float* x,
              int64_t* y),
             (least, outer, reduce, inner, x, y))
