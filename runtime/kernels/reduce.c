/*
 * y[o][i] = sum, mean, max, min or product over r of x[o][r][i], or sum or mean of its squares;
 * over nothing 0, 0, -inf, inf, 1, 0 or 0.
 *
 * x is fp32 or bf16, y fp32.  Sums are built in three levels (GROUP terms, GROUP groups, all), so
 * that their error stays a few ULP up to millions of terms.
 */
#include "../simd/bf16.h"

enum { GROUP = 64, BLOCK = 4 };
/* Slices of so many elements at most are reduced VL at once, turned so that each has a lane: the
 * end of one alone takes longer than all its elements. */
enum { SHORT = 16 * VL };
/* Elements of one task at least: some ten microseconds. */
static const int64_t TASK_ELEMENTS = 1 << 16;

typedef struct {
  ext_reduce_kind kind;
  int64_t reduce, inner, blocks; /* blocks of BLOCK * VL columns in `inner` */
  const void* x;
  float* y;
  int narrow; /* x is bf16 */
} reduce_job;

/* VL elements behind x[index], or the first `lanes`; `narrow` (a constant): they are bf16. */
EXT_INLINE vf load(const int narrow, const void* x, int64_t index, int64_t lanes) {
  if (narrow) {
    const uint16_t* p = (const uint16_t*)x + index;
    return vbf_widen(lanes == VL ? vbf_load(p) : vbf_load_n(p, lanes));
  }
  const float* p = (const float*)x + index;
  return lanes == VL ? vf_load(p) : vf_load_n(p, lanes);
}

EXT_INLINE vf first_value(ext_reduce_kind kind) {
  return vf_set1(kind == EXT_REDUCE_MAX    ? -__builtin_inff()
                 : kind == EXT_REDUCE_MIN  ? __builtin_inff()
                 : kind == EXT_REDUCE_PROD ? 1.0f
                                           : 0.0f);
}

EXT_INLINE int is_mean(ext_reduce_kind kind) {
  return kind == EXT_REDUCE_MEAN || kind == EXT_REDUCE_MEAN_SQUARES;
}

EXT_INLINE int of_squares(ext_reduce_kind kind) {
  return kind == EXT_REDUCE_SUM_SQUARES || kind == EXT_REDUCE_MEAN_SQUARES;
}

/* What two sets of elements come to, of what each does. */
EXT_INLINE vf join(ext_reduce_kind kind, vf a, vf b) {
  return kind == EXT_REDUCE_MAX    ? vf_max_nan(a, b)
         : kind == EXT_REDUCE_MIN  ? vf_min_nan(a, b)
         : kind == EXT_REDUCE_PROD ? a * b
                                   : a + b;
}

/* What one element comes to. */
EXT_INLINE vf element(ext_reduce_kind kind, vf x) {
  return of_squares(kind) ? x * x : x;
}

/* a and one more element of each lane. */
EXT_INLINE vf join_elements(ext_reduce_kind kind, vf a, vf x) {
  return of_squares(kind) ? vf_fma(x, x, a) : join(kind, a, x);
}

EXT_INLINE float join_element(ext_reduce_kind kind, float a, float x) {
  if (kind == EXT_REDUCE_MAX) return a != a || a > x ? a : x;
  if (kind == EXT_REDUCE_MIN) return a != a || a < x ? a : x;
  if (kind == EXT_REDUCE_PROD) return a * x;
  return a + (of_squares(kind) ? x * x : x);
}

/* All lanes of a vector. */
EXT_INLINE float join_lanes(ext_reduce_kind kind, vf total) {
  const int extreme = kind == EXT_REDUCE_MAX || kind == EXT_REDUCE_MIN;
  if (extreme && vm_any(vm_nan(total))) return __builtin_nanf("");
  if (kind == EXT_REDUCE_MAX) return vf_most(total);
  if (kind == EXT_REDUCE_MIN) return -vf_most(vf_zero() - total);
  if (kind != EXT_REDUCE_PROD) return vf_sum(total);
  float lanes[VL];
  vf_store(lanes, total);
  for (int width = VL / 2; width > 0; width /= 2)
    for (int k = 0; k < width; k++) lanes[k] *= lanes[k + width];
  return lanes[0];
}

