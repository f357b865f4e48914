/*
 * y[i][j] = epilogue(sum_p A[i][p] B[p][j]) for A [m][k], B in panels [ceil(n / 16)][k][16].
 *
 * Loops, from outside (blocking after Goto and van de Geijn, 2008):
 *   tasks       ranges of micropanels x ranges of panels, claimed by threads
 *   M blocks    micropanels of A that fit into L2
 *   K blocks    at most KC of K; the block of A is packed, [rows][A_STRIDE], and stays in L2.  A
 *               plain matrix is read where it lies, unless it has a prologue or its rows would
 *               share sets of L1
 *   N tiles     one or two panels of B, read once per M block, from L3 or memory into L1/L2
 *   micropanels MR rows of A, from L2 into L1: the microkernel
 * A B that is unpacked is so once for all M blocks: columns that stay in L3 and K blocks are then
 * the outermost loops of a task.
 * y itself holds the sums between K blocks; the last one applies the epilogue.
 */
#include "gemm.h"

#include "activation.h"
#include "gemm_rows.h"
#include "gemm_tile.h"
#include "product_split.h"
#include "subnormals.h"

/* A task is worth a share of a launch (a few microseconds) from this many multiply-adds on: some
 * ten microseconds of one core. */
static const int64_t TASK_MACS = 400000;

/* Micropanels divide m evenly: no short last one.  Micropanel i begins at this row. */
EXT_INLINE int64_t micropanels(const ext_gemm* g) {
  return ceil_div(g->m, MR);
}
EXT_INLINE int64_t first_row(const ext_gemm* g, int64_t i) {
  return i * g->m / micropanels(g);
}

/* Micropanels in a block of A that is kc wide: with it, this tile of B and the next take half of
 * L2, but fewer than three would read B too often. */
static int64_t block_micropanels(int64_t kc) {
  int64_t k_bytes = i64_max(1, kc) * (int64_t)sizeof(float);
  int64_t fit = (ext_cache_sizes()->l2 / 2 - 2 * TILE_N * k_bytes) / (MR * k_bytes);
  return i64_max(MC_LEAST, i64_min(fit, MC_MOST));
}

typedef struct {
  const ext_gemm* g;
  ext_epilogue e;
  ext_tail tail;
  int64_t a_offset;
  int64_t k_blocks, k_block;
  int accumulate;  /* y begins as a summand: a residual that is y itself */
  float* packed;   /* NULL where A is read in place */
  float* unpacked; /* where B is unpacked: the panels of some columns, [kc][EXT_PANEL] each */
  float* partial;  /* sums between K blocks: y's own place, or memory of our own */
  int64_t partial_row;
} gemm_state;

EXT_INLINE gemm_tile_function tile_of(const gemm_state* s, int64_t rows, int64_t columns) {
  return tile_function(s->packed != NULL, rows, columns);
}

/* Runs one tile; i is its first row in y, j its first column, `partial` its corner there. */
static void run_tile(const gemm_state* s, int64_t block, gemm_tile* t, int64_t rows, int64_t i,
                     int64_t j, float* partial) {
  const ext_gemm* g = s->g;
  int last = block == s->k_blocks - 1;
  gemm_tile_function run = tile_of(s, rows, t->columns);
  t->c = block > 0 || s->accumulate ? partial : NULL;
  t->c_row = s->partial_row;
  t->bias = block == 0 && s->e.bias ? s->e.bias + j : NULL;
  t->clamp = last && s->tail.clamp;
  if (!last) {
    t->residual = NULL;
    t->finished = t->y = partial;
    t->finished_row = t->y_row = s->partial_row;
    run(t);
    return;
  }
  const float* residual = s->e.residual ? s->e.residual + i * s->e.residual_stride + j : NULL;
  tile_run(run, t, rows, &s->e, residual, g->y + i * g->y_row + j, g->y_row);
}

/* Writes out the panels of columns [j0, j1) in rows [k0, k0 + kc) of B. */
static void unpack_columns(const gemm_state* s, int64_t k0, int64_t kc, int64_t j0, int64_t j1) {
  const ext_gemm* g = s->g;
  const int64_t first = j0 / EXT_PANEL;
  for (int64_t panel = first; panel * EXT_PANEL < j1; panel++)
    g->unpack(g->weight, g->k, panel, k0, kc, s->unpacked + (panel - first) * kc * EXT_PANEL);
}

