/*
 * y[i][j] = requantise(sum_p A[i][p] B[p][j]) for A [m][k] of 8-bit integers, B in panels
 * [ceil(n / 16)][ceil(k / 4)][16][4].
 *
 * The loops are those of gemm.c, without blocks of K: a tile holds its sums from the first term to
 * the last, so that they stay exact, and are finished where they are (requantise.c).  A is packed
 * as the level multiplies it, and read in place where its bytes are that already.
 */
#include "qgemm.h"

#include "product_split.h"
#include "qgemm_tile.h"

/* As in gemm.c, some ten microseconds of one core. */
static const int64_t TASK_MACS = 800000;
/* Micropanels in one block of A. */
enum { MC_LEAST = 2, MC_MOST = 32 };
/* Columns that a task begins at are a multiple of it. */
enum { COLUMN_STEP = QTILE_N > EXT_PANEL ? QTILE_N : EXT_PANEL };

EXT_INLINE int64_t micropanels(const ext_qgemm* g) {
  return ceil_div(g->m, QR);
}
/* Micropanels divide m evenly: micropanel i begins at this row. */
EXT_INLINE int64_t first_row(const ext_qgemm* g, int64_t i) {
  return i * g->m / micropanels(g);
}

int EXT_NAME(ext_qgemm_plan)(ext_qgemm* g, ext_dtype x_dtype, int32_t x_zero,
                             const ext_requantise* e) {
  if (x_dtype != EXT_UINT8 && x_dtype != EXT_INT8) return EXT_ERR_ARGUMENT;
  if (!holds_zero(x_dtype, x_zero) || g->k > EXT_QUANTISED_TERMS) return EXT_ERR_ARGUMENT;
  int status = EXT_NAME(ext_plan_requantise)(e, &g->plan);
  g->x_dtype = x_dtype;
  g->plan.x_zero = x_zero + qa_shift(x_dtype);
  return status;
}

/* Whether rows of A can be multiplied where they lie: as the bytes that they are, in fours. */
static int in_place(const ext_qgemm* g) {
  int64_t floats = g->a_row / (int64_t)sizeof(float);
  return !g->pack && sizeof(qa) == 1 && qa_shift(g->x_dtype) == 0 && g->k % K_GROUP == 0 &&
         QR <= ext_rows_in_place(floats < 0 ? -floats : floats);
}

typedef struct {
  const ext_qgemm* g;
  int64_t a_offset, groups;
  qa* packed; /* NULL where A is read in place */
  int64_t packed_row;
} qgemm_state;

static void pack_rows(const qgemm_state* s, int64_t row, int64_t rows, qa* dst) {
  const ext_qgemm* g = s->g;
  if (g->pack) g->pack(g->source, s->a_offset, row, rows, dst, s->packed_row);
  for (int64_t r = 0; r < rows; r++, dst += s->packed_row) {
    if (!g->pack) qa_run(g->x_dtype, dst, g->a + s->a_offset + (row + r) * g->a_row, g->k);
    for (int64_t k = g->k; k < s->groups * K_GROUP; k++) dst[k] = 0;
  }
}

/* Rows [row, row + rows) times columns [j, j + columns), of which one tile has all vectors or one
 * vector's. */
static void run_tile(const qgemm_state* s, qgemm_tile* t, int64_t row, int64_t rows, int64_t j,
                     int64_t columns) {
  const ext_qgemm* g = s->g;
  const ext_requantise* e = &g->plan.e;
  qtile_function(rows, columns > (QN - 1) * VL)(t);
  requantise_tile done = {.rows = rows, .columns = columns, .content = t->sums, .width = t->width};
  done.w_sums = e->w_sums + j;
  done.scale = e->scale + j;
  done.bias = e->bias ? e->bias + j : NULL;
  if (e->residual)
    done.residual = (const uint8_t*)e->residual +
                    (row * e->residual_stride + j) * quantised_size(e->residual_dtype);
  done.y = (uint8_t*)g->y + (row * g->y_row + j) * quantised_size(e->y_dtype);
  done.y_row = g->y_row;
  EXT_NAME(ext_requantise_tile)(&g->plan, TILE_INT32_SUMS, &done);
}

/* Micropanels [i0, i1) times columns [j0, j1). */
static void run_block(const qgemm_state* s, int64_t i0, int64_t i1, int64_t j0, int64_t j1) {
  const ext_qgemm* g = s->g;
  const int64_t count = i1 - i0, panel = s->groups * K_GROUP * EXT_PANEL;
  int64_t row[MC_MOST + 1];
  for (int64_t i = 0; i <= count; i++) row[i] = first_row(g, i0 + i);
  for (int64_t i = 0; s->packed && i < count; i++)
    pack_rows(s, row[i], row[i + 1] - row[i], s->packed + i * QR * s->packed_row);
  _Alignas(EXT_ALIGN) int32_t sums[QR * QTILE_N];
  qgemm_tile t = {.groups = s->groups, .sums = sums, .width = QTILE_N};
  t.a_row = s->packed ? s->packed_row : g->a_row;
  t.b_step = VL == EXT_PANEL ? panel : VL * K_GROUP;
  for (int64_t j = j0, columns; j < j1; j += columns) {
    /* A vector more would lie past the last panel. */
    columns = j1 - j > (QN - 1) * VL ? QTILE_N : VL;
    t.b = g->panels + j / EXT_PANEL * panel + j % EXT_PANEL * K_GROUP;
    for (int64_t i = 0; i < count; i++) {
      t.a = s->packed ? s->packed + i * QR * s->packed_row
                      : (const qa*)(g->a + s->a_offset + row[i] * g->a_row);
      run_tile(s, &t, row[i], row[i + 1] - row[i], j, i64_min(columns, j1 - j));
    }
  }
}

