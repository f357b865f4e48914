/*
 * y[o][r][i] = exp(x - m) / s or x - m - log(s), m = max_r x, s = sum_r exp(x - m).
 *
 * exp(x - m) below the smallest normal number counts as 0.
 * A NaN, or a maximum of -inf or +inf, makes the whole slice NaN through x - m and s, as in numpy.
 */
#include <math.h>

#include "../simd/math.h"

/* Elements of one task at least: some ten microseconds of exponentials. */
static const int64_t TASK_ELEMENTS = 1 << 13;
/* VL slices of so many elements at most are turned, so that each has a lane: of 4 vectors, which
 * are whole, each takes as long alone. */
enum { SHORT = 4 * VL - 1 };

typedef struct {
  int64_t reduce, inner, blocks; /* blocks of VL columns in `inner` */
  int32_t logarithm;
  const float* x;
  float* y;
} softmax_job;

/* One contiguous slice of n elements; `logarithm` is a constant. */
EXT_INLINE void slice(const int logarithm, int64_t n, const float* x, float* y) {
  vf m0 = vf_set1(-__builtin_inff()), m1 = m0;
  int64_t i = 0;
  for (; i + 2 * VL <= n; i += 2 * VL) {
    m0 = vf_max(m0, vf_load(x + i));
    m1 = vf_max(m1, vf_load(x + i + VL));
  }
  for (; i + VL <= n; i += VL) m0 = vf_max(m0, vf_load(x + i));
  if (i < n && n >= VL) { /* some a second time, which changes no maximum */
    m0 = vf_max(m0, vf_load(x + n - VL));
    i = n;
  }
  float lanes[VL], most = vf_most(vf_max(m0, m1));
  for (; i < n; i++) most = x[i] > most ? x[i] : most;

  vf m = vf_set1(most), s0 = vf_zero(), s1 = vf_zero();
  for (i = 0; i + 2 * VL <= n; i += 2 * VL) {
    vf u = vf_exp_normal(vf_load(x + i) - m), v = vf_exp_normal(vf_load(x + i + VL) - m);
    s0 += u;
    s1 += v;
    if (logarithm) continue;
    vf_store(y + i, u);
    vf_store(y + i + VL, v);
  }
  for (; i + VL <= n; i += VL) {
    vf v = vf_exp_normal(vf_load(x + i) - m);
    s0 += v;
    if (!logarithm) vf_store(y + i, v);
  }
  if (i < n) {
    vf v = vf_exp_normal(vf_load_n(x + i, n - i) - m);
    vf_store(lanes, v);
    s1 += vf_load_n(lanes, n - i);
    if (!logarithm) vf_store_n(y + i, v, n - i);
  }
  const float sum = vf_sum(s0 + s1);

  vf scale = vf_set1(logarithm ? logf(sum) : 1.0f / sum);
  for (i = 0; i + VL <= n; i += VL)
    vf_store(y + i, logarithm ? vf_load(x + i) - m - scale : vf_load(y + i) * scale);
  if (i == n) return;
  vf v = logarithm ? vf_load_n(x + i, n - i) - m - scale : vf_load_n(y + i, n - i) * scale;
  vf_store_n(y + i, v, n - i);
}

EXT_INLINE vf load(const int full, const float* p, int64_t lanes) {
  return full ? vf_load(p) : vf_load_n(p, lanes);
}

EXT_INLINE void store(const int full, float* p, vf v, int64_t lanes) {
  if (full)
    vf_store(p, v);
  else
    vf_store_n(p, v, lanes);
}

/* VL contiguous slices of n elements, one after the other; `logarithm` is a constant.  Vectors of
 * the first elements may hold some of the next slice as well, whose own come after them. */
EXT_INLINE void short_slices(const int logarithm, int64_t n, const float* x, float* y) {
  const int64_t end = VL * n;
  _Alignas(EXT_ALIGN) float turned[SHORT * VL];
  vf tile[VL], m = vf_set1(-__builtin_inff()), s = vf_zero();
  for (int64_t j = 0; j < n; j += VL) {
    const int64_t count = i64_min(VL, n - j);
    EXT_UNROLL
    for (int k = 0; k < VL; k++) {
      const int64_t at = k * n + j;
      tile[k] = load(at + VL <= end, x + at, count);
    }
    vf_transpose(tile);
    for (int64_t r = 0; r < count; r++) {
      m = vf_max(m, tile[r]);
      vf_store(turned + (j + r) * VL, tile[r]);
    }
  }
  for (int64_t r = 0; r < n; r++) {
    const vf v = vf_exp_normal(vf_load(turned + r * VL) - m);
    s += v;
    if (!logarithm) vf_store(turned + r * VL, v);
  }
  s = logarithm ? vf_log(s) : vf_set1(1.0f) / s;
  for (int64_t j = 0; j < n; j += VL) {
    const int64_t count = i64_min(VL, n - j);
    EXT_UNROLL
    for (int k = 0; k < VL; k++) {
      const vf v = k < count ? vf_load(turned + (j + k) * VL) : vf_zero();
      tile[k] = logarithm ? v - m - s : v * s;
    }
    vf_transpose(tile);
    EXT_UNROLL
    for (int k = 0; k < VL; k++) {
      const int64_t at = k * n + j;
      store(j == 0 && at + VL <= end, y + at, tile[k], count);
    }
  }
}