/* Columns that are unpacked at once: where A has several blocks, as many as stay in L3 while
 * these pass; else those of a tile, which stay in L2. */
static int64_t columns_at_once(int64_t kc, int64_t blocks) {
  enum { TILE_PANELS = (TILE_N + EXT_PANEL - 1) / EXT_PANEL, MOST_BYTES = 1 << 20 };
  const int64_t bytes = i64_min(ext_cache_sizes()->l3 / 4, MOST_BYTES);
  const int64_t panel = i64_max(1, kc) * EXT_PANEL * (int64_t)sizeof(float);
  const int64_t fit = bytes / panel / TILE_PANELS * TILE_PANELS;
  return (blocks > 1 ? i64_max(TILE_PANELS, fit) : TILE_PANELS) * EXT_PANEL;
}

/* How many rows the panels have that a K block of kc is read from. */
EXT_INLINE int64_t panel_rows(const gemm_state* s, int64_t kc) {
  return s->unpacked ? kc : s->g->panel_rows ? s->g->panel_rows : s->g->k;
}
/* Row k0 of the panel of column j, at that column; those unpacked begin at column j0. */
EXT_INLINE const float* panel_at(const gemm_state* s, int64_t rows, int64_t k0, int64_t j,
                                 int64_t j0) {
  const float* panel = s->unpacked
                           ? s->unpacked + (j / EXT_PANEL - j0 / EXT_PANEL) * rows * EXT_PANEL
                           : s->g->panels + (j / EXT_PANEL * rows + k0) * EXT_PANEL;
  return panel + j % EXT_PANEL;
}

/* One block of A (micropanels [i0, i1), one block of K) times the columns [j0, j1). */
static void run_block(const gemm_state* s, int64_t block, int64_t i0, int64_t i1, int64_t j0,
                      int64_t j1) {
  const ext_gemm* g = s->g;
  int64_t k0 = block * s->k_block, kc = i64_min(s->k_block, g->k - k0), count = i1 - i0;
  int64_t row[MC_MOST + 1];
  for (int64_t i = 0; i <= count; i++) row[i] = first_row(g, i0 + i);
  const float* a = g->a + s->a_offset + k0;
  if (s->packed)
    for (int64_t i = 0; i < count; i++)
      pack_rows(g, s->a_offset, row[i], row[i + 1] - row[i], k0, kc, s->packed + i * MR * A_STRIDE);
  gemm_tile t = {.kc = kc, .low = s->tail.low, .high = s->tail.high, .a_row = g->a_row};
  t.taps_h = t.taps_w = 1;
  const int64_t rows = panel_rows(s, kc);
  t.b_step = VL == EXT_PANEL ? rows * EXT_PANEL : VL;
  const int64_t origin = j0 / EXT_PANEL * EXT_PANEL;
  const float* first = panel_at(s, rows, k0, origin, j0);
  for (int64_t j = j0; j < j1; j += TILE_N) {
    t.columns = i64_min(TILE_N, j1 - j);
    t.b = panel_at(s, rows, k0, j, j0);
    for (int64_t i = 0; i < count; i++) {
      t.a = s->packed ? s->packed + i * MR * A_STRIDE : a + row[i] * g->a_row;
      t.next = next_of(i, kc, first, rows * EXT_PANEL, j + TILE_N - origin,
                       i64_min(j1, j + 2 * TILE_N) - origin, t.b);
      float* partial = s->partial == g->y
                           ? g->y + row[i] * g->y_row + j
                           : s->partial + (row[i] - row[0]) * s->partial_row + (j - j0);
      run_tile(s, block, &t, row[i + 1] - row[i], row[i], j, partial);
    }
  }
}

/* A of micropanels [i0, i1) in so many blocks, times the columns [j0, j1). */
static void run_blocks(const gemm_state* s, int64_t blocks, int64_t i0, int64_t i1, int64_t j0,
                       int64_t j1) {
  for (int64_t b = 0; b < blocks; b++)
    for (int64_t k = 0; k < s->k_blocks; k++)
      run_block(s, k, i0 + b * (i1 - i0) / blocks, i0 + (b + 1) * (i1 - i0) / blocks, j0, j1);
}

