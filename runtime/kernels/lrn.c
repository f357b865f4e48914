/*
 * Local response normalisation over channels:
 *
 *   y[o][c][i] = x[o][c][i] / (bias + alpha mean_k x[o][k][i]^2)^beta,  k = c - before .. c + after
 *
 * x, y are dense [outer, channels, inner], before = (size - 1) / 2, after = size / 2; the mean is
 * over `size` squares, those of channels outside being 0.  With inner 1 the vectors run along the
 * channels, else along `inner`.  A window is a handful of channels, which lie in L1, so each result
 * sums its own: no running sum, whose rounding errors would grow, and an infinity that has left the
 * window is gone.
 */
#include <math.h>

#include "../simd/simd.h"

/* Elements of one task at least: some ten microseconds. */
static const int64_t TASK_ELEMENTS = 1 << 13;

/* Forms of v^beta that need no powf; they ask for v >= 0. */
typedef enum { POWER, ONE_HALF, THREE_QUARTERS, ONE } exponent;

typedef struct {
  ext_lrn_params p;
  int64_t blocks; /* of VL in `inner` */
  exponent form;
  const float* x;
  float* y;
} lrn_job;

/* x / (bias + alpha / size * sum)^beta, of n lanes. */
EXT_INLINE vf respond(const lrn_job* job, vf x, vf sum, int64_t n) {
  vf v = vf_fma(sum / vf_set1((float)job->p.size), vf_set1(job->p.alpha), vf_set1(job->p.bias));
  vf root = vf_sqrt(v);
  if (job->form == THREE_QUARTERS) return x / (root * vf_sqrt(root));
  if (job->form == ONE_HALF) return x / root;
  if (job->form == ONE) return x / v;
  float lanes[VL];
  vf_store(lanes, v);
  for (int64_t i = 0; i < n; i++) lanes[i] = powf(lanes[i], job->p.beta);
  return x / vf_load(lanes);
}

/* The n <= VL results at channel c of the columns from x on; `stride` parts channels. */
EXT_INLINE void window(const lrn_job* job, const float* x, float* y, int64_t c, int64_t stride,
                       int64_t n) {
  int64_t begin = i64_max(0, c - (job->p.size - 1) / 2);
  int64_t end = i64_min(job->p.channels, c + job->p.size / 2 + 1);
  vf sum = vf_zero();
  for (int64_t k = begin; k < end; k++) {
    vf v = n == VL ? vf_load(x + k * stride) : vf_load_n(x + k * stride, n);
    sum = vf_fma(v, v, sum);
  }
  vf own = n == VL ? vf_load(x + c * stride) : vf_load_n(x + c * stride, n);
  vf_store_n(y + c * stride, respond(job, own, sum, n), n);
}

/* Items are pixels: channels are adjacent, and vectors run along them where no window is cut. */
static int pixels(void* context, int64_t begin, int64_t end) {
  const lrn_job* job = context;
  const int64_t before = (job->p.size - 1) / 2, after = job->p.size / 2;
  for (int64_t item = begin; item < end; item++) {
    const float* x = job->x + item * job->p.channels;
    float* y = job->y + item * job->p.channels;
    int64_t c = 0, whole = job->p.channels - after;
    for (; c < i64_min(before, job->p.channels); c++) window(job, x, y, c, 1, 1);
    for (; c + VL <= whole; c += VL) {
      vf sum = vf_zero();
      for (int64_t k = c - before; k <= c + after; k++) {
        vf v = vf_load(x + k);
        sum = vf_fma(v, v, sum);
      }
      vf_store(y + c, respond(job, vf_load(x + c), sum, VL));
    }
    for (; c < job->p.channels; c++) window(job, x, y, c, 1, 1);
  }
  return EXT_OK;
}

/* Items are blocks of VL columns, of all channels. */
static int columns(void* context, int64_t begin, int64_t end) {
  const lrn_job* job = context;
  for (int64_t item = begin; item < end; item++) {
    int64_t i0 = item % job->blocks * VL, n = i64_min(VL, job->p.inner - i0);
    int64_t base = item / job->blocks * job->p.channels * job->p.inner + i0;
    for (int64_t c = 0; c < job->p.channels; c++)
      window(job, job->x + base, job->y + base, c, job->p.inner, n);
  }
  return EXT_OK;
}

static exponent form_of(float alpha, float beta, float bias) {
  if (!(alpha >= 0.0f && bias >= 0.0f)) return POWER;
  return beta == 0.75f ? THREE_QUARTERS : beta == 0.5f ? ONE_HALF : beta == 1.0f ? ONE : POWER;
}

int EXT_NAME(ext_lrn)(const ext_lrn_params* p, const float* x, float* y) {
  if (p->outer <= 0 || p->channels <= 0 || p->inner <= 0) return EXT_OK;
  if (p->size <= 0) return EXT_ERR_ARGUMENT;
  lrn_job job = {*p, ceil_div(p->inner, VL), form_of(p->alpha, p->beta, p->bias), x, y};
  if (p->inner == 1)
    return ext_parallel_for(p->outer, i64_max(1, TASK_ELEMENTS / p->channels), pixels, &job);
  return ext_parallel_for(p->outer * job.blocks, i64_max(1, TASK_ELEMENTS / (VL * p->channels)),
                          columns, &job);
}

EXT_DISPATCH(ext_lrn, (const ext_lrn_params* p, const float* x, float* y), (p, x, y))
