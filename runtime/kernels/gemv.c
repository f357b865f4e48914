/*
 * y[i][j] = epilogue(sum_p a[i][p] b[p][j]) with few rows or few columns: a product that takes as
 * long as reading its large operand does.  That is read once and where it lies, never packed.
 *
 *   dots   y[i][j] = x[i] . w[j] for many vectors x and few w, all contiguous along K.  x are the
 *          rows of a and w the columns of b (few columns), or x are the columns of b and w the rows
 *          of a (few rows, b transposed).  The few vectors are gathered before if need be.
 *   walk   y[i][J] += a[i][p] b[p][J] for few rows i and a run of columns J, which stays in
 *          registers while p walks down b: a plain matrix, or several panels side by side.
 *   sweep  the same for so long a run of columns that y stays in L1: a plain matrix from memory.
 */
#include "gemv.h"

#include "activation.h"
#include "gemm.h"

enum {
  PER_PANEL = EXT_PANEL / VL,
  DOT_FEW = 4,   /* vectors w of one block */
  DOT_MANY = 8,  /* vectors x of one block */
  DOT_TILE = 64, /* vectors x whose results are finished together */
  WALK_ROWS = 4,
  WALK_VECTORS = 8,    /* of columns */
  SWEEP_STEPS = 8,     /* rows of b at a time */
  SWEEP_FLOATS = 4096, /* of y: half of a small L1 */
  MOST_ROWS = 14,      /* beyond, packing b pays */
#if defined(EXT_SIMD_AVX512)
  MOST_COLUMNS = 6, /* beyond, the half vector of gemm.c is as fast */
#else
  MOST_COLUMNS = 8,
#endif
  LEAST_DEPTH = 128 /* from this K on, dots of more than DOT_FEW rows are faster than packing b */
};

/* Floats of the large operand that one task reads at least: some ten microseconds. */
static const int64_t TASK_FLOATS = 1 << 16;
enum { TASKS_PER_THREAD = 4 };

typedef enum { NEITHER, DOT_ROWS, DOT_COLUMNS, WALK } gemv_way; /* dots: what x are */

typedef struct {
  const ext_matmul_params* p;
  int packed;
  gemv_way way;
  ext_epilogue e;
  const float *a, *b;
  float* y;
  const float* gathered; /* dots: NULL, or the few vectors, the same for all batch items */
  int64_t parts, part;   /* of the many vectors or columns: how many parts of a batch item, of how
                            many each but the last */
} gemv_job;

/* Operands of one batch item. */
typedef struct {
  const float *a, *b, *residual;
  float* y;
} gemv_item;

static gemv_item item_at(const gemv_job* job, int64_t index) {
  const ext_matmul_params* p = job->p;
  gemv_item item = {job->a, job->b, job->e.residual, job->y};
  for (int d = p->batch_ndim - 1; d >= 0; d--) {
    int64_t i = index % p->batch[d];
    index /= p->batch[d];
    item.a += i * p->a_batch[d];
    item.b += i * p->b_batch[d];
    item.y += i * p->y_batch[d];
    if (item.residual) item.residual += i * p->residual_batch[d];
  }
  return item;
}

/* Finishes the tile t of the result whose corner is (i, j). */
static void finish(const gemv_job* job, const gemv_item* item, int64_t i, int64_t j, int64_t rows,
                   int64_t columns, float* t, int64_t width) {
  int64_t y_row = job->p->y_row, residual_row = job->e.residual_stride;
  const float* residual = item->residual ? item->residual + i * residual_row + j : NULL;
  EXT_NAME(ext_finish_tile)
  (&job->e, rows, columns, t, width, residual, residual_row, item->y + i * y_row + j, y_row);
}

/* ---------------------------------------------------------------------- dots */

/* The many vectors x[i], i < count, and the few w[j], j < few.  The result of i and j is
 * y[i][j] where x are the rows of a, else y[j][i]. */
typedef struct {
  const float* x;
  int64_t x_row, count;
  const float* w;
  int64_t w_row, few;
  int rows; /* x are the rows of a */
} gemv_dots;

