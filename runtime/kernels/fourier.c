/*
 * y[o][f][k][i] = length^(-norm / 2) sum_n x[o][f][n][i] window[n] exp(-2 pi i n k / length)
 *
 * VL transforms are computed side by side (fourier_passes.h): neighbours along the inner axis, or
 * rows, which are turned round by VL x VL elements.  An inverse transform is one between whose
 * real and imaginary parts are exchanged, before and after.  Real numbers x, where there is an
 * even number of them, are transformed as half as many complex ones z[m] = x[2 m] + i x[2 m + 1]:
 *
 *   X[k] = (Z[k] + conj Z[-k]) / 2 - i / 2 w^k (Z[k] - conj Z[-k]),      w = exp(-2 pi i / length)
 *   Z[k] = X[k] + conj X[M - k] + i w^-k (X[k] - conj X[M - k]),         M = length / 2
 *
 * the latter for the way back (H. Sorensen et al., Real-valued fast Fourier transform algorithms,
 * IEEE Transactions on Acoustics, Speech and Signal Processing 35, 1987).
 */
#include <math.h>

#include "../simd/pairs.h"
#include "fourier_passes.h"

/* Elements of one task at least: some ten microseconds. */
static const int64_t TASK_ELEMENTS = 1 << 13;

/* Waves that are multiplied by few others, where a call computes them. */
enum { NEAR_WAVES = 64 };

typedef struct {
  const ext_fourier_params* p;
  const float *x, *window, *waves;
  float* y;
  int folded; /* real numbers are transformed as half as many complex ones */
  int64_t points, radices[MOST_RADICES];
  int passes;
  int64_t blocks;         /* of the inner axis */
  int64_t reads, results; /* elements along the axis, of x and y */
  int64_t room;           /* floats of each of a task's two buffers */
  vf scale;
} fourier_job;

/* Of VL transforms, the first `lanes`: where their first numbers lie. Those of element n are
 * `inner` numbers further; where that is 1, transforms are rows, else neighbours. */
typedef struct {
  int64_t lanes;
  const float* x[VL];
  float* y[VL];
} fourier_group;

static fourier_group group_of(const fourier_job* job, int64_t g) {
  const ext_fourier_params* p = job->p;
  const int64_t x_parts = p->kind == EXT_FOURIER_REAL ? 1 : 2;
  const int64_t y_parts = p->kind == EXT_FOURIER_HALF ? 1 : 2, rows = p->outer * p->frames;
  fourier_group made = {0};
  const int64_t first = p->inner == 1 ? g * VL : g / job->blocks;
  const int64_t i = p->inner == 1 ? 0 : g % job->blocks * VL;
  made.lanes = p->inner == 1 ? i64_min(VL, rows - first) : i64_min(VL, p->inner - i);
  for (int64_t l = 0; l < (p->inner == 1 ? made.lanes : 1); l++) {
    const int64_t row = first + l, o = row / p->frames, f = row - o * p->frames;
    made.x[l] = job->x + o * p->x_outer + f * p->x_frame + i * x_parts;
    made.y[l] = job->y + (row * p->count * p->inner + i) * y_parts;
  }
  return made;
}

/* Where float f of a transform is in a buffer: f * spread, with its parts exchanged by `flip`. */
typedef struct {
  int64_t spread, flip;
} fourier_places;

EXT_INLINE int64_t place_of(fourier_places at, int64_t f) {
  return ((f * at.spread) ^ at.flip) * VL;
}

/* Fill a buffer with `count` elements of `parts` floats; those that x has not are 0. */
static void load(const fourier_job* job, const fourier_group* g, int64_t count, int64_t parts,
                 fourier_places at, float* buffer) {
  const int64_t elements = i64_min(count, job->reads), inner = job->p->inner;
  const float* window = job->window;
  if (elements < count || at.spread > 1) zero_run(buffer, count * parts * at.spread * VL);
  if (inner == 1) {
    for (int64_t f = 0; f < elements * parts; f += VL) {
      const int64_t n = i64_min(VL, elements * parts - f);
      vf t[VL];
      for (int64_t l = 0; l < VL; l++)
        t[l] = l >= g->lanes ? vf_zero()
               : n == VL     ? vf_load(g->x[l] + f)
                             : vf_load_n(g->x[l] + f, n);
      vf_transpose(t);
      for (int64_t i = 0; i < n; i++)
        vf_store(buffer + place_of(at, f + i),
                 window ? t[i] * vf_set1(window[(f + i) / parts]) : t[i]);
    }
    return;
  }
  const int64_t first = i64_min(VL, parts * g->lanes), rest = parts * g->lanes - first;
  for (int64_t n = 0; n < elements; n++) {
    const float* x = g->x[0] + n * inner * parts;
    const vf w = vf_set1(window ? window[n] : 1.0f), a = vf_load_n(x, first) * w;
    if (parts == 1) {
      vf_store(buffer + place_of(at, n), a);
      continue;
    }
    const vf b = rest ? vf_load_n(x + VL, rest) * w : vf_zero();
    vf_store(buffer + place_of(at, 2 * n), vf_firsts(a, b));
    vf_store(buffer + place_of(at, 2 * n + 1), vf_seconds(a, b));
  }
}