/* One contiguous slice of n elements. */
EXT_INLINE float slice(const ext_reduce_kind kind, const int narrow, const void* x, int64_t at,
                       int64_t n) {
  vf total = first_value(kind), middle = total;
  int64_t i = 0, groups = 0;
  while (i + BLOCK * VL <= n) {
    vf acc[BLOCK];
    EXT_UNROLL
    for (int v = 0; v < BLOCK; v++) acc[v] = first_value(kind);
    for (int g = 0; g < GROUP && i + BLOCK * VL <= n; g++, i += BLOCK * VL) {
      EXT_UNROLL
      for (int v = 0; v < BLOCK; v++)
        acc[v] = join_elements(kind, acc[v], load(narrow, x, at + i + v * VL, VL));
    }
    middle = join(kind, middle, join(kind, join(kind, acc[0], acc[1]), join(kind, acc[2], acc[3])));
    if (++groups % GROUP == 0) {
      total = join(kind, total, middle);
      middle = first_value(kind);
    }
  }
  total = join(kind, total, middle);
  for (; i + VL <= n; i += VL) total = join_elements(kind, total, load(narrow, x, at + i, VL));
  float y = join_lanes(kind, total);
  if (i < n) {
    float rest[VL];
    vf_store(rest, load(narrow, x, at + i, n - i));
    for (int64_t k = 0; i < n; i++, k++) y = join_element(kind, y, rest[k]);
  }
  return is_mean(kind) ? y / (float)i64_max(1, n) : y;
}

/* total joined with the first `count` elements of each of VL vectors, which are turned. */
EXT_INLINE vf join_turned(const ext_reduce_kind kind, vf total, vf tile[VL], int64_t count) {
  vf_transpose(tile);
  for (int64_t r = 0; r < count; r++) total = join(kind, total, tile[r]);
  return total;
}

/* VL contiguous slices of n elements, one after the other. */
EXT_INLINE void short_slices(const ext_reduce_kind kind, const int narrow, const void* x,
                             int64_t at, int64_t n, float* y) {
  const int64_t whole = n / VL * VL;
  vf total = first_value(kind), tile[VL];
  if (whole > 0) {
    EXT_UNROLL
    for (int s = 0; s < VL; s++) tile[s] = element(kind, load(narrow, x, at + s * n, VL));
    for (int64_t i = VL; i < whole; i += VL) {
      EXT_UNROLL
      for (int s = 0; s < VL; s++)
        tile[s] = join_elements(kind, tile[s], load(narrow, x, at + s * n + i, VL));
    }
    total = join_turned(kind, total, tile, VL);
  }
  if (whole < n) {
    EXT_UNROLL
    for (int s = 0; s < VL; s++)
      tile[s] = element(kind, load(narrow, x, at + s * n + whole, n - whole));
    total = join_turned(kind, total, tile, n - whole);
  }
  if (is_mean(kind)) total = total / vf_set1((float)i64_max(1, n));
  vf_store(y, total);
}

/* `vectors` (a constant) vectors of neighbouring columns; `lanes` of the last one are there. */
EXT_INLINE void columns(const ext_reduce_kind kind, const int narrow, const int vectors,
                        int64_t lanes, const void* x, int64_t at, int64_t reduce, int64_t inner,
                        float* y) {
  vf total[BLOCK], middle[BLOCK], acc[BLOCK];
  EXT_UNROLL
  for (int v = 0; v < vectors; v++) total[v] = middle[v] = first_value(kind);
  for (int64_t r = 0, groups = 0; r < reduce;) {
    EXT_UNROLL
    for (int v = 0; v < vectors; v++) acc[v] = first_value(kind);
    int64_t stop = i64_min(reduce, r + GROUP);
    for (; r < stop; r++) {
      EXT_UNROLL
      for (int v = 0; v < vectors; v++)
        acc[v] = join_elements(kind, acc[v], load(narrow, x, at + r * inner + v * VL, lanes));
    }
    EXT_UNROLL
    for (int v = 0; v < vectors; v++) middle[v] = join(kind, middle[v], acc[v]);
    if (++groups % GROUP && r < reduce) continue;
    EXT_UNROLL
    for (int v = 0; v < vectors; v++) {
      total[v] = join(kind, total[v], middle[v]);
      middle[v] = first_value(kind);
    }
  }
  EXT_UNROLL
  for (int v = 0; v < vectors; v++) {
    if (is_mean(kind)) total[v] = total[v] / vf_set1((float)i64_max(1, reduce));
    if (lanes == VL)
      vf_store(y + v * VL, total[v]);
    else
      vf_store_n(y + v * VL, total[v], lanes);
  }
}