/* out[i out_x + j out_w] = x[i] . w[j], i < many, j < few: constants. */
EXT_INLINE void dot_block(const int many, const int few, int64_t k, const float* x, int64_t x_row,
                          const float* w, int64_t w_row, float* out, int64_t out_x, int64_t out_w) {
  vf acc[DOT_MANY][DOT_FEW];
  EXT_UNROLL
  for (int i = 0; i < many; i++) {
    EXT_UNROLL
    for (int j = 0; j < few; j++) acc[i][j] = vf_zero();
  }
  int64_t p = 0;
  for (; p + VL <= k; p += VL) {
    vf v[DOT_FEW];
    EXT_UNROLL
    for (int j = 0; j < few; j++) v[j] = vf_load(w + j * w_row + p);
    EXT_UNROLL
    for (int i = 0; i < many; i++) {
      vf u = vf_load(x + i * x_row + p);
      EXT_UNROLL
      for (int j = 0; j < few; j++) acc[i][j] = vf_fma(u, v[j], acc[i][j]);
    }
  }
  if (p < k) {
    vf v[DOT_FEW];
    EXT_UNROLL
    for (int j = 0; j < few; j++) v[j] = vf_load_n(w + j * w_row + p, k - p);
    EXT_UNROLL
    for (int i = 0; i < many; i++) {
      vf u = vf_load_n(x + i * x_row + p, k - p);
      EXT_UNROLL
      for (int j = 0; j < few; j++) acc[i][j] = vf_fma(u, v[j], acc[i][j]);
    }
  }
  EXT_UNROLL
  for (int i = 0; i < many; i++) {
    EXT_UNROLL
    for (int j = 0; j < few; j++) out[i * out_x + j * out_w] = vf_sum(acc[i][j]);
  }
}

/* dot_block for all x; `many` at a time. */
EXT_INLINE void dot_all(const int many, const int few, int64_t count, int64_t k, const float* x,
                        int64_t x_row, const float* w, int64_t w_row, float* out, int64_t out_x,
                        int64_t out_w) {
  int64_t i = 0;
  for (; i + many <= count; i += many)
    dot_block(many, few, k, x + i * x_row, x_row, w, w_row, out + i * out_x, out_x, out_w);
  for (; i < count; i++)
    dot_block(1, few, k, x + i * x_row, x_row, w, w_row, out + i * out_x, out_x, out_w);
}

#if defined(EXT_SIMD_AVX512)
enum { MANY_OF_1 = 8, MANY_OF_2 = 4, MANY_OF_3 = 4, MANY_OF_4 = 4 };
#else
enum { MANY_OF_1 = 8, MANY_OF_2 = 4, MANY_OF_3 = 3, MANY_OF_4 = 2 };
#endif

static void dot_few(int64_t few, int64_t count, int64_t k, const float* x, int64_t x_row,
                    const float* w, int64_t w_row, float* out, int64_t out_x, int64_t out_w) {
  switch (few) {
    case 1: dot_all(MANY_OF_1, 1, count, k, x, x_row, w, w_row, out, out_x, out_w); return;
    case 2: dot_all(MANY_OF_2, 2, count, k, x, x_row, w, w_row, out, out_x, out_w); return;
    case 3: dot_all(MANY_OF_3, 3, count, k, x, x_row, w, w_row, out, out_x, out_w); return;
    default: dot_all(MANY_OF_4, 4, count, k, x, x_row, w, w_row, out, out_x, out_w); return;
  }
}

/* The products with x[begin .. begin + count), count <= DOT_TILE. */
static void dot_tile(const gemv_job* job, const gemv_item* item, const gemv_dots* d, int64_t begin,
                     int64_t count) {
  const ext_matmul_params* p = job->p;
  _Alignas(EXT_ALIGN) float t[DOT_TILE * (MOST_ROWS > EXT_PANEL ? MOST_ROWS : EXT_PANEL)];
  /* Dense rows are one run, whose vectors are full. */
  int run = d->rows && p->y_row == p->n && (!item->residual || job->e.residual_stride == p->n);
  int64_t width = run ? d->few : d->rows ? ceil_div(d->few, VL) * VL : DOT_TILE;
  int64_t out_x = d->rows ? width : 1, out_w = d->rows ? 1 : width;
  zero_run(t, (d->rows ? DOT_TILE : d->few) * width);
  int64_t groups = ceil_div(d->few, DOT_FEW);
  /* A group reads x again, from L1. */
  for (int64_t i = 0; i < count; i += DOT_MANY)
    for (int64_t g = 0; g < groups; g++) {
      int64_t j = g * d->few / groups, end = (g + 1) * d->few / groups;
      dot_few(end - j, i64_min(DOT_MANY, count - i), p->k, d->x + (begin + i) * d->x_row, d->x_row,
              d->w + j * d->w_row, d->w_row, t + i * out_x + j * out_w, out_x, out_w);
    }
  const float* bias = job->e.bias;
  if (bias)
    for (int64_t i = 0; i < count; i++)
      for (int64_t j = 0; j < d->few; j++)
        t[i * out_x + j * out_w] += d->rows ? bias[j] : bias[begin + i];
  if (run) {
    /* One row of all the numbers. */
    const float* residual = item->residual ? item->residual + begin * p->n : NULL;
    EXT_NAME(ext_finish_tile)
    (&job->e, 1, count * p->n, t, ceil_div(count * p->n, VL) * VL, residual, 0,
     item->y + begin * p->n, 0);
  } else if (d->rows) {
    finish(job, item, begin, 0, count, d->few, t, width);
  } else {
    finish(job, item, 0, begin, d->few, count, t, width);
  }
}

