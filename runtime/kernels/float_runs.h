/*
 * float_runs.h - runs of a loop over broadcast operands of fp32 (broadcast.h), and an activation.
 *
 * Axes that all operands walk alike are merged before; what stays innermost is a run in which each
 * operand is contiguous, one value, or (rarely) strided.  A run is done in chunks, so that the
 * activation finds its input in L1; short runs are laid side by side, and of those of some vectors
 * several share a pass of the activation.
 */
#ifndef EXT_FLOAT_RUNS_H_
#define EXT_FLOAT_RUNS_H_

#include "../simd/pairs.h"
#include "activation.h"
#include "broadcast.h"

enum { CHUNK = 2048 };

/* The context of both functions below: y[i] = f(op(x[0][i * step[0]], ...)), steps 0 or 1. */
typedef struct {
  void (*op)(const void* context, int64_t n, const float* const* x, const int64_t* step, float* y);
  const void* context;
  const ext_activation* activation;
  int32_t operands;
} float_runs;

static void finish_runs(const float_runs* f, int64_t n, float* y) {
  if (f->activation->kind != EXT_IDENTITY) EXT_NAME(ext_activate)(f->activation, n, y, y);
}

/* Strided operands (step > 1) are gathered into a chunk of their own. */
static const float* gather(const float* p, int64_t* step, int64_t n, float* chunk) {
  if (*step == 0 || *step == 1) return p;
  for (int64_t i = 0; i < n; i++) chunk[i] = p[i * *step];
  *step = 1;
  return chunk;
}

/* A run of CHUNK elements at most, without the activation. */
static void chunk_of_run(const float_runs* f, int64_t n, const void* const* x, const int64_t* step,
                         int64_t from, float* y) {
  float chunks[AXES_OPERANDS][CHUNK];
  const float* at[AXES_OPERANDS];
  int64_t steps[AXES_OPERANDS];
  for (int32_t k = 0; k < f->operands; k++) {
    steps[k] = step[k];
    at[k] = gather((const float*)x[k] + from * step[k], &steps[k], n, chunks[k]);
  }
  f->op(f->context, n, at, steps, y);
}

static void float_run(const void* context, int64_t n, const void* const* x, const int64_t* step,
                      void* result) {
  const float_runs* f = context;
  float* y = result;
  for (int64_t i = 0; i < n; i += CHUNK) {
    const int64_t count = i64_min(CHUNK, n - i);
    chunk_of_run(f, count, x, step, i, y + i);
    finish_runs(f, count, y + i);
  }
}

/* `rows` runs of n elements, VL at most, as one run; it is in `chunk`, which has room for VL more,
 * where they do not lie so.  *step is its step. */
static const float* side_by_side(const float* x, int64_t rows, int64_t n, int64_t row_step,
                                 int64_t* step, float* chunk) {
  const int64_t within = *step;
  if (row_step == within * n) return x;
  *step = 1;
  int64_t row = 0;
  if (n == 2 && within == 0 && row_step == 1) /* one factor for both parts of a complex number */
    for (; row + VL <= rows; row += VL) {
      const vf v = vf_load(x + row);
      vf_store(chunk + 2 * row, vf_low_pairs(v, v));
      vf_store(chunk + 2 * row + VL, vf_high_pairs(v, v));
    }
  if (within == 0) /* the next row is written over the end of a vector */
    for (; row < rows; row++) vf_store(chunk + row * n, vf_set1(x[row * row_step]));
  for (; row < rows; row++)
    for (int64_t i = 0; i < n; i++) chunk[row * n + i] = x[row * row_step + i * within];
  return chunk;
}

/* Runs of VL elements at most; those of an operand that all rows share are laid once. */
static void short_rows(const float_runs* f, const broadcast_rows* r) {
  const int64_t together = CHUNK / r->n;
  float chunks[AXES_OPERANDS][CHUNK + VL];
  const void* x[AXES_OPERANDS];
  int64_t step[AXES_OPERANDS];
  for (int64_t row = 0; row < r->rows; row += together) {
    const int64_t count = i64_min(together, r->rows - row);
    for (int32_t k = 0; k < f->operands; k++) {
      if (row > 0 && r->row_step[k] == 0) continue;
      step[k] = r->step[k];
      x[k] = (const float*)r->x[k] + row * r->row_step[k];
      x[k] = side_by_side(x[k], count, r->n, r->row_step[k], &step[k], chunks[k]);
    }
    float_run(f, count * r->n, x, step, (float*)r->y + row * r->n);
  }
}

static void float_rows(const void* context, const broadcast_rows* r) {
  const float_runs* f = context;
  if (r->n <= VL) {
    short_rows(f, r);
    return;
  }
  const int64_t together = i64_max(1, CHUNK / r->n);
  for (int64_t row = 0; row < r->rows; row += together) {
    const int64_t count = i64_min(together, r->rows - row);
    float* y = (float*)r->y + row * r->n;
    for (int64_t i = 0; i < count; i++) {
      const void* x[AXES_OPERANDS];
      for (int32_t k = 0; k < f->operands; k++)
        x[k] = (const float*)r->x[k] + (row + i) * r->row_step[k];
      if (together == 1)
        float_run(f, r->n, x, r->step, y);
      else
        chunk_of_run(f, r->n, x, r->step, 0, y + i * r->n);
    }
    if (together > 1) finish_runs(f, count * r->n, y);
  }
}

#endif /* EXT_FLOAT_RUNS_H_ */
