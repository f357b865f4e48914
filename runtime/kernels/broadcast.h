/* Internal: a loop over broadcast operands of any dtype, y dense.
 *
 * Axes that all operands walk alike are merged; the innermost one that is left is a run, which the
 * caller computes with one step per operand. */
#ifndef EXT_BROADCAST_H_
#define EXT_BROADCAST_H_

#include "../simd/simd.h"

enum { BROADCAST_OPERANDS = 3 };
/* Elements of one task at least: some ten microseconds. */
static const int64_t BROADCAST_GRAIN = 1 << 15;

/* Computes y[0 .. n) from x[k][0], x[k][step[k]], ... */
typedef void (*broadcast_run)(const void* context, int64_t n, const void* const* x,
                              const int64_t* step, void* y);

typedef struct {
  broadcast_run run;
  const void* context;
  int32_t operands;
  int64_t sizes[BROADCAST_OPERANDS], y_size; /* bytes of an element */
  const void* x[BROADCAST_OPERANDS];
  void* y;
  /* What `broadcast` fills in. */
  int32_t ndim;
  int64_t shape[EXT_MAX_DIMS], strides[BROADCAST_OPERANDS][EXT_MAX_DIMS];
  int64_t part, parts; /* the innermost axis is cut into `parts` of `part` elements */
} broadcast_job;

static int broadcast_range(void* context, int64_t begin, int64_t end) {
  const broadcast_job* job = context;
  int32_t last = job->ndim - 1;
  for (int64_t item = begin; item < end; item++) {
    int64_t outer = item / job->parts, from = item % job->parts * job->part, rest = outer;
    int64_t at[BROADCAST_OPERANDS], step[BROADCAST_OPERANDS];
    const void* x[BROADCAST_OPERANDS];
    for (int k = 0; k < job->operands; k++) {
      step[k] = job->strides[k][last];
      at[k] = from * step[k];
    }
    for (int32_t d = last - 1; d >= 0; d--) {
      int64_t i = rest % job->shape[d];
      rest /= job->shape[d];
      for (int k = 0; k < job->operands; k++) at[k] += i * job->strides[k][d];
    }
    for (int k = 0; k < job->operands; k++) x[k] = (const char*)job->x[k] + at[k] * job->sizes[k];
    char* y = (char*)job->y + (outer * job->shape[last] + from) * job->y_size;
    job->run(job->context, i64_min(job->part, job->shape[last] - from), x, step, y);
  }
  return EXT_OK;
}

/* Adds an axis inside of the others, or makes the innermost one longer. */
static void broadcast_axis(broadcast_job* job, int64_t size, const int64_t* stride) {
  int joins = job->ndim > 0;
  for (int k = 0; k < job->operands && joins; k++)
    joins = job->strides[k][job->ndim - 1] == stride[k] * size;
  if (joins)
    job->shape[job->ndim - 1] *= size;
  else
    job->shape[job->ndim++] = size;
  for (int k = 0; k < job->operands; k++) job->strides[k][job->ndim - 1] = stride[k];
}

/* Runs the job over `shape`; strides[k] are operand k's. */
static int broadcast(broadcast_job* job, int32_t ndim, const int64_t* shape,
                     const int64_t* const* strides) {
  if (ndim < 1 || ndim > EXT_MAX_DIMS) return EXT_ERR_ARGUMENT;
  int64_t total = 1;
  for (int32_t d = 0; d < ndim; d++) total *= shape[d];
  if (total <= 0) return EXT_OK;
  for (int32_t d = 0; d < ndim; d++) {
    int64_t stride[BROADCAST_OPERANDS];
    for (int k = 0; k < job->operands; k++) stride[k] = strides[k][d];
    if (shape[d] != 1) broadcast_axis(job, shape[d], stride);
  }
  if (job->ndim == 0) {
    const int64_t none[BROADCAST_OPERANDS] = {0};
    broadcast_axis(job, 1, none);
  }
  int64_t run = job->shape[job->ndim - 1];
  job->part = i64_min(run, BROADCAST_GRAIN);
  job->parts = ceil_div(run, job->part);
  return ext_parallel_for(total / run * job->parts, i64_max(1, BROADCAST_GRAIN / job->part),
                          broadcast_range, job);
}

/* Executes `statement` for i < n with the operands' indices ia and ib; the usual steps have loops
 * of their own, which the compiler turns into vector code. */
#define EXT_LOOP2_OF(a_step, b_step, statement)         \
  for (int64_t i = 0; i < n; i++) {                     \
    const int64_t ia = i * (a_step), ib = i * (b_step); \
    statement;                                          \
  }
#define EXT_LOOP2(step, statement)              \
  do {                                          \
    if (step[0] == 1 && step[1] == 1)           \
      EXT_LOOP2_OF(1, 1, statement)             \
    else if (step[0] == 1 && step[1] == 0)      \
      EXT_LOOP2_OF(1, 0, statement)             \
    else if (step[0] == 0 && step[1] == 1)      \
      EXT_LOOP2_OF(0, 1, statement)             \
    else                                        \
      EXT_LOOP2_OF(step[0], step[1], statement) \
  } while (0)

#endif /* EXT_BROADCAST_H_ */