/* dst[j][p] = w[j row + p step], j < few, p < k. */
static void gather(const float* w, int64_t row, int64_t step, int64_t few, int64_t k, float* dst) {
  for (int64_t j = 0; j < few; j++)
    for (int64_t p = 0; p < k; p++) dst[j * k + p] = w[j * row + p * step];
}

/* What the few vectors are where they lie. */
typedef struct {
  int rows; /* as in gemv_dots */
  int64_t few, row, step;
} gemv_few;

static gemv_few few_of(const gemv_job* job) {
  const ext_matmul_params* p = job->p;
  if (job->way == DOT_COLUMNS) return (gemv_few){0, p->m, p->a_row, p->a_col};
  if (job->packed) return (gemv_few){1, p->n, 1, EXT_PANEL};
  return (gemv_few){1, p->n, p->b_col, p->b_row};
}

static int dot_range(void* context, int64_t begin, int64_t end) {
  const gemv_job* job = context;
  const ext_matmul_params* p = job->p;
  gemv_few few = few_of(job);
  float* memory = NULL;
  if (few.step != 1 && !job->gathered) {
    memory = ext_workspace_alloc((size_t)i64_max(1, few.few * p->k) * sizeof(float));
    if (!memory) return EXT_ERR_MEMORY;
  }
  const float* last = NULL;
  for (int64_t task = begin; task < end; task++) {
    gemv_item item = item_at(job, task / job->parts);
    const float* w = few.rows ? item.b : item.a;
    if (memory && w != last) gather(w, few.row, few.step, few.few, p->k, memory);
    last = w;
    gemv_dots d = {.w = w, .w_row = few.row, .few = few.few, .rows = few.rows};
    if (few.step != 1) {
      d.w = memory ? memory : job->gathered;
      d.w_row = p->k;
    }
    d.x = few.rows ? item.a : item.b;
    d.x_row = few.rows ? p->a_row : p->b_col;
    d.count = few.rows ? p->m : p->n;
    int64_t i = task % job->parts * job->part, stop = i64_min(i + job->part, d.count);
    for (; i < stop; i += DOT_TILE) dot_tile(job, &item, &d, i, i64_min(DOT_TILE, stop - i));
  }
  ext_workspace_free(memory);
  return EXT_OK;
}

/* ---------------------------------------------------------------------- walk */

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

/* Vectors of a walk, by rows, and rows of b in a sweep.  The wider the walk, the longer the piece
 * of each row of a plain matrix; but four panels side by side, and with one row of y also 256 bytes
 * of each row of b, are read faster than more, unless these are whole pages apart (measured on
 * Zen 4). */
enum { PAGE_FLOATS = 1024 };
#if defined(EXT_SIMD_AVX512)
enum { NARROW = 4, WIDTH_OF_1 = 8, WIDTH_OF_2 = 8, WIDTH_OF_3 = 8, WIDTH_OF_4 = 4 };
enum { STEPS_OF_1 = 8, STEPS_OF_2 = 8, STEPS_OF_3 = 4, STEPS_OF_4 = 4 };
#else
enum { NARROW = 8, WIDTH_OF_1 = 8, WIDTH_OF_2 = 4, WIDTH_OF_3 = 4 };
#if defined(EXT_SIMD_AVX2)
enum { WIDTH_OF_4 = 2 };
#else
enum { WIDTH_OF_4 = 4 };
#endif
enum { STEPS_OF_1 = 8, STEPS_OF_2 = 4, STEPS_OF_3 = 2, STEPS_OF_4 = 2 };
#endif

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
    finish(job, item, i, begin, rows, end - begin, t, width);
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
  finish(job, item, i, begin, rows, end - begin, t, width);
}

static int walk_range(void* context, int64_t begin, int64_t end) {
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

/* ---------------------------------------------------------------------- which, and how split */

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
    gather(few.rows ? b : a, few.row, few.step, few.few, p->k, memory);
    job.gathered = memory;
  }
  int64_t tasks = batches * job.parts;
  int64_t grain = alone ? tasks : i64_max(1, TASK_FLOATS * job.parts / floats);
  int status = ext_parallel_for(tasks, grain, dots ? dot_range : walk_range, &job);
  ext_workspace_free(memory);
  return status;
}
