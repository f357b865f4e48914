/*
 * y[b][i][j] = epilogue(sum_p a[b][i][p] w[p][j]) of few rows and a w of 4 or 8 bits: a product
 * that takes as long as reading w does.  A few panels are read side by side, and integers become
 * floats in registers; or, where a unit adds products of bytes, rows of a become digits of 8 bits.
 * What a block sums up is scaled once.
 *
 * Where a may be rounded to bytes and there is such a unit, this is the way of any number of rows:
 * as many as L2 holds take turns at each few columns.
 */
#include "activation.h"
#include "block_bytes.h"
#include "block_weight.h"
#include "subnormals.h"
#if defined(EXT_TILES)
#include "block_tiles.h"
#endif

enum {
  AT_ONCE = 4,    /* rows of a walk */
  STRETCH = 1024, /* columns whose sums one row keeps until they are finished: 4 KB */
  WIDEST = (int)WIDTH_OF_BLOCKS > (int)PER_PANEL ? (int)WIDTH_OF_BLOCKS : (int)PER_PANEL
};

/* Bytes of w that one task reads at least: some ten microseconds. */
static const int64_t TASK_BYTES = 1 << 17;
enum { TASKS_PER_THREAD = 4 };
/* Sums of a task's rows and columns. */
#if defined(EXT_TILES)
enum { MOST_SUMS = BLOCK_ROWS * WIDEST * VL };
#else
enum { MOST_SUMS = STRETCH };
#endif
/* Rows of bytes whose products take as long as reading w once more. */
enum { ROWS_PER_READ = 8 };

/* `vectors` vectors of columns of w, and rows of a. */
typedef struct {
  const ext_block_weight* w;
  const float* a;
  int64_t a_row, k; /* where words hold rows past k, zeros follow in a */
  int64_t j;        /* the first column, of a panel or of a vector of one */
  float* t;         /* the sums, rows `width` floats apart */
  int64_t width;
} block_walk;

/* Of vectors of columns, what a block has for all of its rows. */
typedef struct {
  vf zero[WIDEST], base[MOST_FIELDS][WIDEST];
} block_zeros;

/* part[r][v] += the products of the rows from p on, which the words at `at` hold; a row that is
 * alone has an accumulator for each half of a word. */
EXT_INLINE void walk_words(const int rows, const int vectors, const int bits, const zero_kind zeros,
                           const block_walk* s, const int32_t* at, int64_t panel, int64_t p,
                           const block_zeros* z, vf part[AT_ONCE][WIDEST]) {
  vi word[WIDEST];
  EXT_UNROLL
  for (int v = 0; v < vectors; v++)
    word[v] = vi_load(at + v / PER_PANEL * panel + v % PER_PANEL * VL);
  EXT_UNROLL
  for (int i = 0; i < 32 / bits; i++) {
    const int f = i % (HALF / bits), upper = i >= HALF / bits, row = row_of(bits, f, upper);
    vf x[AT_ONCE];
    EXT_UNROLL
    for (int r = 0; r < rows; r++) x[r] = vf_set1(s->a[r * s->a_row + p + row]);
    EXT_UNROLL
    for (int v = 0; v < vectors; v++) {
      if (upper && f == 0) word[v] = upper_half(word[v]);
      vf q = less_zero(bits, zeros, f, word[v], z->base[f][v], z->zero[v]);
      EXT_UNROLL
      for (int r = 0; r < rows; r++) {
        vf* sum = &part[rows == 1 ? upper : r][v];
        *sum = vf_fma(x[r], q, *sum);
      }
    }
  }
}

