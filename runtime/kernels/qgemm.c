/*
 * y[i][j] = requantise(sum_p A[i][p] B[p][j]) for A [m][k] of 8-bit integers, B in panels
 * [ceil(n / 16)][ceil(k / 4)][16][4].
 *
 * The loops are those of gemm.c, without blocks of K: a tile holds its sums from the first term to
 * the last, so that they stay exact.  They are finished in registers where what follows is a clamp
 * and a rounding to bytes, and all columns of the tile are there; else by requantise.c.  A is
 * packed as the level multiplies it, and read in place where its bytes are that already.
 */
#include "qgemm.h"

#include "product_split.h"
#include "qgemm_tile.h"

/* As in gemm.c, some ten microseconds of one core. */
static const int64_t TASK_MACS = 800000;
/* Lines in one block of A, at least and at most. */
enum { LINES_LEAST = 2, LINES_MOST = 32 };
/* Tiles that fetch the weights of the next columns, at most: few enough to be done in time, and so
 * many that none waits for memory. */
enum { FETCHING_TILES = 8 };
/* Columns that a task begins at are a multiple of it. */
enum { COLUMN_STEP = QTILE_N > EXT_PANEL ? QTILE_N : EXT_PANEL };

/* Columns that are apart are read one after the other. */
static void pack_rows(const ext_qgemm* g, int64_t offset, int64_t first, int64_t past, qa* dst) {
  const qgemm_matrix* s = g->source;
  for (int64_t line = first; line < past; line++, dst += g->a_line) {
    int64_t row = qgemm_first_row(g, line), rows = qgemm_first_row(g, line + 1) - row;
    const uint8_t* a = s->a + offset + row * s->row;
    for (int64_t r = 0; r < rows && s->column == 1; r++)
      qa_run(g->x_dtype, dst + r * g->a_row, a + r * s->row, s->k);
    for (int64_t k = 0; k < s->k && s->column != 1; k++)
      for (int64_t r = 0; r < rows; r++)
        qa_run(g->x_dtype, dst + r * g->a_row + k, a + k * s->column + r * s->row, 1);
    for (int64_t r = 0; r < rows; r++)
      for (int64_t k = s->k; k < g->run; k++) dst[r * g->a_row + k] = 0;
  }
}

void EXT_NAME(ext_qgemm_rows)(ext_qgemm* g, const qgemm_matrix* a, ext_dtype x_dtype) {
  g->terms = a->k;
  g->lines = ceil_div(g->m, QR);
  g->image_lines = i64_max(1, g->lines);
  g->run = ceil_div(a->k, K_GROUP) * K_GROUP;
  g->taps[0] = g->taps[1] = 1;
  g->a = a->a;
  g->a_row = a->row;
  if (a->column == 1 && qa_in_place(x_dtype, a->k, a->row, g->m)) return;
  /* An odd number of lines of L1: rows use different sets. */
  const int64_t cache_line = EXT_ALIGN / (int64_t)sizeof(qa);
  g->source = a;
  g->pack = pack_rows;
  g->a_row = (ceil_div(g->run, cache_line) | 1) * cache_line;
  g->a_line = QR * g->a_row;
  if (QROWS_STEP == 1 || a->column != 1 || a->row < i64_max(1, g->run)) return;
  const int64_t read = ceil_div(a->k, QK_STEP) * QK_STEP;
  g->lines_in_place = i64_max(0, g->m - ceil_div(read - a->k, a->row)) / QR;
}

/* The same product of lines that are read in place, whether all are or not. */
static ext_qgemm in_place(const ext_qgemm* g) {
  const qgemm_matrix* a = g->source;
  ext_qgemm inside = *g;
  inside.pack = NULL;
  inside.a_row = a->row;
  return inside;
}

static int64_t groups_of(const ext_qgemm* g) {
  return g->run / K_GROUP * g->taps[0] * g->taps[1];
}