/* Write `job->results` elements of `parts` floats, scaled. */
static void store(const fourier_job* job, const fourier_group* g, int64_t parts, fourier_places at,
                  const float* buffer) {
  const int64_t floats = job->results * parts, inner = job->p->inner;
  const vf scale = job->scale;
  if (inner == 1) {
    for (int64_t f = 0; f < floats; f += VL) {
      const int64_t n = i64_min(VL, floats - f);
      vf t[VL];
      for (int64_t i = 0; i < VL; i++)
        t[i] = i < n ? vf_load(buffer + place_of(at, f + i)) * scale : vf_zero();
      vf_transpose(t);
      for (int64_t l = 0; l < g->lanes; l++) {
        if (n == VL)
          vf_store(g->y[l] + f, t[l]);
        else
          vf_store_n(g->y[l] + f, t[l], n);
      }
    }
    return;
  }
  const int64_t first = i64_min(VL, parts * g->lanes), rest = parts * g->lanes - first;
  for (int64_t k = 0; k < job->results; k++) {
    float* y = g->y[0] + k * inner * parts;
    const vf a = vf_load(buffer + place_of(at, k * parts)) * scale;
    if (parts == 1) {
      vf_store_n(y, a, first);
      continue;
    }
    const vf b = vf_load(buffer + place_of(at, 2 * k + 1)) * scale;
    vf_store_n(y, vf_low_pairs(a, b), first);
    if (rest) vf_store_n(y + VL, vf_high_pairs(a, b), rest);
  }
}

/* Transform what is in *x by way of *y; the result is in *x. */
static void transform(const fourier_job* job, float** x, float** y) {
  fourier_pass f = {.m = job->points, .s = 1, .length = job->p->length, .waves = job->waves};
  f.turn = f.length / job->points;
  for (int i = 0; i < job->passes; i++) {
    f.radix = job->radices[i];
    f.m /= f.radix;
    run_pass(&f, *x, *y);
    float* swap = *x;
    *x = *y, *y = swap;
    f.s *= f.radix, f.turn *= f.radix;
  }
}

/* X of Z, for all results. */
static void unfold(const fourier_job* job, const float* z, float* x) {
  const int64_t half = job->points;
  const fourier_pass f = {.length = job->p->length, .waves = job->waves};
  const vf by = vf_set1(0.5f);
  for (int64_t k = 0; k <= half; k++) {
    vc a = vc_load(z + k % half * POINT), b = vc_load(z + (half - k) % half * POINT);
    b.im = -b.im;
    vc sum = vc_add(a, b), apart = vc_mul(vc_sub(a, b), vc_wave(&f, k));
    vc made = {(sum.re + apart.im) * by, (sum.im - apart.re) * by};
    if (k % half == 0) made.im = made.im * vf_zero() + vf_zero(); /* +0, or NaN */
    if (k < job->results) vc_store(x + k * POINT, made);
    made.im = -made.im;
    if (k && f.length - k < job->results && k < half) vc_store(x + (f.length - k) * POINT, made);
  }
}

/* Z of X, with its parts exchanged. */
static void fold(const fourier_job* job, const float* x, float* z) {
  const int64_t half = job->points;
  const fourier_pass f = {.length = job->p->length, .waves = job->waves};
  for (int64_t k = 0; k < half; k++) {
    vc a = vc_load(x + k * POINT), b = vc_load(x + (half - k) * POINT), w = vc_wave(&f, k);
    if (k == 0) a.im = b.im = vf_zero();
    b.im = -b.im, w.im = -w.im;
    vc sum = vc_add(a, b), apart = vc_mul(vc_sub(a, b), w);
    vc_store(z + k * POINT, (vc){sum.im + apart.re, sum.re - apart.im});
  }
}

/* All of an odd number of elements, with their parts exchanged, of the half that tells them. */
static void mirror(const fourier_job* job, const float* x, float* z) {
  const int64_t length = job->p->length;
  for (int64_t k = 0; 2 * k <= length; k++) {
    vc a = vc_load(x + k * POINT);
    if (k == 0) a.im = vf_zero();
    vc_store(z + k * POINT, (vc){a.im, a.re});
    if (k) vc_store(z + (length - k) * POINT, (vc){-a.im, a.re});
  }
}