/* t = a w; rows, vectors, bits and zeros are constants. */
EXT_INLINE void walk(const int rows, const int vectors, const int bits, const zero_kind zeros,
                     const block_walk* s) {
  const ext_block_weight* w = s->w;
  const int64_t k = s->k, step = 32 / bits, panel = words_of(bits, k);
  const int64_t numbers = blocks_of(w, k) * EXT_PANEL;
  const int32_t* at = (const int32_t*)w->values + s->j / EXT_PANEL * panel + s->j % EXT_PANEL;
  int64_t place = s->j / EXT_PANEL * numbers + s->j % EXT_PANEL;
  const int parts = rows == 1 ? 2 : rows;
  vf sum[AT_ONCE][WIDEST];
  EXT_UNROLL
  for (int r = 0; r < rows; r++) {
    EXT_UNROLL
    for (int v = 0; v < vectors; v++) sum[r][v] = vf_zero();
  }
  for (int64_t p = 0; p < k; place += EXT_PANEL) {
    const int64_t end = i64_min(k, p + w->block);
    vf part[AT_ONCE][WIDEST];
    block_zeros z;
    EXT_UNROLL
    for (int v = 0; v < vectors; v++) {
      z.zero[v] = zeros_at(bits, zeros, w, place + v / PER_PANEL * numbers + v % PER_PANEL * VL);
      EXT_UNROLL
      for (int f = 0; f < HALF / bits; f++) z.base[f][v] = base_of(bits, zeros, f, z.zero[v]);
      EXT_UNROLL
      for (int r = 0; r < parts; r++) part[r][v] = vf_zero();
    }
    for (; p < end; p += step, at += EXT_PANEL)
      walk_words(rows, vectors, bits, zeros, s, at, panel, p, &z, part);
    EXT_UNROLL
    for (int v = 0; v < vectors; v++) {
      vf scale = vf_load(w->scale + place + v / PER_PANEL * numbers + v % PER_PANEL * VL);
      if (rows == 1) part[0][v] += part[1][v];
      EXT_UNROLL
      for (int r = 0; r < rows; r++) sum[r][v] = vf_fma(scale, part[r][v], sum[r][v]);
    }
  }
  EXT_UNROLL
  for (int r = 0; r < rows; r++) {
    EXT_UNROLL
    for (int v = 0; v < vectors; v++) vf_store(s->t + r * s->width + v * VL, sum[r][v]);
  }
}

EXT_INLINE void walk_of(const int rows, const int vectors, const block_walk* s) {
  const zero_kind zeros = zeros_of(s->w);
  if (s->w->bits == 4 && zeros == MIDDLE)
    walk(rows, vectors, 4, MIDDLE, s);
  else if (s->w->bits == 4 && zeros == INTEGERS)
    walk(rows, vectors, 4, INTEGERS, s);
  else if (s->w->bits == 4)
    walk(rows, vectors, 4, NUMBERS, s);
  else if (zeros == MIDDLE)
    walk(rows, vectors, 8, MIDDLE, s);
  else if (zeros == INTEGERS)
    walk(rows, vectors, 8, INTEGERS, s);
  else
    walk(rows, vectors, 8, NUMBERS, s);
}

/* Walks over as many of the `columns` as it can at once; returns how many. */
static int64_t walk_columns(int64_t rows, int64_t columns, const block_walk* s) {
  if (rows == 1 && columns > (WIDTH_OF_BLOCKS - 1) * VL) {
    walk_of(1, WIDTH_OF_BLOCKS, s);
    return WIDTH_OF_BLOCKS * VL;
  }
  switch (rows) {
    case 1: walk_of(1, 1, s); break;
    case 2: walk_of(2, 1, s); break;
    case 3: walk_of(3, 1, s); break;
    default: walk_of(4, 1, s);
  }
  return VL;
}

typedef struct {
  const ext_matmul_params* p;
  const ext_block_weight* w;
  ext_epilogue e;
  const float* a;
  float* y;
  int64_t parts, part; /* of the columns: how many, of how many columns each but the last */
  int64_t at_once;     /* rows */
  int64_t stretch;     /* columns that all groups of rows take turns at */
#if defined(DIGIT_ROWS)
  const block_digits* digits; /* NULL where zero points are no integers */
  const block_digits* bytes;  /* the single ones, where a may be rounded */
  /* Of a task, the words of columns from `first` on as bytes; NULL where they are read from w. */
  int32_t* words;
  int64_t first;
  int64_t tile_quads; /* 0: bytes are multiplied in vectors, else see block_tiles.h */
#endif
} block_job;

