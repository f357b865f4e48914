/*
 * y[b][i][j] = epilogue(sum_p a[b][i][p] w[p][j]) for a w of 4 or 8 bits (ext_block_weight), over
 * up to 4 batch axes of a.
 *
 * Few rows take as long as reading w does: they walk down a few panels side by side, and integers
 * become floats in registers.  What a block sums up is scaled once.  For more rows, tiles of w are
 * written out as floats, which the microkernel of gemm.c reads from L2.
 */
#include "activation.h"
#include "gemm.h"

enum {
  FEW_ROWS = 8, /* beyond, gemm.c is faster */
  AT_ONCE = 4,  /* rows of a walk */
  PER_PANEL = EXT_PANEL / VL,
  WIDEST = WIDTH_OF_BLOCKS > PER_PANEL ? WIDTH_OF_BLOCKS : PER_PANEL
};

/* Bytes of w that one task reads at least: some ten microseconds. */
static const int64_t TASK_BYTES = 1 << 17;
enum { TASKS_PER_THREAD = 4 };

EXT_INLINE int64_t blocks_of(const ext_block_weight* w, int64_t k) {
  return ceil_div(k, w->block);
}
/* Words of `rows` rows of a panel. */
EXT_INLINE int64_t words_of(const int bits, int64_t rows) {
  return ceil_div(rows, 32 / bits) * EXT_PANEL;
}

/* ------------------------------------------------------------------ integers to floats
 *
 * A field of f bits that begins at bit b of the mantissa, below the exponent of 2^(23 - b), makes
 * the number 2^(23 - b) + q; from it, 2^(23 - b) + zero is taken off.  Both steps are exact where
 * zero is an integer.  The mantissa has room for the lower half of a word; the upper half is moved
 * there. */

enum { HALF = 16, MOST_FIELDS = HALF / 4 }; /* bits, and fields, of half a word */

EXT_INLINE vi field_mask(const int bits, const int f) {
  return vi_set1(((1 << bits) - 1) << bits * f);
}
/* 2^(23 - bits f) */
EXT_INLINE vi field_base(const int bits, const int f) {
  return vi_set1((127 + 23 - bits * f) << 23);
}
EXT_INLINE vf field(const int bits, const int f, vi half) {
  return (vf)((half & field_mask(bits, f)) | field_base(bits, f));
}

/* How zero points are given: none, one for all; integers; any numbers. */
typedef enum { MIDDLE, INTEGERS, NUMBERS } zero_kind;

EXT_INLINE zero_kind zeros_of(const ext_block_weight* w) {
  return !w->zero ? MIDDLE : w->zero_dtype == EXT_UINT8 ? INTEGERS : NUMBERS;
}
/* Zero points of VL columns, from that at `place` on; those of NUMBERS. */
EXT_INLINE vf zeros_at(const int bits, const zero_kind zeros, const ext_block_weight* w,
                       int64_t place) {
  if (zeros == MIDDLE) return vf_set1((float)(1 << (bits - 1)));
  if (zeros == INTEGERS) return vi_to_vf(vi_load_u8((const uint8_t*)w->zero + place));
  return vf_load((const float*)w->zero + place);
}
/* What is taken off field f of integers with these zero points. */
EXT_INLINE vf base_of(const int bits, const zero_kind zeros, const int f, vf zero) {
  vf base = (vf)field_base(bits, f);
  return zeros == NUMBERS ? base : base + zero;
}
EXT_INLINE vf less_zero(const int bits, const zero_kind zeros, const int f, vi half, vf base,
                        vf zero) {
  vf q = field(bits, f, half) - base;
  return zeros == NUMBERS ? q - zero : q;
}
EXT_INLINE vi upper_half(vi word) {
  return (vi)((vu)word >> HALF);
}

/* ------------------------------------------------------------------ few rows */

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
    const int f = i % (HALF / bits), upper = i >= HALF / bits;
    vf x[AT_ONCE];
    EXT_UNROLL
    for (int r = 0; r < rows; r++) x[r] = vf_set1(s->a[r * s->a_row + p + i]);
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
} block_job;

/* Rows [i, i + rows) of y, columns [begin, end), of operands that stand at a batch item. */
static void few_rows(const block_job* job, const float* a, int64_t a_row, const float* residual,
                     float* y, int64_t rows, int64_t begin, int64_t end) {
  _Alignas(EXT_ALIGN) float t[AT_ONCE * WIDEST * VL];
  block_walk s = {.w = job->w, .a = a, .a_row = a_row, .k = job->p->k, .t = t};
  s.width = WIDEST * VL;
  for (int64_t columns; begin < end; begin += columns) {
    s.j = begin;
    columns = walk_columns(rows, end - begin, &s);
    int64_t count = i64_min(columns, end - begin);
    const float* bias = job->e.bias;
    for (int64_t r = 0; bias && r < rows; r++)
      for (int64_t c = 0; c < count; c++) t[r * s.width + c] += bias[begin + c];
    EXT_NAME(ext_finish_tile)
    (&job->e, rows, count, t, s.width, residual ? residual + begin : NULL, job->e.residual_stride,
     y + begin, job->p->y_row);
  }
}

