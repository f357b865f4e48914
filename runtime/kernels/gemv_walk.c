/*
 * Products of few rows and a matrix whose rows, or panels, are contiguous along its columns.
 *
 *   walk   y[i][J] += a[i][p] b[p][J] for few rows i and a run of columns J, which stays in
 *          registers while p walks down b: a plain matrix, or several panels side by side.
 *   sweep  the same for so long a run of columns that y stays in L1: a plain matrix from memory.
 */
#include "gemv_job.h"

enum {
  PER_PANEL = EXT_PANEL / VL,
  SWEEP_STEPS = 8,    /* rows of b at a time */
  SWEEP_FLOATS = 4096 /* of y: half of a small L1 */
};

/* `rows` rows of a, and `vectors` vectors of columns of b: EXT_PANEL columns are at b + p b_row,
 * the next ones `panel` floats further. */
typedef struct {
  const float* a;
  int64_t a_row, a_col, k;
  const float* b;
  int64_t b_row, panel;
  const float* bias; /* NULL or that of the first column */
  float* t;          /* the result, rows `width` floats apart */
  int64_t width, lanes;
  int packed;
} gemv_walk;

/* rows and vectors are constants; of a single vector only the first lanes are there if `part`. */
EXT_INLINE void walk(const int rows, const int vectors, const int part, const gemv_walk* s) {
  vf acc[WALK_ROWS][WALK_VECTORS];
  EXT_UNROLL
  for (int v = 0; v < vectors; v++) {
    acc[0][v] = !s->bias ? vf_zero()
                : part   ? vf_load_n(s->bias, s->lanes)
                         : vf_load(s->bias + v * VL);
    EXT_UNROLL
    for (int i = 1; i < rows; i++) acc[i][v] = acc[0][v];
  }
  const float *a = s->a, *b = s->b;
  const int64_t a_row = s->a_row, a_col = s->a_col, b_row = s->b_row, panel = s->panel;
  for (int64_t p = s->k; p > 0; p--, a += a_col, b += b_row) {
    vf x[WALK_ROWS];
    EXT_UNROLL
    for (int i = 0; i < rows; i++) x[i] = vf_set1(a[i * a_row]);
    EXT_UNROLL
    for (int v = 0; v < vectors; v++) {
      const float* at = b + v / PER_PANEL * panel + v % PER_PANEL * VL;
      vf row = part ? vf_load_n(at, s->lanes) : vf_load(at);
      EXT_UNROLL
      for (int i = 0; i < rows; i++) acc[i][v] = vf_fma(x[i], row, acc[i][v]);
    }
  }
  EXT_UNROLL
  for (int i = 0; i < rows; i++) {
    EXT_UNROLL
    for (int v = 0; v < vectors; v++) vf_store(s->t + i * s->width + v * VL, acc[i][v]);
  }
}

enum { PAGE_FLOATS = 1024 };

/* Walks over as many of the `columns` as it can at once, `widest` vectors at most; returns how many
 * columns.  Panels are padded, so that their last vector is full. */
EXT_INLINE int64_t walk_columns(const int rows, const int widest, int64_t columns, gemv_walk* s) {
  int64_t vectors = s->packed ? ceil_div(columns, VL) : columns / VL;
  int narrow = s->packed || (rows == 1 && s->b_row % PAGE_FLOATS);
  if (narrow) vectors = i64_min(vectors, NARROW);
  if (widest >= 8 && vectors >= 8) {
    walk(rows, 8, 0, s);
    return 8 * VL;
  }
  if (widest >= 4 && vectors >= 4) {
    walk(rows, 4, 0, s);
    return 4 * VL;
  }
  if (vectors >= 2) {
    walk(rows, 2, 0, s);
    return 2 * VL;
  }
  s->lanes = i64_min(VL, columns);
  if (vectors == 1)
    walk(rows, 1, 0, s);
  else
    walk(rows, 1, 1, s);
  return s->lanes;
}

static int64_t walk_rows(int64_t rows, int64_t columns, gemv_walk* s) {
  switch (rows) {
    case 1: return walk_columns(1, WIDTH_OF_1, columns, s);
    case 2: return walk_columns(2, WIDTH_OF_2, columns, s);
    case 3: return walk_columns(3, WIDTH_OF_3, columns, s);
    default: return walk_columns(4, WIDTH_OF_4, columns, s);
  }
}

/* t[i][j] += sum_q a[i][p + q] b[p + q][j], q < steps, j < columns: rows and steps are constants.
 */