int EXT_NAME(ext_qgemm_plan)(ext_qgemm* g, ext_dtype x_dtype, int32_t x_zero,
                             const ext_requantise* e) {
  if (x_dtype != EXT_UINT8 && x_dtype != EXT_INT8) return EXT_ERR_ARGUMENT;
  if (!holds_zero(x_dtype, x_zero) || g->terms > EXT_QUANTISED_TERMS) return EXT_ERR_ARGUMENT;
  int status = EXT_NAME(ext_plan_requantise)(e, &g->plan);
  g->x_dtype = x_dtype;
  g->plan.x_zero = x_zero + qa_shift(x_dtype);
  return status;
}

typedef struct {
  const ext_qgemm* g;
  int64_t a_offset;
  int64_t first; /* line of a block */
  qa* packed;    /* NULL where A is read in place */
  int8_t* ends;  /* of B (see qgemm_tile) */
  /* The panels of the next columns: as many tiles as `next_tiles` fetch a share each. */
  const int8_t* next;
  int64_t next_tiles, next_share, next_step; /* of a tile, and of four rows in it */
} qgemm_state;

/* The first row of a line, where it is read. */
static const qa* line_start(const qgemm_state* s, int64_t line) {
  const ext_qgemm* g = s->g;
  if (s->packed) return s->packed + (line - s->first) * g->a_line;
  const qa* a = (const qa*)(g->a + s->a_offset);
  if (!g->width) return a + qgemm_first_row(g, line) * g->a_row;
  return a + line / g->image_lines * g->a_image + line % g->image_lines * g->a_line;
}

/* What columns [j, j + columns) have in common. */
static void plan_columns(const ext_qgemm* g, int64_t j, int64_t columns, qgemm_columns* c) {
  const requantise_plan* plan = &g->plan;
  const vf most = vf_set1((float)(255 * 128 * i64_max(1, g->terms)));
  vf large = vf_zero();
  for (int64_t i = 0; i < columns; i += VL) {
    const int64_t lanes = i64_min(VL, columns - i);
    const vi sums = vi_load_n(plan->e.w_sums + j + i, lanes);
    vi_store(c->start + i, vi_set1(0) - sums * plan->x_zero);
    if (!plan->direct && !plan->stepwise) continue;
    const vf step = vf_set1(first_scale(plan));
    const vf factor = vf_load_n(plan->e.scale + j + i, lanes) / step;
    const vf bias = plan->e.bias ? vf_load_n(plan->e.bias + j + i, lanes) : vf_zero();
    const vf shift = bias / step;
    vf_store(c->factor + i, factor);
    vf_store(c->shift + i, shift);
    const vf bound = vf_fma(vf_max(factor, -factor), most, vf_max(shift, -shift));
    large = vf_max(large, vf_select(vm_lt(bound, vf_set1(1e9f)), vf_zero(), vf_set1(1.0f)));
  }
  c->tame = vf_most(large) == 0;
}

/* Rows [row, row + rows) times columns [j, j + columns), of which one tile has all vectors or one
 * vector's; it reads `read` rows of A. */
static void run_tile(qgemm_state* s, qgemm_tile* t, int64_t row, int64_t rows, int64_t read,
                     int64_t j, int64_t columns) {
  const ext_qgemm* g = s->g;
  const ext_requantise* e = &g->plan.e;
  const int all = columns > QTILE_N - QHALF_N;
  t->y = (uint8_t*)g->y + (row * g->y_row + j) * quantised_size(e->y_dtype);
  t->rows = rows;
  t->finish = g->plan.direct && t->columns->tame && columns == (all ? QTILE_N : QHALF_N);
  const int fetches = s->next_tiles-- > 0;
  t->next = fetches ? s->next : t->b;
  t->next_step = fetches ? s->next_step : 0;
  s->next += s->next_share;
  qtile_function(read, all)(t);
  if (t->finish) return;
  requantise_tile done = {.rows = rows, .columns = columns, .content = t->sums, .width = t->width};
  done.scale = e->scale + j;
  done.bias = e->bias ? e->bias + j : NULL;
  done.factor = t->columns->factor;
  done.shift = t->columns->shift;
  if (e->residual)
    done.residual = (const uint8_t*)e->residual +
                    (row * e->residual_stride + j) * quantised_size(e->residual_dtype);
  done.y = t->y;
  done.y_row = g->y_row;
  EXT_NAME(ext_requantise_tile)(&g->plan, TILE_INT32_SUMS, &done);
}