/* Tasks [begin, end): (batch item, part of the columns). */
static int few_tasks(void* context, int64_t begin, int64_t end) {
  const block_job* job = context;
  const ext_matmul_params* p = job->p;
  const int64_t step = 32 / job->w->bits, padded = ceil_div(p->k, step) * step;
  float* dense = NULL;
  if (padded != p->k || p->a_col != 1) {
    dense = ext_workspace_alloc((size_t)(p->m * padded) * sizeof(float));
    if (!dense) return EXT_ERR_MEMORY;
  }
  for (int64_t task = begin; task < end; task++) {
    const float *a = job->a, *residual = job->e.residual;
    float* y = job->y;
    int64_t rest = task / job->parts, j = task % job->parts * job->part, a_row = p->a_row;
    for (int d = p->batch_ndim - 1; d >= 0; d--) {
      int64_t i = rest % p->batch[d];
      rest /= p->batch[d];
      a += i * p->a_batch[d];
      y += i * p->y_batch[d];
      if (residual) residual += i * p->residual_batch[d];
    }
    if (dense) {
      for (int64_t r = 0; r < p->m; r++)
        for (int64_t q = 0; q < padded; q++)
          dense[r * padded + q] = q < p->k ? a[r * p->a_row + q * p->a_col] : 0.0f;
      a = dense;
      a_row = padded;
    }
    int64_t groups = ceil_div(p->m, AT_ONCE), stop = i64_min(p->n, j + job->part);
    for (int64_t next; j < stop; j = next) {
      next = i64_min(stop, j + WIDEST * VL); /* further groups of rows find these in cache */
      for (int64_t g = 0; g < groups; g++) {
        int64_t i = g * p->m / groups, rows = (g + 1) * p->m / groups - i;
        few_rows(job, a + i * a_row, a_row, residual ? residual + i * job->e.residual_stride : NULL,
                 y + i * p->y_row, rows, j, next);
      }
    }
  }
  ext_workspace_free(dense);
  return EXT_OK;
}

/* Whether no number of a, times an integer, is infinite or none.  Else a block is not summed before
 * it is scaled. */
static int is_ordinary(const ext_matmul_params* p, const float* a, int64_t batches) {
  const vi sign = vi_set1(INT32_MAX), most = vi_set1((127 + 100) << 23);
  vi large = vi_set1(0);
  for (int64_t b = 0; b < batches; b++) {
    const float* item = a;
    int64_t rest = b;
    for (int d = p->batch_ndim - 1; d >= 0; d--) {
      item += rest % p->batch[d] * p->a_batch[d];
      rest /= p->batch[d];
    }
    for (int64_t r = 0; r < p->m; r++) {
      const float* row = item + r * p->a_row;
      int64_t q = 0;
      if (p->a_col == 1)
        for (; q + VL <= p->k; q += VL) large |= ((vi)vf_load(row + q) & sign) > most;
      for (; q < p->k; q++) large |= ((vi)vf_set1(row[q * p->a_col]) & sign) > most;
    }
  }
  int32_t lanes[VL], found = 0;
  vi_store(lanes, large);
  for (int i = 0; i < VL; i++) found |= lanes[i];
  return !found;
}

static int run_few(const ext_matmul_params* p, const ext_block_weight* w, const float* a,
                   const ext_epilogue* e, float* y, int64_t batches) {
  block_job job = {.p = p, .w = w, .e = e ? *e : (ext_epilogue){0}, .a = a, .y = y};
  const int64_t unit = WIDEST * VL, units = ceil_div(p->n, unit);
  const int64_t bytes = i64_max(1, 4 * ceil_div(p->n, EXT_PANEL) * words_of(w->bits, p->k));
  int alone = batches * bytes < 2 * TASK_BYTES;
  int64_t wanted = alone ? 1 : ceil_div(TASKS_PER_THREAD * ext_num_threads(), batches);
  int64_t parts = i64_max(1, i64_min(i64_min(wanted, bytes / TASK_BYTES), units));
  job.part = ceil_div(units, parts) * unit;
  job.parts = ceil_div(p->n, job.part);
  int64_t tasks = batches * job.parts;
  int64_t grain = alone ? tasks : i64_max(1, TASK_BYTES * job.parts / bytes);
  return ext_parallel_for(tasks, grain, few_tasks, &job);
}