EXT_INLINE void sweep(const int rows, const int steps, const float* a, int64_t a_row, int64_t a_col,
                      const float* b, int64_t b_row, int64_t columns, float* t, int64_t width) {
  vf x[WALK_ROWS][SWEEP_STEPS];
  EXT_UNROLL
  for (int i = 0; i < rows; i++) {
    EXT_UNROLL
    for (int q = 0; q < steps; q++) x[i][q] = vf_keep(vf_set1(a[i * a_row + q * a_col]));
  }
  int64_t j = 0;
  for (; j + VL <= columns; j += VL) {
    vf acc[WALK_ROWS];
    EXT_UNROLL
    for (int i = 0; i < rows; i++) acc[i] = vf_load(t + i * width + j);
    EXT_UNROLL
    for (int q = 0; q < steps; q++) {
      vf row = vf_load(b + q * b_row + j);
      EXT_UNROLL
      for (int i = 0; i < rows; i++) acc[i] = vf_fma(x[i][q], row, acc[i]);
    }
    EXT_UNROLL
    for (int i = 0; i < rows; i++) vf_store(t + i * width + j, acc[i]);
  }
  if (j == columns) return;
  for (int i = 0; i < rows; i++) {
    vf acc = vf_load(t + i * width + j);
    EXT_UNROLL
    for (int q = 0; q < steps; q++)
      acc = vf_fma(x[i][q], vf_load_n(b + q * b_row + j, columns - j), acc);
    vf_store(t + i * width + j, acc);
  }
}

/* The whole of K, `steps` rows of b at a time: as many streams from memory. */
EXT_INLINE void sweep_all(const int rows, const int steps, const ext_matmul_params* p,
                          const float* a, const float* b, int64_t columns, float* t,
                          int64_t width) {
  int64_t q = 0;
  for (; q + steps <= p->k; q += steps)
    sweep(rows, steps, a + q * p->a_col, p->a_row, p->a_col, b + q * p->b_row, p->b_row, columns, t,
          width);
  for (; q < p->k; q++)
    sweep(rows, 1, a + q * p->a_col, p->a_row, p->a_col, b + q * p->b_row, p->b_row, columns, t,
          width);
}

static void sweep_rows(int64_t rows, const ext_matmul_params* p, const float* a, const float* b,
                       int64_t columns, float* t, int64_t width) {
  switch (rows) {
    case 1: sweep_all(1, STEPS_OF_1, p, a, b, columns, t, width); return;
    case 2: sweep_all(2, STEPS_OF_2, p, a, b, columns, t, width); return;
    case 3: sweep_all(3, STEPS_OF_3, p, a, b, columns, t, width); return;
    default: sweep_all(4, STEPS_OF_4, p, a, b, columns, t, width); return;
  }
}

/* A walk down a wide matrix reads a piece of each row, which memory gives slowly: it is for what
 * stays in a share of L3.  Else whole rows are swept, and y is summed up in L1. */
static int64_t columns_at_once(const gemv_job* job) {
  const ext_matmul_params* p = job->p;
  int64_t bytes = p->k * p->b_row * (int64_t)sizeof(float), most = WALK_VECTORS * VL;
  if (job->packed || 3 * bytes <= ext_cache_sizes()->l3) return most;
  return i64_max(most, SWEEP_FLOATS / i64_min(p->m, WALK_ROWS) / EXT_PANEL * EXT_PANEL);
}

/* Rows [i, i + rows) of y, columns [begin, end): more than a walk's are swept. */
static void walk_tile(const gemv_job* job, const gemv_item* item, int64_t i, int64_t rows,
                      int64_t begin, int64_t end) {
  const ext_matmul_params* p = job->p;
  _Alignas(EXT_ALIGN) float t[SWEEP_FLOATS];
  int64_t width = ceil_div(end - begin, VL) * VL;
  if (end - begin > WALK_VECTORS * VL) {
    for (int64_t r = 0; r < rows; r++) {
      if (job->e.bias)
        copy_run(t + r * width, job->e.bias + begin, width);
      else
        zero_run(t + r * width, width);
    }
    sweep_rows(rows, p, item->a + i * p->a_row, item->b + begin, end - begin, t, width);
    gemv_finish(job, item, i, begin, rows, end - begin, t, width);
    return;
  }
  gemv_walk s = {.a = item->a + i * p->a_row, .a_row = p->a_row, .a_col = p->a_col, .k = p->k};
  s.b_row = job->packed ? EXT_PANEL : p->b_row;
  s.panel = job->packed ? p->k * EXT_PANEL : EXT_PANEL;
  s.width = width;
  s.packed = job->packed;
  for (int64_t j = begin; j < end;) {
    s.b = item->b + (job->packed ? j / EXT_PANEL * s.panel + j % EXT_PANEL : j);
    s.bias = job->e.bias ? job->e.bias + j : NULL;
    s.t = t + (j - begin);
    j += walk_rows(rows, end - j, &s);
  }
  gemv_finish(job, item, i, begin, rows, end - begin, t, width);
}

int EXT_NAME(ext_gemv_walk)(void* context, int64_t begin, int64_t end) {
  const gemv_job* job = context;
  const ext_matmul_params* p = job->p;
  int64_t groups = ceil_div(p->m, WALK_ROWS), most = columns_at_once(job);
  for (int64_t task = begin; task < end; task++) {
    gemv_item item = item_at(job, task / job->parts);
    int64_t j = task % job->parts * job->part, stop = i64_min(j + job->part, p->n);
    for (; j < stop; j += most)
      for (int64_t g = 0; g < groups; g++) {
        int64_t i = g * p->m / groups, rows = (g + 1) * p->m / groups - i;
        walk_tile(job, &item, i, rows, j, i64_min(stop, j + most));
      }
  }
  return EXT_OK;
}