/* All rows of a line times columns [j, j + columns), in tiles of about as many rows, or whole
 * ones where rows are read by many. */
static void run_line(qgemm_state* s, qgemm_tile* t, int64_t line, int64_t j, int64_t columns) {
  const int64_t row = qgemm_first_row(s->g, line), rows = qgemm_first_row(s->g, line + 1) - row;
  const int64_t tiles = ceil_div(rows, QR);
  const qa* a = line_start(s, line);
  for (int64_t i = 0; i < tiles; i++) {
    int64_t from = i * rows / tiles, past = (i + 1) * rows / tiles;
    if (QROWS_STEP > 1) from = i * QR, past = i64_min(from + QR, rows);
    t->a = a + from * s->g->a_row;
    run_tile(s, t, row + from, past - from, past - from, j, columns);
  }
}

/* Lines [line, line + count), of which the half of a tile has t->half_lines, in one tile. */
static void run_lines(qgemm_state* s, qgemm_tile* t, int64_t line, int64_t count, int64_t j,
                      int64_t columns) {
  const int64_t rows = s->g->width;
  t->a = line_start(s, line);
  run_tile(s, t, qgemm_first_row(s->g, line), count * rows, count > t->half_lines ? QR : QR / 2, j,
           columns);
}

/* Shares `size` bytes of panels among the first tiles of `lines`; half_lines: see qgemm_tile. */
static void plan_fetch(qgemm_state* s, const int8_t* panels, int64_t lines, int64_t half_lines,
                       int64_t size) {
  const int64_t of_line = s->g->width ? ceil_div(s->g->width, QR) : 1;
  const int64_t tiles = half_lines ? ceil_div(lines, 2 * half_lines) : lines * of_line;
  s->next = panels;
  s->next_tiles = size ? i64_min(tiles, FETCHING_TILES) : 0;
  s->next_share = size / i64_max(1, s->next_tiles);
  s->next_step = s->next_share / i64_max(1, groups_of(s->g));
}

/* Lines [first, past), of one image, times columns [j0, j1). */
static void run_block(qgemm_state* s, int64_t first, int64_t past, int64_t j0, int64_t j1) {
  const ext_qgemm* g = s->g;
  const int64_t groups = g->run / K_GROUP, panel = groups_of(g) * K_GROUP * EXT_PANEL;
  _Alignas(EXT_ALIGN) int32_t sums[QR * QTILE_N];
  qgemm_columns common;
  const vx_steps steps = requantise_steps(&g->plan);
  qgemm_tile t = {.is_signed = g->x_dtype == EXT_INT8,
                  .a_row = g->a_row,
                  .groups = groups,
                  .columns = &common,
                  .steps = &steps,
                  .y_row = g->y_row,
                  .sums = sums,
                  .width = QTILE_N,
                  .ends = s->ends};
  if (g->width && g->a_row > 0 && g->a_line % g->a_row == 0) {
    t.line_rows = g->width;
    t.line_step = g->a_line / g->a_row;
    t.half_lines = qtile_lines(g->width, t.line_step);
  }
  t.a_high = t.half_lines ? t.half_lines * g->a_line : QR / 2 * g->a_row;
  t.b_step = VL == EXT_PANEL || QHALF_N == EXT_PANEL ? panel : VL * K_GROUP;
  for (int i = 0; i < 2; i++) t.taps[i] = g->taps[i];
  t.skip[1] = g->tap_step[1] - g->run;
  t.skip[0] = g->tap_step[0] - g->taps[1] * g->tap_step[1];
  s->first = first;
  if (s->packed) g->pack(g, s->a_offset, first, past, s->packed);
  for (int64_t j = j0, columns; j < j1; j += columns) {
    /* A vector more would lie past the last panel. */
    columns = j1 - j > QTILE_N - QHALF_N ? QTILE_N : QHALF_N;
    t.b = g->panels + j / EXT_PANEL * panel + j % EXT_PANEL * K_GROUP;
    if (s->ends) qtile_copy_ends(&t, columns == QTILE_N, s->ends);
    plan_columns(g, j, i64_min(columns, j1 - j), &common);
    plan_fetch(s, t.b + ceil_div(columns, EXT_PANEL) * panel, past - first, t.half_lines,
               ceil_div(i64_min(QTILE_N, j1 - j - columns), EXT_PANEL) * panel);
    const int64_t taken = i64_min(columns, j1 - j), lines = 2 * t.half_lines;
    for (int64_t line = first; line < past && lines; line += lines)
      run_lines(s, &t, line, i64_min(lines, past - line), j, taken);
    for (int64_t line = first; line < past && !lines; line++) run_line(s, &t, line, j, taken);
  }
}