EXT_INLINE void items(const ext_reduce_kind kind, const int narrow, const reduce_job* job,
                      int64_t begin, int64_t end) {
  int64_t item = begin;
  if (job->inner == 1 && job->reduce <= SHORT)
    for (; item + VL <= end; item += VL)
      short_slices(kind, narrow, job->x, item * job->reduce, job->reduce, job->y + item);
  for (; item < end; item++) {
    if (job->inner == 1) {
      job->y[item] = slice(kind, narrow, job->x, item * job->reduce, job->reduce);
      continue;
    }
    int64_t o = item / job->blocks, i = item % job->blocks * BLOCK * VL;
    int64_t stop = i64_min(job->inner, i + BLOCK * VL), first = o * job->reduce * job->inner;
    float* y = job->y + o * job->inner;
    if (stop - i == BLOCK * VL)
      columns(kind, narrow, BLOCK, VL, job->x, first + i, job->reduce, job->inner, y + i);
    else
      for (; i < stop; i += VL)
        columns(kind, narrow, 1, i64_min(VL, stop - i), job->x, first + i, job->reduce, job->inner,
                y + i);
  }
}

EXT_INLINE void range_of(const int narrow, const reduce_job* job, int64_t begin, int64_t end) {
#define CASE(kind) \
  case kind: items(kind, narrow, job, begin, end); break;
  switch (job->kind) {
    CASE(EXT_REDUCE_SUM)
    CASE(EXT_REDUCE_MEAN)
    CASE(EXT_REDUCE_MAX)
    CASE(EXT_REDUCE_MIN)
    CASE(EXT_REDUCE_PROD)
    CASE(EXT_REDUCE_SUM_SQUARES)
    CASE(EXT_REDUCE_MEAN_SQUARES)
  }
#undef CASE
}

static int reduce_range(void* context, int64_t begin, int64_t end) {
  const reduce_job* job = context;
  if (job->narrow)
    range_of(1, job, begin, end);
  else
    range_of(0, job, begin, end);
  return EXT_OK;
}

static int run(ext_reduce_kind kind, int64_t outer, int64_t reduce, int64_t inner, const void* x,
               float* y, int narrow) {
  if (outer <= 0 || inner <= 0) return EXT_OK;
  reduce_job job = {kind, reduce, inner, ceil_div(inner, BLOCK * VL), x, y, narrow};
  int64_t elements = i64_max(1, reduce) * i64_min(inner, BLOCK * VL);
  return ext_parallel_for(outer * job.blocks, i64_max(1, TASK_ELEMENTS / elements), reduce_range,
                          &job);
}

int EXT_NAME(ext_reduce)(ext_reduce_kind kind, int64_t outer, int64_t reduce, int64_t inner,
                         const float* x, float* y) {
  return run(kind, outer, reduce, inner, x, y, 0);
}

int EXT_NAME(ext_reduce_bf16)(ext_reduce_kind kind, int64_t outer, int64_t reduce, int64_t inner,
                              const uint16_t* x, float* y) {
  return run(kind, outer, reduce, inner, x, y, 1);
}

EXT_DISPATCH(ext_reduce,
             (ext_reduce_kind kind, int64_t outer, int64_t reduce, int64_t inner, const float* x,
              float* y),
             (kind, outer, reduce, inner, x, y))
EXT_DISPATCH(ext_reduce_bf16,
             (ext_reduce_kind kind, int64_t outer, int64_t reduce, int64_t inner, const uint16_t* x,
              float* y),
             (kind, outer, reduce, inner, x, y))