/* Columns of t from j on, as many as can be had at once, whose number is returned.  `row` is the
 * first row of all. */
static int64_t sums_of(const block_job* job, int64_t row, int64_t rows, int64_t columns,
                       const block_walk* s) {
#if defined(DIGIT_ROWS)
  if (job->bytes) {
    byte_walk b = {job->w, job->bytes, row, s->k, s->j, .t = s->t, .width = s->width};
    b.panel = job->words ? 2 * words_of(4, s->k) : words_of(job->w->bits, s->k);
    b.words = job->words ? job->words + (s->j - job->first) / EXT_PANEL * b.panel
                         : (const int32_t*)job->w->values + s->j / EXT_PANEL * b.panel;
    b.words += s->j % EXT_PANEL;
#if defined(EXT_TILES)
    if (job->tile_quads) return tile_columns(rows, columns, &b);
#endif
    return byte_columns(rows, columns, &b);
  }
  if (job->digits) {
    digit_walk d = {job->w, job->digits, row, s->k, s->j, s->t, s->width};
    return digit_columns(rows, columns, &d);
  }
#endif
  (void)job;
  (void)row;
  return walk_columns(rows, columns, s);
}

/* Rows [row, row + rows) of all, whose operands are given, columns [begin, end): of one row
 * STRETCH at most, of more WIDEST * VL. */
static void few_rows(const block_job* job, const float* a, int64_t a_row, const float* residual,
                     float* y, int64_t row, int64_t rows, int64_t begin, int64_t end) {
  _Alignas(EXT_ALIGN) float t[MOST_SUMS];
  block_walk s = {.w = job->w, .a = a, .a_row = a_row, .k = job->p->k, .j = begin, .t = t};
  s.width = rows == 1 ? STRETCH : WIDEST * VL;
  while (s.j < end) {
    const int64_t columns = sums_of(job, row, rows, end - s.j, &s);
    s.j += columns;
    s.t += columns;
  }
  const float* bias = job->e.bias;
  for (int64_t r = 0; bias && r < rows; r++)
    for (int64_t c = 0; c < end - begin; c++) t[r * s.width + c] += bias[begin + c];
  EXT_NAME(ext_finish_tile)
  (&job->e, rows, end - begin, t, s.width, residual ? residual + begin : NULL,
   job->e.residual_stride, y + begin, job->p->y_row);
}

EXT_INLINE int has_digits(const block_job* job) {
#if defined(DIGIT_ROWS)
  return job->digits || job->bytes;
#else
  (void)job;
  return 0;
#endif
}

/* How many groups of rows take turns at columns: those that half of L2 holds. */
static int64_t groups_at_once(const block_job* job, int64_t groups) {
#if defined(DIGIT_ROWS)
  if (job->bytes) {
    const int64_t group = i64_max(1, job->at_once * job->bytes->padded);
    return i64_max(1, i64_min(groups, ext_cache_sizes()->l2 / 2 / group));
  }
#endif
  (void)job;
  return groups;
}

#if defined(DIGIT_ROWS)
/* Fetches part g of the words of columns [j, end) into L2, while others are computed. */
static void fetch_part(const block_job* job, int64_t j, int64_t end, int64_t g, int64_t parts) {
  enum { LINE_WORDS = 16 };
  const int64_t panel = words_of(job->w->bits, job->p->k);
  const int64_t lines = ceil_div(end - j, EXT_PANEL) * panel / LINE_WORDS;
  const uint32_t* words = job->w->values + j / EXT_PANEL * panel;
  for (int64_t i = g * lines / parts; i < (g + 1) * lines / parts; i++)
    __builtin_prefetch(words + i * LINE_WORDS, 0, 2);
}
#endif