/* Micropanels [i0, i1) times columns [j0, j1) on the calling thread. */
static int run_range(const ext_qgemm* g, int64_t a_offset, int64_t i0, int64_t i1, int64_t j0,
                     int64_t j1) {
  qgemm_state s = {.g = g, .a_offset = a_offset, .groups = ceil_div(g->k, K_GROUP)};
  /* An odd number of lines: rows use different sets of L1. */
  const int64_t line = EXT_ALIGN / (int64_t)sizeof(qa);
  s.packed_row = (ceil_div(s.groups * K_GROUP, line) | 1) * line;
  int64_t micropanel = QR * s.packed_row * (int64_t)sizeof(qa);
  int64_t mc = i64_min(i64_max(ext_cache_sizes()->l2 / 2 / micropanel, MC_LEAST), MC_MOST);
  mc = i64_min(mc, i1 - i0);
  if (!in_place(g)) {
    s.packed = ext_workspace_alloc((size_t)(mc * micropanel));
    if (!s.packed) return EXT_ERR_MEMORY;
  }
  int64_t blocks = ceil_div(i1 - i0, mc);
  for (int64_t b = 0; b < blocks; b++)
    run_block(&s, i0 + b * (i1 - i0) / blocks, i0 + (b + 1) * (i1 - i0) / blocks, j0, j1);
  ext_workspace_free(s.packed);
  return EXT_OK;
}

/* Moves the operands of `g` to batch item `index`; returns its offset in A. */
static int64_t select_batch(ext_qgemm* g, int64_t index) {
  ext_requantise* e = &g->plan.e;
  int64_t a = 0, y = 0, residual = 0, column = 0;
  for (int d = g->batch_ndim - 1; d >= 0; d--) {
    int64_t i = index % g->batch[d];
    index /= g->batch[d];
    a += i * g->a_batch[d];
    g->panels += i * g->b_batch[d];
    y += i * g->y_batch[d];
    residual += i * g->residual_batch[d];
    column += i * g->column_batch[d];
  }
  g->y = (uint8_t*)g->y + y * quantised_size(e->y_dtype);
  if (e->residual)
    e->residual = (const uint8_t*)e->residual + residual * quantised_size(e->residual_dtype);
  e->w_sums += column;
  e->scale += column;
  if (e->bias) e->bias += column;
  return a;
}

typedef struct {
  const ext_qgemm* g;
  product_parts parts;
} qgemm_job;

static int qgemm_tasks(void* context, int64_t begin, int64_t end) {
  const qgemm_job* job = context;
  const product_parts parts = job->parts;
  for (int64_t task = begin; task < end; task++) {
    ext_qgemm g = *job->g;
    int64_t n_part = task % parts.n, rest = task / parts.n, m_part = rest % parts.m;
    int64_t a_offset = select_batch(&g, rest / parts.m);
    int64_t steps = ceil_div(g.n, COLUMN_STEP), count = micropanels(&g);
    int64_t j0 = n_part * steps / parts.n * COLUMN_STEP;
    int64_t j1 = i64_min(g.n, (n_part + 1) * steps / parts.n * COLUMN_STEP);
    int64_t i0 = m_part * count / parts.m, i1 = (m_part + 1) * count / parts.m;
    if (i0 == i1 || j0 >= j1) continue;
    int status = run_range(&g, a_offset, i0, i1, j0, j1);
    if (status) return status;
  }
  return EXT_OK;
}

int EXT_NAME(ext_qgemm_run)(const ext_qgemm* g) {
  int64_t batches = 1;
  for (int d = 0; d < g->batch_ndim; d++) batches *= g->batch[d];
  if (g->m <= 0 || g->n <= 0 || batches <= 0) return EXT_OK;
  int64_t macs = g->m * g->n * i64_max(1, g->k);
  qgemm_job job = {g, {1, 1}};
  if (macs * batches < 2 * TASK_MACS) return qgemm_tasks(&job, 0, batches);
  int64_t threads = ext_num_threads();
  if (threads > 1) {
    int64_t wanted = i64_min(ceil_div(TASKS_PER_THREAD * threads, batches), macs / TASK_MACS);
    job.parts = split_product(micropanels(g), ceil_div(g->n, EXT_PANEL), threads, wanted);
  }
  int64_t tasks = batches * job.parts.m * job.parts.n;
  int64_t grain = threads > 1 ? i64_max(1, TASK_MACS * job.parts.m * job.parts.n / macs) : tasks;
  return ext_parallel_for(tasks, grain, qgemm_tasks, &job);
}
