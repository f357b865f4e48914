/* Internal: a loop over broadcast operands of any dtype, y dense.
 *
 * Axes that all operands walk alike are merged; the innermost one that is left is a run, which the
 * caller computes with one step per operand. */
#ifndef EXT_BROADCAST_H_
#define EXT_BROADCAST_H_

#include "axes.h"

/* Elements of one task at least: some ten microseconds of memory traffic. */
static const int64_t BROADCAST_GRAIN = 1 << 15;

/* Computes y[0 .. n) from x[k][0], x[k][step[k]], ... */
typedef void (*broadcast_run)(const void* context, int64_t n, const void* const* x,
                              const int64_t* step, void* y);

/* Several runs of n elements, one after the other in y; run i reads x[k][i * row_step[k]] and on.
 */
typedef struct {
  int64_t rows, n;
  const void* x[AXES_OPERANDS];
  int64_t row_step[AXES_OPERANDS], step[AXES_OPERANDS];
  void* y;
} broadcast_rows;

typedef struct {
  broadcast_run run;
  /* NULL, or what takes runs together where they are short. */
  void (*run_rows)(const void* context, const broadcast_rows* r);
  const void* context;
  int32_t operands;                     /* 2 or 3 */
  int64_t sizes[AXES_OPERANDS], y_size; /* bytes of an element */
  const void* x[AXES_OPERANDS];
  void* y;
  /* What `broadcast` fills in. */
  ext_axes axes;
  int64_t part, parts; /* the innermost axis is cut into `parts` of `part` elements */
} broadcast_job;

/* Items [begin, end), each a run: those along the axis before the last together. */
EXT_INLINE int broadcast_together(const int operands, const broadcast_job* job, int64_t begin,
                                  int64_t end) {
  const ext_axes* axes = &job->axes;
  const int32_t last = axes->ndim - 1;
  axes_place place = axes_begin(axes, operands, last, begin);
  broadcast_rows r = {.n = axes->size[last]};
  for (int k = 0; k < operands; k++) {
    r.step[k] = axes->stride[k][last];
    r.row_step[k] = axes->stride[k][last - 1];
  }
  for (; begin < end; begin += r.rows) {
    r.rows = i64_min(end - begin, axes->size[last - 1] - place.index[last - 1]);
    for (int k = 0; k < operands; k++)
      r.x[k] = (const char*)job->x[k] + place.at[k] * job->sizes[k];
    r.y = (char*)job->y + begin * r.n * job->y_size;
    job->run_rows(job->context, &r);
    axes_advance(axes, operands, last, r.rows, &place);
  }
  return EXT_OK;
}

EXT_INLINE int broadcast_items(const int operands, const broadcast_job* job, int64_t begin,
                               int64_t end) {
  const int32_t last = job->axes.ndim - 1;
  const int64_t run = job->axes.size[last];
  if (job->run_rows && job->parts == 1 && last > 0)
    return broadcast_together(operands, job, begin, end);
  for (int64_t item = begin; item < end; item++) {
    int64_t outer = item / job->parts, from = item % job->parts * job->part;
    int64_t at[AXES_OPERANDS], step[AXES_OPERANDS];
    const void* x[AXES_OPERANDS];
    for (int k = 0; k < operands; k++) {
      step[k] = job->axes.stride[k][last];
      at[k] = from * step[k];
    }
    axes_locate(&job->axes, operands, last, outer, at);
    for (int k = 0; k < operands; k++) x[k] = (const char*)job->x[k] + at[k] * job->sizes[k];
    char* y = (char*)job->y + (outer * run + from) * job->y_size;
    job->run(job->context, i64_min(job->part, run - from), x, step, y);
  }
  return EXT_OK;
}

static int broadcast_two(void* job, int64_t begin, int64_t end) {
  return broadcast_items(2, job, begin, end);
}
static int broadcast_three(void* job, int64_t begin, int64_t end) {
  return broadcast_items(3, job, begin, end);
}

/* Runs the job over `shape`; strides[k] are operand k's. */
static int broadcast(broadcast_job* job, int32_t ndim, const int64_t* shape,
                     const int64_t* const* strides) {
  if (ndim < 1 || ndim > EXT_MAX_DIMS) return EXT_ERR_ARGUMENT;
  int64_t total = 1;
  for (int32_t d = 0; d < ndim; d++) total *= shape[d];
  if (total <= 0) return EXT_OK;
  for (int32_t d = 0; d < ndim; d++) {
    int64_t stride[AXES_OPERANDS];
    for (int k = 0; k < job->operands; k++) stride[k] = strides[k][d];
    axes_add(&job->axes, job->operands, shape[d], stride);
  }
  if (job->axes.ndim == 0) job->axes.size[job->axes.ndim++] = 1;
  int64_t run = job->axes.size[job->axes.ndim - 1];
  job->part = i64_min(run, BROADCAST_GRAIN);
  job->parts = ceil_div(run, job->part);
  return ext_parallel_for(total / run * job->parts, i64_max(1, BROADCAST_GRAIN / job->part),
                          job->operands == 2 ? broadcast_two : broadcast_three, job);
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