/* The same of a B that is unpacked, `step` columns at once. */
static void run_unpacked(const gemm_state* s, int64_t blocks, int64_t step, int64_t i0, int64_t i1,
                         int64_t j0, int64_t j1) {
  for (int64_t j = j0, end; j < j1; j = end) {
    end = i64_min(j1, j / EXT_PANEL * EXT_PANEL + step);
    for (int64_t k = 0; k < s->k_blocks; k++) {
      const int64_t k0 = k * s->k_block;
      unpack_columns(s, k0, i64_min(s->k_block, s->g->k - k0), j, end);
      for (int64_t b = 0; b < blocks; b++)
        run_block(s, k, i0 + b * (i1 - i0) / blocks, i0 + (b + 1) * (i1 - i0) / blocks, j, end);
    }
  }
}

/* Micropanels [i0, i1) times columns [j0, j1) on the calling thread. */
static int run_range(const ext_gemm* g, int64_t a_offset, int64_t i0, int64_t i1, int64_t j0,
                     int64_t j1) {
  gemm_state s = {
      .g = g, .e = g->epilogue, .a_offset = a_offset, .partial = g->y, .partial_row = g->y_row};
  s.k_blocks = i64_max(1, ceil_div(g->k, KC));
  s.k_block = ceil_div(g->k, s.k_blocks);
  if (g->unpack) s.k_block = ceil_div(s.k_block, EXT_UNPACK_STEP) * EXT_UNPACK_STEP;
  int64_t partial_size = 0, mc = i64_min(block_micropanels(s.k_block), i1 - i0);
  const int64_t blocks = ceil_div(i1 - i0, mc);
  if (s.e.residual == g->y && s.k_blocks > 1) {
    if (s.e.before.kind == EXT_IDENTITY && !s.e.residual_is_factor) {
      s.accumulate = 1; /* sums may grow on top of the residual from the first block on */
      s.e.residual = NULL;
    } else {
      s.partial_row = ceil_div(j1 - j0, EXT_PANEL) * EXT_PANEL;
      partial_size = mc * MR * s.partial_row;
    }
  }
  s.tail = ext_plan_tail(&s.e);
  int in_place = !g->pack && !g->prologue && MR <= ext_rows_in_place(g->a_row);
  int64_t packed_size = in_place ? 0 : mc * MR * A_STRIDE;
  /* Sums in memory of their own are those of one block of A. */
  const int64_t step = columns_at_once(s.k_block, partial_size > 0 ? 1 : blocks);
  const int64_t unpacked_size = g->unpack ? step * s.k_block : 0;
  float* memory = NULL;
  if (packed_size + partial_size + unpacked_size > 0) {
    memory =
        ext_workspace_alloc((size_t)(packed_size + partial_size + unpacked_size) * sizeof(float));
    if (!memory) return EXT_ERR_MEMORY;
  }
  if (unpacked_size) s.unpacked = memory;
  if (packed_size) s.packed = memory + unpacked_size;
  if (partial_size) s.partial = memory + unpacked_size + packed_size;
  if (!g->unpack) run_blocks(&s, blocks, i0, i1, j0, j1);
  const int64_t parts = !g->unpack ? 0 : partial_size > 0 ? blocks : 1;
  for (int64_t p = 0; p < parts; p++)
    run_unpacked(&s, blocks / parts, step, i0 + p * (i1 - i0) / parts,
                 i0 + (p + 1) * (i1 - i0) / parts, j0, j1);
  ext_workspace_free(memory);
  return EXT_OK;
}

int EXT_NAME(ext_gemm_serial)(const ext_gemm* g, int64_t a_offset) {
  if (g->m <= 0 || g->n <= 0) return EXT_OK;
  if (ext_gemm_parts_fit(g)) return ext_gemm_parts_range(g, a_offset, 0, g->m, 0, g->n);
  return run_range(g, a_offset, 0, micropanels(g), 0, g->n);
}

/* Moves the operands of `g` to batch item `index`; returns its offset in A. */
static int64_t select_batch(ext_gemm* g, int64_t index) {
  int64_t a = 0;
  for (int d = g->batch_ndim - 1; d >= 0; d--) {
    int64_t i = index % g->batch[d];
    index /= g->batch[d];
    a += i * g->a_batch[d];
    g->panels += i * g->b_batch[d];
    g->y += i * g->y_batch[d];
    if (g->epilogue.residual) g->epilogue.residual += i * g->residual_batch[d];
    if (g->epilogue.bias) g->epilogue.bias += i * g->bias_batch[d];
  }
  return a;
}

typedef struct {
  const ext_gemm* g;
  int by_parts; /* on tiles of bf16 */
  int64_t m_parts, n_parts;
} gemm_job;

