/*
 * y[i][j] = epilogue(sum_p a[i][p] b[p][j]) with few rows or few columns: a product that takes as
 * long as reading its large operand does.  That is read once and where it lies, never packed: by
 * dots along K (gemv_dots.c), or row by row of b (gemv_walk.c).
 */
#include "gemv.h"

#include "gemv_job.h"
#include "subnormals.h"

/* From this K on, dots of more than DOT_FEW rows are faster than packing b. */
enum { LEAST_DEPTH = 128 };

/* Floats of the large operand that one task reads at least: some ten microseconds. */
static const int64_t TASK_FLOATS = 1 << 16;
enum { TASKS_PER_THREAD = 4 };

static gemv_way way_of(const ext_matmul_params* p, int packed) {
  /* Columns of panels are gathered, which many rows make up for. */
  if (p->n <= MOST_COLUMNS && p->a_col == 1 && (p->n == 1 || p->k >= VL) &&
      (!packed || p->m > DOT_FEW * p->n))
    return DOT_ROWS;
  if (packed) return p->m <= WALK_ROWS ? WALK : NEITHER;
  if (p->m > MOST_ROWS) return NEITHER;
  if (p->b_col == 1) return WALK;
  if (p->b_row != 1) return NEITHER;
  return p->m == 1 || p->k >= (p->m <= DOT_FEW ? VL : LEAST_DEPTH) ? DOT_COLUMNS : NEITHER;
}

int EXT_NAME(ext_gemv_takes)(const ext_matmul_params* p, int packed) {
  return way_of(p, packed) != NEITHER;
}

int EXT_NAME(ext_gemv_run)(const ext_matmul_params* p, int packed, const float* a, const float* b,
                           const ext_epilogue* e, float* y) {
  int64_t batches = 1, shared = 1;
  for (int d = 0; d < p->batch_ndim; d++) batches *= p->batch[d];
  if (p->m <= 0 || p->n <= 0 || batches <= 0) return EXT_OK;
  gemv_way way = way_of(p, packed);
  int dots = way != WALK;
  gemv_job job = {.p = p, .packed = packed, .way = way, .a = a, .b = b, .y = y};
  if (e) job.e = *e;
  gemv_few few = few_of(&job);
  int64_t count = way == DOT_ROWS ? p->m : p->n;
  int64_t unit = dots ? DOT_TILE : WALK_VECTORS * VL, floats = i64_max(1, count * p->k);
  int64_t units = ceil_div(count, unit);
  int alone = batches * floats < 2 * TASK_FLOATS;
  int64_t wanted = alone ? 1 : ceil_div(TASKS_PER_THREAD * ext_num_threads(), batches);
  int64_t parts = i64_max(1, i64_min(i64_min(wanted, floats / TASK_FLOATS), units));
  job.part = ceil_div(units, parts) * unit;
  job.parts = ceil_div(count, job.part);
  float* memory = NULL;
  const int64_t* steps = few.rows ? p->b_batch : p->a_batch;
  for (int d = 0; d < p->batch_ndim; d++) shared &= steps[d] == 0 || p->batch[d] == 1;
  if (dots && few.step != 1 && shared) {
    memory = ext_workspace_alloc((size_t)i64_max(1, few.few * p->k) * sizeof(float));
    if (!memory) return EXT_ERR_MEMORY;
    gemv_gather(few.rows ? b : a, few.row, few.step, few.few, p->k, memory);
    job.gathered = memory;
  }
  int64_t tasks = batches * job.parts;
  int64_t grain = alone ? tasks : i64_max(1, TASK_FLOATS * job.parts / floats);
  int status = ext_parallel_products(
      tasks, grain, dots ? EXT_NAME(ext_gemv_dots) : EXT_NAME(ext_gemv_walk), &job);
  ext_workspace_free(memory);
  return status;
}