/* Readies columns [j, end) for several rows. */
static void ready_columns(block_job* job, int64_t j, int64_t end) {
#if defined(DIGIT_ROWS)
  if (job->words)
    bytes_of_fours(job->w, job->p->k, j / EXT_PANEL, ceil_div(end - j, EXT_PANEL), job->words);
  job->first = j;
#else
  (void)job;
  (void)j;
  (void)end;
#endif
}

/* An item's operands, and its number. */
typedef struct {
  const float *a, *residual;
  float* y;
  int64_t a_row, number;
} block_item;

/* Columns [begin, end) of all rows of an item. */
static void item_columns(block_job* job, const block_item* item, int64_t begin, int64_t end) {
  const int64_t m = job->p->m, groups = ceil_div(m, job->at_once);
  const int64_t at_once = groups_at_once(job, groups);
  for (int64_t first = 0; first < groups; first += at_once) {
    const int64_t past = i64_min(groups, first + at_once);
    for (int64_t j = begin, next; j < end; j = next) {
      next = i64_min(end, j + job->stretch);
      ready_columns(job, j, next);
      for (int64_t g = first; g < past; g++) { /* later ones find the columns in cache */
        const int64_t i = g * m / groups, rows = (g + 1) * m / groups - i;
#if defined(DIGIT_ROWS)
        if (job->bytes && m > 1)
          fetch_part(job, next, i64_min(end, next + job->stretch), g - first, past - first);
#endif
        few_rows(job, item->a + i * item->a_row, item->a_row,
                 item->residual ? item->residual + i * job->e.residual_stride : NULL,
                 item->y + i * job->p->y_row, item->number * m + i, rows, j, next);
      }
    }
  }
}

/* The rows of an item side by side, padded with zeros to whole words. */
static void make_dense(const ext_matmul_params* p, const float* a, int64_t padded, float* dense) {
  for (int64_t r = 0; r < p->m; r++)
    for (int64_t q = 0; q < padded; q++)
      dense[r * padded + q] = q < p->k ? a[r * p->a_row + q * p->a_col] : 0.0f;
}

/* Memory of a task: rows that are dense, or columns of bytes.  What it is for is NULL where it is
 * not needed. */
static int task_memory(block_job* job, int64_t padded, float** dense) {
  const ext_matmul_params* p = job->p;
  *dense = NULL;
#if defined(DIGIT_ROWS)
  if (job->bytes && p->m > 1 && job->w->bits == 4) {
    const int64_t words = ceil_div(job->stretch, EXT_PANEL) * 2 * words_of(4, p->k);
    job->words = ext_workspace_alloc((size_t)words * sizeof(int32_t));
    return job->words ? EXT_OK : EXT_ERR_MEMORY;
  }
#endif
  if (has_digits(job) || (padded == p->k && p->a_col == 1)) return EXT_OK;
  *dense = ext_workspace_alloc((size_t)(p->m * padded) * sizeof(float));
  return *dense ? EXT_OK : EXT_ERR_MEMORY;
}

/* Tasks [begin, end): (batch item, part of the columns). */
static int few_tasks(void* context, int64_t begin, int64_t end) {
  block_job job = *(const block_job*)context;
  const ext_matmul_params* p = job.p;
  const int64_t step = 32 / job.w->bits, padded = ceil_div(p->k, step) * step;
  float* dense;
  int status = task_memory(&job, padded, &dense);
  if (status) return status;
#if defined(EXT_TILES)
  if (job.tile_quads) tile_begin_quads(job.tile_quads);
#endif
  for (int64_t task = begin; task < end; task++) {
    block_item item = {job.a, job.e.residual, job.y, p->a_row, task / job.parts};
    int64_t rest = item.number, j = task % job.parts * job.part;
    for (int d = p->batch_ndim - 1; d >= 0; d--) {
      int64_t i = rest % p->batch[d];
      rest /= p->batch[d];
      item.a += i * p->a_batch[d];
      item.y += i * p->y_batch[d];
      if (item.residual) item.residual += i * p->residual_batch[d];
    }
    if (dense) {
      make_dense(p, item.a, padded, dense);
      item.a = dense;
      item.a_row = padded;
    }
    item_columns(&job, &item, j, i64_min(p->n, j + job.part));
  }
#if defined(EXT_TILES)
  if (job.tile_quads) tile_end();
#endif
#if defined(DIGIT_ROWS)
  if (job.words) ext_workspace_free(job.words);
#endif
  ext_workspace_free(dense);
  return EXT_OK;
}