/* Lines [i0, i1) times columns [j0, j1) on the calling thread. */
static int run_range(const ext_qgemm* g, int64_t a_offset, int64_t i0, int64_t i1, int64_t j0,
                     int64_t j1) {
  qgemm_state s = {.g = g, .a_offset = a_offset};
  const ext_qgemm inside = g->lines_in_place > i0 ? in_place(g) : *g;
  const int64_t inside_end = g->pack ? i64_min(i1, g->lines_in_place) : i1;
  int64_t line = g->width ? g->a_line : QR * g->a_row;
  int64_t room = ext_cache_sizes()->l2 / 2 / (int64_t)sizeof(qa) - g->packed_more;
  int64_t most = i64_max(room / i64_max(line < 0 ? -line : line, 1), LINES_LEAST);
  most = i64_min(i64_min(most, LINES_MOST), i1 - i0);
  /* Tiles read past the last row and the end of K. */
  const int64_t past_rows = QROWS_STEP > 1 ? QROWS_STEP * g->a_row + QK_STEP : 0;
  const int64_t of_lines = i64_min(most, i1 - i64_max(i0, inside_end)) * g->a_line;
  const int64_t of_rows = inside_end < i1 ? of_lines + g->packed_more + past_rows : 0;
  const int64_t of_ends = qtile_ends_size(g);
  char* memory = NULL;
  if (of_rows + of_ends > 0) {
    memory = ext_workspace_alloc((size_t)of_ends + (size_t)of_rows * sizeof(qa));
    if (!memory) return EXT_ERR_MEMORY;
  }
  s.ends = of_ends ? (int8_t*)memory : NULL;
  qtile_session_begin();
  for (int64_t from = i0, past; from < i1; from = past) {
    int64_t end = i64_min(i1, (from / g->image_lines + 1) * g->image_lines);
    if (from < inside_end) end = i64_min(end, inside_end);
    past = from + ceil_div(end - from, ceil_div(end - from, most));
    s.g = from < inside_end ? &inside : g;
    s.packed = from < inside_end ? NULL : (qa*)(memory + of_ends);
    run_block(&s, from, past, j0, j1);
  }
  qtile_session_end();
  ext_workspace_free(memory);
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
    int64_t steps = ceil_div(g.n, COLUMN_STEP), count = g.lines;
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
  int64_t macs = g->m * g->n * i64_max(1, g->terms);
  qgemm_job job = {g, {1, 1}};
  if (macs * batches < 2 * TASK_MACS) return qgemm_tasks(&job, 0, batches);
  int64_t threads = ext_num_threads();
  if (threads > 1) {
    int64_t wanted = i64_min(ceil_div(TASKS_PER_THREAD * threads, batches), macs / TASK_MACS);
    job.parts = split_product(g->lines, ceil_div(g->n, EXT_PANEL), threads, wanted);
  }
  int64_t tasks = batches * job.parts.m * job.parts.n;
  int64_t grain = threads > 1 ? i64_max(1, TASK_MACS * job.parts.m * job.parts.n / macs) : tasks;
  return ext_parallel_for(tasks, grain, qgemm_tasks, &job);
}
