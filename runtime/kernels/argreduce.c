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

static int64_t slice(int least, const float* x, int64_t n) {
  vf best = vf_set1(least ? __builtin_inff() : -__builtin_inff());
  int64_t i = 0;
  for (; i + VL <= n; i += VL)
    best = least ? vf_min_nan(best, vf_load(x + i)) : vf_max_nan(best, vf_load(x + i));
  float lanes[VL], value = x[0];
  vf_store(lanes, best);
  if (i > 0) value = lanes[0];
  for (int k = 1; k < VL && i > 0; k++) value = beats(least, lanes[k], value) ? lanes[k] : value;
  for (; i < n; i++) value = beats(least, x[i], value) ? x[i] : value;
  for (i = 0; i < n; i++)
    if (x[i] == value || (value != value && x[i] != x[i])) return i;
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
      job->y[item] = slice(job->least, job->x + item * job->reduce, job->reduce);
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
