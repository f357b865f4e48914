/*
 * y[o][i] = the first r at which x[o][r][i] is greatest, or least; the first NaN wins.
 *
 * A contiguous slice is read twice: for its extreme value, then for the first place of it.
 */
#include "../simd/simd.h"

/* Elements of one task at least: some ten microseconds. */
static const int64_t TASK_ELEMENTS = 1 << 15;
/* Columns whose best values so far are kept beside each other. */
enum { COLUMN_VECTORS = 4, COLUMNS = COLUMN_VECTORS * VL };

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

static void columns_one_by_one(int least, const float* x, int64_t reduce, int64_t inner,
                               int64_t count, int64_t* y) {
  for (int64_t i = 0; i < count; i++) {
    float best = x[i];
    y[i] = 0;
    for (int64_t r = 1; r < reduce; r++) {
      const float value = x[r * inner + i];
      if (!beats(least, value, best)) continue;
      best = value;
      y[i] = r;
    }
  }
}

/* `vectors` (a constant) vectors of neighbouring columns, `lanes` of the last one.  0 where there
 * is a NaN: nothing is said then. */
EXT_INLINE int columns(const int least, const int vectors, int64_t lanes, const float* x,
                       int64_t reduce, int64_t inner, int64_t* y) {
  vf best[COLUMN_VECTORS], place[COLUMN_VECTORS];
  EXT_UNROLL
  for (int v = 0; v < vectors; v++) {
    best[v] = lanes == VL ? vf_load(x + v * VL) : vf_load_n(x + v * VL, lanes);
    place[v] = vf_zero();
  }
  for (int64_t r = 1; r < reduce; r++) {
    x += inner;
    const vf here = vf_set1((float)r);
    EXT_UNROLL
    for (int v = 0; v < vectors; v++) {
      const vf value = lanes == VL ? vf_load(x + v * VL) : vf_load_n(x + v * VL, lanes);
      const vm better = least ? vm_lt(value, best[v]) : vm_lt(best[v], value);
      place[v] = vf_select(better, here, place[v]);
      best[v] = least ? vf_min_nan(best[v], value) : vf_max_nan(best[v], value);
    }
  }
  int strange = 0;
  EXT_UNROLL
  for (int v = 0; v < vectors; v++) strange |= vm_any(vm_nan(best[v]));
  if (strange) return 0;
  EXT_UNROLL
  for (int v = 0; v < vectors; v++) {
    float places[VL];
    vf_store(places, place[v]);
    for (int64_t i = 0; i < lanes; i++) y[v * VL + i] = (int64_t)places[i];
  }
  return 1;
}

/* `count` columns from x on. */
EXT_INLINE void block(const int least, const arg_job* job, const float* x, int64_t count,
                      int64_t* y) {
  const int64_t reduce = job->reduce, inner = job->inner;
  if (count == COLUMNS && reduce <= MOST_PLACES &&
      columns(least, COLUMN_VECTORS, VL, x, reduce, inner, y))
    return;
  for (; count > 0; count -= VL, x += VL, y += VL) {
    const int64_t lanes = i64_min(VL, count);
    if (reduce > MOST_PLACES || !columns(least, 1, lanes, x, reduce, inner, y))
      columns_one_by_one(least, x, reduce, inner, lanes, y);
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
      block(1, job, x, count, y);
    else
      block(0, job, x, count, y);
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