/* ------------------------------------------------------------------ many rows */

/* dst[r] = row r of those that words at `at` hold. */
EXT_INLINE void unpack_words(const int bits, const zero_kind zeros, const int32_t* at,
                             const vf* scale, const block_zeros* z, float* dst) {
  EXT_UNROLL
  for (int v = 0; v < PER_PANEL; v++) {
    vi word = vi_load(at + v * VL);
    EXT_UNROLL
    for (int i = 0; i < 32 / bits; i++) {
      const int f = i % (HALF / bits);
      if (i == HALF / bits) word = upper_half(word);
      vf q = less_zero(bits, zeros, f, word, z->base[f][v], z->zero[v]);
      vf_store(dst + i * EXT_PANEL + v * VL, q * scale[v]);
    }
  }
}

EXT_INLINE void unpack_rows(const int bits, const zero_kind zeros, const ext_block_weight* w,
                            int64_t k, int64_t panel, int64_t k0, int64_t kc, float* dst) {
  const int64_t step = 32 / bits, stop = k0 + kc;
  const int32_t* at = (const int32_t*)w->values + panel * words_of(bits, k) + words_of(bits, k0);
  const int64_t first = panel * blocks_of(w, k) * EXT_PANEL;
  for (int64_t p = k0; p < stop;) {
    const int64_t block = p / w->block, place = first + block * EXT_PANEL;
    const int64_t end = i64_min(stop, (block + 1) * w->block);
    vf scale[PER_PANEL];
    block_zeros z;
    EXT_UNROLL
    for (int v = 0; v < PER_PANEL; v++) {
      scale[v] = vf_load(w->scale + place + v * VL);
      z.zero[v] = zeros_at(bits, zeros, w, place + v * VL);
      EXT_UNROLL
      for (int f = 0; f < HALF / bits; f++) z.base[f][v] = base_of(bits, zeros, f, z.zero[v]);
    }
    for (; p < end; p += step, at += EXT_PANEL, dst += step * EXT_PANEL)
      unpack_words(bits, zeros, at, scale, &z, dst);
  }
}

/* Rows [k0, k0 + kc) of a panel; k0 is a multiple of EXT_UNPACK_STEP. */
static void unpack(const void* weight, int64_t k, int64_t panel, int64_t k0, int64_t kc,
                   float* dst) {
  const ext_block_weight* w = weight;
  const zero_kind zeros = zeros_of(w);
  if (w->bits == 4 && zeros == NUMBERS)
    unpack_rows(4, NUMBERS, w, k, panel, k0, kc, dst);
  else if (w->bits == 4)
    unpack_rows(4, zeros, w, k, panel, k0, kc, dst);
  else if (zeros == NUMBERS)
    unpack_rows(8, NUMBERS, w, k, panel, k0, kc, dst);
  else
    unpack_rows(8, zeros, w, k, panel, k0, kc, dst);
}

static int run_many(const ext_matmul_params* p, const ext_block_weight* w, const float* a,
                    const ext_epilogue* e, float* y) {
  ext_matmul_source s;
  ext_gemm g;
  int status = EXT_NAME(ext_matmul_gemm)(p, &s, a, e, y, &g);
  if (status) return status;
  g.unpack = unpack;
  g.weight = w;
  return EXT_NAME(ext_gemm_run)(&g);
}

int EXT_NAME(ext_matmul_block)(const ext_matmul_params* p, const ext_block_weight* w,
                               const float* a, const ext_epilogue* e, float* y) {
  if (p->batch_ndim < 0 || p->batch_ndim > 4) return EXT_ERR_ARGUMENT;
  for (int d = 0; d < p->batch_ndim; d++)
    if (p->b_batch[d]) return EXT_ERR_ARGUMENT;
  if ((w->bits != 4 && w->bits != 8) || w->block < 1) return EXT_ERR_ARGUMENT;
  if (w->block % (32 / w->bits) && w->block < p->k) return EXT_ERR_ARGUMENT;
  if (w->zero && w->zero_dtype != EXT_UINT8 && w->zero_dtype != EXT_FLOAT32)
    return EXT_ERR_ARGUMENT;
  int64_t batches = 1;
  for (int d = 0; d < p->batch_ndim; d++) batches *= p->batch[d];
  if (p->m <= 0 || p->n <= 0 || batches <= 0) return EXT_OK;
  if (p->m <= FEW_ROWS && is_ordinary(p, a, batches)) return run_few(p, w, a, e, y, batches);
  return run_many(p, w, a, e, y);
}

EXT_DISPATCH(ext_matmul_block,
             (const ext_matmul_params* p, const ext_block_weight* w, const float* a,
              const ext_epilogue* e, float* y),
             (p, w, a, e, y))