static void run_group(const fourier_job* job, const fourier_group* g, float* a, float* b) {
  const ext_fourier_params* p = job->p;
  const fourier_places plain = {1, 0}, exchanged = {1, 1}, turned = {1, p->inverse != 0};
  if (p->kind == EXT_FOURIER_COMPLEX) {
    load(job, g, p->length, 2, turned, a);
    transform(job, &a, &b);
    store(job, g, 2, turned, a);
  } else if (p->kind == EXT_FOURIER_HALF) {
    load(job, g, p->length / 2 + 1, 2, plain, b);
    if (job->folded)
      fold(job, b, a);
    else
      mirror(job, b, a);
    transform(job, &a, &b);
    store(job, g, 1, job->folded ? exchanged : (fourier_places){2, 1}, a);
  } else if (job->folded) {
    load(job, g, p->length, 1, plain, a);
    transform(job, &a, &b);
    unfold(job, a, b);
    store(job, g, 2, plain, b);
  } else {
    load(job, g, p->length, 1, (fourier_places){2, turned.flip}, a);
    transform(job, &a, &b);
    store(job, g, 2, turned, a);
  }
}

static int groups(void* context, int64_t begin, int64_t end) {
  const fourier_job* job = context;
  float* memory = ext_workspace_alloc((size_t)(2 * job->room) * sizeof(float));
  if (!memory) return EXT_ERR_MEMORY;
  for (int64_t i = begin; i < end; i++) {
    const fourier_group g = group_of(job, i);
    run_group(job, &g, memory, memory + job->room);
  }
  ext_workspace_free(memory);
  return EXT_OK;
}

/* exp(-2 pi i n / length) for all n < length: each a product of two in double precision, and exact
 * at quarters of a turn. */
static void compute_waves(int64_t length, float* waves) {
  const double turn = -2 * 3.14159265358979323846 / (double)length;
  double near[NEAR_WAVES][2];
  for (int i = 0; i < NEAR_WAVES; i++) near[i][0] = cos(turn * i), near[i][1] = sin(turn * i);
  for (int64_t n = 0; n < length; n += NEAR_WAVES) {
    const double re = cos(turn * (double)n), im = sin(turn * (double)n);
    for (int64_t i = 0; i < i64_min(NEAR_WAVES, length - n); i++) {
      waves[2 * (n + i)] = (float)(re * near[i][0] - im * near[i][1]);
      waves[2 * (n + i) + 1] = (float)(re * near[i][1] + im * near[i][0]);
    }
  }
  static const float quarters[4][2] = {{1, 0}, {0, -1}, {-1, 0}, {0, 1}};
  for (int q = 0; q < 4; q++)
    if (q * length % 4 == 0) memcpy(waves + q * length / 2, quarters[q], sizeof quarters[q]);
}

static int run(fourier_job* job) {
  const ext_fourier_params* p = job->p;
  const int64_t rows = p->outer * p->frames;
  job->folded = p->length % 2 == 0 &&
                (p->kind == EXT_FOURIER_HALF || (p->kind == EXT_FOURIER_REAL && !p->inverse));
  job->points = job->folded ? p->length / 2 : p->length;
  job->passes = fourier_radices(job->points, job->radices);
  job->blocks = ceil_div(p->inner, VL);
  job->reads = p->given;
  job->results = p->count;
  job->room = (p->length + 1) * POINT;
  const double length = (double)p->length; /* pow would ask for glibc 2.29 */
  job->scale = vf_set1((float)(p->norm == 0 ? 1 : p->norm == 1 ? 1 / sqrt(length) : 1 / length));
  const int64_t count = p->inner == 1 ? ceil_div(rows, VL) : rows * job->blocks;
  return ext_parallel_for(count, ceil_div(TASK_ELEMENTS, VL * p->length), groups, job);
}

int EXT_NAME(ext_fourier)(const ext_fourier_params* p, const float* x, const float* waves,
                          const float* window, float* y) {
  if (p->length < 0 || p->given < 0 || p->count < 0 || p->count > p->length ||
      (p->kind == EXT_FOURIER_HALF && (!p->inverse || p->count != p->length)))
    return EXT_ERR_ARGUMENT;
  if (p->outer <= 0 || p->frames <= 0 || p->inner <= 0 || p->count == 0) return EXT_OK;
  fourier_job job = {.p = p, .x = x, .window = window, .waves = waves, .y = y};
  if (waves) return run(&job);
  float* computed = ext_workspace_alloc((size_t)(2 * p->length) * sizeof(float));
  if (!computed) return EXT_ERR_MEMORY;
  compute_waves(p->length, computed);
  job.waves = computed;
  const int status = run(&job);
  ext_workspace_free(computed);
  return status;
}

EXT_DISPATCH(ext_fourier,
             (const ext_fourier_params* p, const float* x, const float* waves, const float* window,
              float* y),
             (p, x, waves, window, y))