/* Neighbouring columns of one outer item: VL if `full` (a constant), else `lanes`. */
EXT_INLINE void columns(const int full, const softmax_job* job, const float* x, float* y,
                        int64_t lanes) {
  int64_t inner = job->inner;
  vf m = vf_set1(-__builtin_inff()), s = vf_zero();
  for (int64_t r = 0; r < job->reduce; r++) m = vf_max(m, load(full, x + r * inner, lanes));
  for (int64_t r = 0; r < job->reduce; r++) {
    vf v = vf_exp_normal(load(full, x + r * inner, lanes) - m);
    s += v;
    if (!job->logarithm) store(full, y + r * inner, v, lanes);
  }
  s = job->logarithm ? vf_log(s) : vf_set1(1.0f) / s;
  for (int64_t r = 0; r < job->reduce; r++) {
    int64_t at = r * inner;
    vf v = job->logarithm ? load(full, x + at, lanes) - m - s : load(full, y + at, lanes) * s;
    store(full, y + at, v, lanes);
  }
}

/* What is true of each column by all lanes that are of it, those of `inner` vectors: the greatest,
 * or the sum where `add` (a constant). */
EXT_INLINE vf of_columns(const int add, int64_t inner, const float* lanes) {
  vf whole = vf_load_n(lanes, inner);
  for (int64_t e = inner; e < inner * VL; e += inner) {
    const vf v = vf_load_n(lanes + e, inner);
    whole = add ? whole + v : vf_max(whole, v);
  }
  return whole;
}

/* The first `inner` lanes of v for all rows that `inner` vectors hold. */
EXT_INLINE void spread(int64_t inner, vf v, float* lanes) {
  for (int64_t e = 0; e < inner * VL; e += inner) vf_store_n(lanes + e, v, inner);
}

/*
 * All columns of one outer item, fewer than VL: element e is of column e % inner, and so is
 * e + inner * VL.  So `inner` vectors have a lane for each, all of which do work.
 */
EXT_INLINE void few_columns(const softmax_job* job, const float* x, float* y) {
  const int64_t inner = job->inner, n = job->reduce * inner, period = inner * VL;
  const int64_t vectors = n / VL * VL, last = vectors % period, left = n - vectors;
  float most[VL * VL], sums[VL * VL], lanes[VL];
  int64_t first = 0;
  do { /* two periods and more are there, of one vector at least */
    vf_store(most + first, vf_load(x + first));
    vf_store(sums + first, vf_zero());
  } while ((first += VL) < period);
  for (int64_t i = period, e = 0; i < vectors; i += VL, e = e + VL < period ? e + VL : 0)
    vf_store(most + e, vf_max(vf_load(most + e), vf_load(x + i)));
  for (int64_t i = 0; i < left; i++)
    most[last + i] = x[vectors + i] > most[last + i] ? x[vectors + i] : most[last + i];
  spread(inner, of_columns(0, inner, most), most);

  for (int64_t i = 0, e = 0; i < vectors; i += VL, e = e + VL < period ? e + VL : 0) {
    const vf v = vf_exp_normal(vf_load(x + i) - vf_load(most + e));
    vf_store(sums + e, vf_load(sums + e) + v);
    if (!job->logarithm) vf_store(y + i, v);
  }
  if (left > 0) {
    const vf v = vf_exp_normal(vf_load_n(x + vectors, left) - vf_load(most + last));
    vf_store(lanes, v);
    vf_store(sums + last, vf_load(sums + last) + vf_load_n(lanes, left));
    if (!job->logarithm) vf_store_n(y + vectors, v, left);
  }
  const vf sum = of_columns(1, inner, sums);
  spread(inner, job->logarithm ? vf_log(sum) : vf_set1(1.0f) / sum, sums);

  for (int64_t i = 0, e = 0; i < n; i += VL, e = e + VL < period ? e + VL : 0) {
    const int full = i < vectors;
    const vf m = vf_load(most + e), s = vf_load(sums + e);
    const vf v = load(full, job->logarithm ? x + i : y + i, left);
    store(full, y + i, job->logarithm ? v - m - s : v * s, left);
  }
}

static int items(void* context, int64_t begin, int64_t end) {
  const softmax_job* job = context;
  const int few = job->inner > 1 && job->inner < VL && job->reduce >= 2 * VL;
  int64_t item = begin;
  if (job->inner == 1 && job->reduce <= SHORT)
    for (; item + VL <= end; item += VL) {
      const int64_t at = item * job->reduce;
      if (job->logarithm)
        short_slices(1, job->reduce, job->x + at, job->y + at);
      else
        short_slices(0, job->reduce, job->x + at, job->y + at);
    }
  for (; item < end; item++) {
    int64_t i = item % job->blocks * VL, o = item / job->blocks;
    int64_t at = o * job->reduce * job->inner + i;
    if (job->inner == 1 && job->logarithm)
      slice(1, job->reduce, job->x + at, job->y + at);
    else if (job->inner == 1)
      slice(0, job->reduce, job->x + at, job->y + at);
    else if (few)
      few_columns(job, job->x + at, job->y + at);
    else if (i + VL <= job->inner)
      columns(1, job, job->x + at, job->y + at, VL);
    else
      columns(0, job, job->x + at, job->y + at, job->inner - i);
  }
  return EXT_OK;
}

int EXT_NAME(ext_softmax)(int64_t outer, int64_t reduce, int64_t inner, int32_t logarithm,
                          const float* x, float* y) {
  if (outer <= 0 || reduce <= 0 || inner <= 0) return EXT_OK;
  softmax_job job = {reduce, inner, ceil_div(inner, VL), logarithm, x, y};
  int64_t elements = reduce * i64_min(inner, VL);
  return ext_parallel_for(outer * job.blocks, i64_max(1, TASK_ELEMENTS / elements), items, &job);
}

EXT_DISPATCH(ext_softmax,
             (int64_t outer, int64_t reduce, int64_t inner, int32_t logarithm, const float* x,
              float* y),
             (outer, reduce, inner, logarithm, x, y))