EXT_INLINE int64_t job_micropanels(const gemm_job* job) {
  return job->by_parts ? ceil_div(job->g->m, GEMM_PARTS_ROWS) : micropanels(job->g);
}

static int gemm_tasks(void* context, int64_t begin, int64_t end) {
  const gemm_job* job = context;
  for (int64_t task = begin; task < end; task++) {
    ext_gemm g = *job->g;
    int64_t n_part = task % job->n_parts, rest = task / job->n_parts;
    int64_t m_part = rest % job->m_parts;
    int64_t a_offset = select_batch(&g, rest / job->m_parts);
    const int64_t width = job->by_parts ? GEMM_PARTS_COLUMNS : TILE_N;
    int64_t panels = ceil_div(g.n, EXT_PANEL), mp = job_micropanels(job);
    int64_t tiles = ceil_div(panels * EXT_PANEL, width);
    int64_t j0 = n_part * tiles / job->n_parts * width;
    int64_t j1 = i64_min(g.n, (n_part + 1) * tiles / job->n_parts * width);
    int64_t i0 = m_part * mp / job->m_parts, i1 = (m_part + 1) * mp / job->m_parts;
    if (i0 == i1 || j0 >= j1) continue;
    int status = job->by_parts ? ext_gemm_parts_range(&g, a_offset, i0 * GEMM_PARTS_ROWS,
                                                      i64_min(g.m, i1 * GEMM_PARTS_ROWS), j0, j1)
                               : run_range(&g, a_offset, i0, i1, j0, j1);
    if (status) return status;
  }
  return EXT_OK;
}

int EXT_NAME(ext_gemm_run)(const ext_gemm* g) {
  int64_t batches = 1;
  for (int d = 0; d < g->batch_ndim; d++) batches *= g->batch[d];
  if (g->m <= 0 || g->n <= 0 || batches <= 0) return EXT_OK;
  int64_t macs = g->m * g->n * i64_max(1, g->k);
  gemm_job job = {g, ext_gemm_parts_fit(g), 1, 1};
  if (macs * batches < 2 * TASK_MACS) return ext_products(gemm_tasks, &job, 0, batches);
  int64_t threads = ext_num_threads();
  if (threads > 1) {
    int64_t wanted = i64_min(ceil_div(TASKS_PER_THREAD * threads, batches), macs / TASK_MACS);
    product_parts parts =
        split_product(job_micropanels(&job), ceil_div(g->n, EXT_PANEL), threads, wanted);
    job.m_parts = parts.m;
    job.n_parts = parts.n;
    /* What is unpacked is read by one task, if there are columns for all threads. */
    const int64_t columns = ceil_div(g->n, EXT_PANEL) / TASK_MIN_PANELS;
    if (g->unpack && columns >= threads) {
      job.m_parts = 1;
      job.n_parts = i64_max(1, i64_min(wanted, columns));
    }
  }
  int64_t tasks = batches * job.m_parts * job.n_parts;
  int64_t grain = threads > 1 ? i64_max(1, TASK_MACS * job.m_parts * job.n_parts / macs) : tasks;
  return ext_parallel_products(tasks, grain, gemm_tasks, &job);
}

void EXT_NAME(ext_pack_panel)(int64_t k, int64_t columns, const float* b, int64_t b_row,
                              int64_t b_col, float* dst) {
  int64_t i = 0;
  if (b_col == 1) {
    for (; i < k; i++) {
      for (int64_t v = 0; v < EXT_PANEL; v += VL)
        vf_store(dst + i * EXT_PANEL + v,
                 columns - v >= VL ? vf_load(b + i * b_row + v)
                                   : vf_load_n(b + i * b_row + v, clamp_lanes(columns - v)));
    }
    return;
  }
  if (b_row == 1 && columns == EXT_PANEL) {
    for (; i + VL <= k; i += VL)
      for (int64_t v = 0; v < EXT_PANEL; v += VL) {
        vf tile[VL];
        EXT_UNROLL
        for (int c = 0; c < VL; c++) tile[c] = vf_load(b + (v + c) * b_col + i);
        vf_transpose(tile);
        EXT_UNROLL
        for (int c = 0; c < VL; c++) vf_store(dst + (i + c) * EXT_PANEL + v, tile[c]);
      }
  }
  for (; i < k; i++)
    for (int64_t c = 0; c < EXT_PANEL; c++)
      dst[i * EXT_PANEL + c] = c < columns ? b[i * b_row + c * b_col] : 0.0f;
}