static int run_few(block_job* job, int64_t batches) {
  const ext_matmul_params* p = job->p;
  const int64_t unit = WIDEST * VL, units = ceil_div(p->n, unit);
  int64_t bytes = i64_max(1, 4 * ceil_div(p->n, EXT_PANEL) * words_of(job->w->bits, p->k));
#if defined(DIGIT_ROWS)
  if (job->bytes) bytes *= ceil_div(p->m, ROWS_PER_READ);
#endif
  int alone = batches * bytes < 2 * TASK_BYTES;
  int64_t wanted = alone ? 1 : ceil_div(TASKS_PER_THREAD * ext_num_threads(), batches);
  int64_t parts = i64_max(1, i64_min(i64_min(wanted, bytes / TASK_BYTES), units));
  job->part = ceil_div(units, parts) * unit;
  job->parts = ceil_div(p->n, job->part);
  int64_t tasks = batches * job->parts;
  int64_t grain = alone ? tasks : i64_max(1, TASK_BYTES * job->parts / bytes);
  return ext_parallel_products(tasks, grain, few_tasks, job);
}

#if defined(DIGIT_ROWS)
/* With digits of each number of a, single ones where `slots` is 1. */
static int run_digits(block_job* job, int64_t batches, int slots) {
  block_digits digits;
  int status = make_digits(job->p, job->w, job->a, batches, slots, &digits);
  if (status == EXT_ERR_MEMORY) return status;
  if (!status) {
    *(slots == 1 ? &job->bytes : &job->digits) = &digits;
    status = run_few(job, batches);
  }
  ext_workspace_free(digits.memory);
  return status;
}
#endif

int EXT_NAME(ext_matmul_block_few)(const ext_matmul_params* p, const ext_block_weight* w,
                                   const float* a, const ext_epilogue* e, float* y, int64_t batches,
                                   int rounded) {
  block_job job = {.p = p, .w = w, .e = e ? *e : (ext_epilogue){0}, .a = a, .y = y};
  job.at_once = AT_ONCE;
  job.stretch = p->m == 1 ? STRETCH : WIDEST * VL;
#if defined(DIGIT_ROWS)
  if (rounded) {
    job.at_once = BYTE_ROWS;
    if (p->m > 1) job.stretch = BYTE_VECTORS * VL;
#if defined(EXT_TILES)
    if (p->m >= LEAST_TILE_ROWS) job.tile_quads = tile_quads(w->block, p->k);
    if (job.tile_quads) {
      job.at_once = BLOCK_ROWS;
      job.stretch = BLOCK_COLUMNS;
    }
#endif
    return run_digits(&job, batches, 1);
  }
  if (zeros_of(w) != NUMBERS) {
    job.at_once = DIGIT_ROWS;
    return run_digits(&job, batches, SLOTS);
  }
#else
  if (rounded) return EXT_UNFIT;
#endif
  return run_few(&job, batches);
}

EXT_DISPATCH(ext_matmul_block_few,
             (const ext_matmul_params* p, const ext_block_weight* w, const float* a,
              const ext_epilogue* e, float* y, int64_t batches, int rounded),
             (p, w, a, e, y, batches, rounded))
