/*
 * Probabilities of classes from those of their pairs.  With r[i][j] what class i has beside j, they
 * make p' Q p least, Q[i][i] = sum over j of r[j][i]^2, Q[i][j] = -r[j][i] r[i][j]; a step solves
 * for one of them.
 */
#include <math.h>

#include "../simd/simd.h"

enum { ROUNDS = 100 };
/* The error of a class, times how many there are, from which on nothing is searched further. */
static const float ENOUGH = 0.005f;
/* Elements of Q of one task at least: some ten microseconds. */
static const int64_t TASK_ELEMENTS = 1 << 10;

typedef struct {
  const ext_coupling_params* p;
  const float* x;
  float* y;
} coupling_job;

/* Q, [classes][classes], of one row of pairs. */
static void quadratic_form(int64_t classes, const float* pairs, float* q) {
  for (int64_t i = 0; i < classes; i++) q[i * classes + i] = 0;
  for (int64_t i = 0; i < classes; i++)
    for (int64_t j = i + 1; j < classes; j++) {
      const float first = *pairs++, second = 1 - first;
      q[i * classes + i] += second * second;
      q[j * classes + j] += first * first;
      q[i * classes + j] = q[j * classes + i] = -second * first;
    }
}

/* qy = Q y; returns y' Q y. */
static float product(int64_t classes, const float* q, const float* y, float* qy) {
  float whole = 0;
  for (int64_t i = 0; i < classes; i++) {
    float sum = 0;
    for (int64_t j = 0; j < classes; j++) sum += q[i * classes + j] * y[j];
    qy[i] = sum;
    whole += y[i] * sum;
  }
  return whole;
}

static void couple(int64_t classes, const float* q, float* y, float* qy) {
  for (int64_t i = 0; i < classes; i++) y[i] = 1.0f / (float)classes;
  for (int round = 0; round < ROUNDS; round++) {
    float whole = product(classes, q, y, qy), error = 0;
    for (int64_t i = 0; i < classes; i++) {
      const float own = fabsf(qy[i] - whole);
      error = own > error ? own : error; /* NaN stops, as no error is found */
    }
    if (error < ENOUGH / (float)classes) return;
    for (int64_t i = 0; i < classes; i++) {
      const float* row = q + i * classes;
      const float step = (whole - qy[i]) / row[i], scale = 1 + step;
      y[i] += step;
      whole = (whole + step * (step * row[i] + 2 * qy[i])) / scale / scale;
      for (int64_t j = 0; j < classes; j++) {
        qy[j] = (qy[j] + step * row[j]) / scale;
        y[j] /= scale;
      }
    }
  }
}

static int rows_of_pairs(void* context, int64_t begin, int64_t end) {
  const coupling_job* job = context;
  const int64_t classes = job->p->classes, pairs = classes * (classes - 1) / 2;
  float* q = ext_workspace_alloc((size_t)(classes * (classes + 1)) * sizeof *q);
  if (q == NULL) return EXT_ERR_MEMORY;
  for (int64_t r = begin; r < end; r++) {
    quadratic_form(classes, job->x + r * pairs, q);
    couple(classes, q, job->y + r * classes, q + classes * classes);
  }
  ext_workspace_free(q);
  return EXT_OK;
}

int EXT_NAME(ext_coupling)(const ext_coupling_params* p, const float* x, float* y) {
  if (p->classes < 2) return EXT_ERR_ARGUMENT;
  if (p->rows <= 0) return EXT_OK;
  coupling_job job = {p, x, y};
  const int64_t least = ceil_div(TASK_ELEMENTS, p->classes * p->classes);
  return ext_parallel_for(p->rows, least, rows_of_pairs, &job);
}

EXT_DISPATCH(ext_coupling, (const ext_coupling_params* p, const float* x, float* y), (p, x, y))
