/*
 * bgemm_loops.h - the loops of bgemm.c and bgemm_x3.c.
 *
 * y[i][j] = epilogue(sum_p A[i][p] B[p][j]) for A [m][k] of bf16 or fp32, B in panels
 * [ceil(n / 16)][ceil(k / 2)][16][2] of bf16; or with EXT_PARTS 2 for A of fp32, B in panels
 * [ceil(n / 16)][ceil(k / 2)][2][16][2] of the higher and the lower parts of two rows.
 *
 * The loops are those of gemm.c.  A block of A is packed as the row multiplies it (simd/bf16.h),
 * and read in place where it is that already.  Sums between blocks of K are fp32 in memory of their
 * own, as y may be bf16.  Tiles read A and B at the pace of L2 but multiply at that of L1, so that
 * a block of K has parts, of which B's is found in L1 again; their sums are those of one tile of
 * columns, and seldom leave L2.
 */
#ifndef EXT_BGEMM_LOOPS_H_
#define EXT_BGEMM_LOOPS_H_

#include "activation.h"
#include "bgemm.h"
#include "bgemm_tile.h"
#include "product_split.h"
#include "subnormals.h"
#if defined(EXT_TILES)
#include "bgemm_tiles.h"
#else
#include "bgemm_vectors.h"
#endif

/* As in gemm.c, some ten microseconds of one core. */
static const int64_t TASK_MACS = 800000;
/* A product of fewer rows takes as long as reading B. */
enum { LEAST_ROWS = 8 };
/* With so many columns, rows of A are copied that lie unfavourably. */
enum { BPACKED_COLUMNS = 512 };
/* Sums between blocks of K at most, 2 MB. */
enum { SUMS_FLOATS = 1 << 19 };
/* Columns that a task begins at are a multiple of it. */
enum { COLUMN_STEP = BWIDE_N > EXT_PANEL ? BWIDE_N : EXT_PANEL };
enum { TILE_FLOATS = BR * BTILE_N > BFEW* BWIDE_N ? BR * BTILE_N : BFEW * BWIDE_N };

/* Micropanels divide m evenly: no short last one.  Those whose rows are read by many are whole, as
 * they cost the same.  Micropanel i begins at this row. */
EXT_INLINE int64_t micropanels(const ext_bgemm* g) {
  return ceil_div(g->m, BR);
}
EXT_INLINE int64_t first_row(const ext_bgemm* g, int64_t i) {
  return BROWS_STEP > 1 ? i64_min(i * BR, g->m) : i * g->m / micropanels(g);
}

/* Whether rows of A can be multiplied where they lie: bf16 in whole steps, which many rows must
 * find in L1 again but where a step reads a whole line. */
static int in_place(const ext_bgemm* g) {
  int64_t floats = g->a_row / 2;
  if (g->pack || g->prologue || sizeof(ba) != 2 || g->s.x != EXT_BFLOAT16) return 0;
  if (g->k % BK_STEP || g->m % BROWS_STEP) return 0;
  if (BROWS_STEP == 1) return BR <= ext_rows_in_place(floats < 0 ? -floats : floats);
  /* Lines that share few sets of L1 cost a tenth of many columns' products, and a copy less. */
  return floats * 4 % (2 * EXT_ALIGN) == EXT_ALIGN || g->n < BPACKED_COLUMNS;
}

/* Micropanels in a block of A that is kc wide: with it, this tile of B and the next take half of
 * L2 (A alone, where B's share is a part of K), but fewer than three would read B too often. */
static int64_t block_micropanels(int64_t kc) {
  int64_t a = BA_PARTS * BR * kc * (int64_t)sizeof(ba), b = EXT_PARTS * BTILE_N * kc * 2;
  int64_t l2 = ext_cache_sizes()->l2, room = l2 / 2 - (BSHARED ? 0 : 2 * b);
  int64_t fit = room / i64_max(1, a);
  return i64_max(BMC_LEAST, i64_min(fit, BMC_MOST));
}

/* Parts of a block of K for so many micropanels and columns. */
EXT_INLINE int64_t k_parts(int64_t kc, int64_t count, int64_t columns) {
  if (count < BSHARED) return 1;
  const int is_long = count >= BLONG && columns >= BLONG_COLUMNS;
  return i64_max(1, ceil_div(kc, is_long ? 2 * BK_PART : BK_PART));
}

/* Columns of a block of K's for so many micropanels: the fp32 sums between blocks of K wait in
 * memory, and stay close. */
static int64_t sums_columns(int64_t count) {
  return i64_max(1, SUMS_FLOATS / (count * BR) / COLUMN_STEP) * COLUMN_STEP;
}

/* Blocks of K for so many micropanels.  With tiles it takes longer to bring B from memory than to
 * multiply it by a few micropanels, so that shorter blocks, of which more micropanels fit L2, pay
 * for bringing sums instead: bytes of both, for each column. */
static int64_t k_blocks(const ext_bgemm* g, int64_t count) {
  /* A lone row is in L1 however long, and each panel is read from end to end. */
  if (g->m <= 1 && BA_PARTS == 1) return 1;
  const int64_t least = i64_max(1, ceil_div(g->k, BKC));
  if (!BSHARED || BA_PARTS > 1) return least;
  int64_t found = least, fewest = INT64_MAX;
  for (int64_t blocks = least; blocks == least || g->k >= blocks * 2 * BK_PART; blocks++) {
    const int64_t kc = ceil_div(ceil_div(g->k, BK_STEP), blocks) * BK_STEP;
    const int64_t passes = ceil_div(count, i64_min(count, block_micropanels(kc)));
    const int64_t sums = 2 * (int64_t)sizeof(float) * (blocks - 1) * count * BR;
    const int64_t bytes = passes * g->k * 2 + sums;
    if (bytes < fewest) {
      fewest = bytes;
      found = blocks;
    }
  }
  return found;
}

/* Elements between packed rows: an odd number of lines, so that rows use different sets of L1, and
 * no more, so that they share pages. */
static int64_t row_stride(int64_t kc) {
  if (BA_PARTS > 1) return BA_STRIDE; /* the second part lies BKC behind the first */
  return (ceil_div(kc * (int64_t)sizeof(ba), EXT_ALIGN) | 1) * EXT_ALIGN / (int64_t)sizeof(ba);
}

typedef struct {
  const ext_bgemm* g;
  ext_epilogue e;
  ext_tail tail;
  int64_t a_offset;
  int64_t k_blocks, k_block; /* whole steps, but for the end of K */
  int64_t k_parts;           /* of a block */
  ba* packed;                /* NULL where A is read in place */
  int64_t stride;            /* between packed rows */
  /* NULL, or sums between parts of K: one tile behind the other, of a column of tiles
   * `partial_step` floats for each of its columns.  0: every column of tiles has the same. */
  float* partial;
  int64_t partial_step;
} bgemm_state;

/* Where sums come from and go to: NULL for the bias, and for y. */
typedef struct {
  float *from, *to;
  int64_t row;
} bgemm_sums;

/* Finishes the sums of a tile, [rows][t->sums_row], whose corner in y is t->y. */
static void finish(const bgemm_state* s, const bgemm_tile* t, int64_t rows, float* sums) {
  _Alignas(EXT_ALIGN) float added[TILE_FLOATS], result[TILE_FLOATS];
  const int64_t columns = t->columns, width = t->sums_row;
  const float* residual = t->residual;
  int64_t residual_row = t->residual_row;
  const int narrow = t->s.y == EXT_BFLOAT16;
  if (narrow && !residual && s->e.before.kind == EXT_IDENTITY && has_bf16_form(s->e.after.kind)) {
    EXT_NAME(ext_finish_tile_bf16)(s->e.after.kind, rows, columns, sums, width, t->y, t->y_row);
    return;
  }
  if (residual && t->s.residual == EXT_BFLOAT16) {
    const uint16_t* stored = t->residual;
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < columns; j += VL)
        vf_store(added + i * width + j,
                 vbf_widen(vbf_load_n(stored + i * residual_row + j, clamp_lanes(columns - j))));
    residual = added;
    residual_row = width;
  }
  EXT_NAME(ext_finish_tile)
  (&s->e, rows, columns, sums, width, residual, residual_row, narrow ? result : t->y,
   narrow ? width : t->y_row);
  if (!narrow) return;
  uint16_t* y = t->y;
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j += VL)
      vbf_store_n(y + i * t->y_row + j, vbf_round(vf_load(result + i * width + j)),
                  clamp_lanes(columns - j));
}

/* Runs one tile; i is its first row in y, j its first column. */
static void run_tile(const bgemm_state* s, bgemm_tile* t, int64_t rows, int64_t i, int64_t j,
                     int64_t vectors, const bgemm_sums* sums) {
  const ext_bgemm* g = s->g;
  bgemm_tile_function run = btile_function(rows, vectors);
  t->rows = rows;
  t->bias = (!sums->from || t->before) && s->e.bias ? s->e.bias + j : NULL;
  t->c = sums->from;
  t->sums = sums->to;
  t->c_row = t->sums_row = sums->row;
  t->y = (void*)stored_at(g->y, g->s.y, i * g->y_row + j);
  t->residual = NULL;
  if (t->sums) {
    run(t);
    return;
  }
  if (s->e.residual)
    t->residual = stored_at(s->e.residual, g->s.residual, i * s->e.residual_stride + j);
  if (s->tail.clamp && (BTILE_MASKED || t->columns == vectors * VL)) {
    run(t);
    return;
  }
  _Alignas(EXT_ALIGN) float own[TILE_FLOATS];
  t->sums = own;
  t->sums_row = vectors * VL;
  run(t);
  finish(s, t, rows, own);
}

/* x[c] * scale[c] + shift[c], VL of them or the first `lanes` where `whole`, a constant, is 0. */
EXT_INLINE vf scaled(const int whole, const ext_dtype dtype, const void* x, const float* scale,
                     const float* shift, int64_t c, int64_t lanes) {
  vf v = btile_load(whole, dtype, stored_at(x, dtype, c), lanes);
  vf s = !scale ? vf_set1(1.0f) : whole ? vf_load(scale + c) : vf_load_n(scale + c, lanes);
  vf t = !shift ? vf_zero() : whole ? vf_load(shift + c) : vf_load_n(shift + c, lanes);
  return vf_fma(v, s, t);
}

/* dst[c] = x[c] * scale[c] + shift[c] within [low, high], c < n, with x of `dtype`, a constant. */
EXT_INLINE void scale_row(const ext_dtype dtype, int64_t n, const void* x, const float* scale,
                          const float* shift, float low, float high, ba* dst) {
  const vf least = vf_set1(low), most = vf_set1(high);
  int64_t c = 0;
  for (; c + VL <= n; c += VL) {
    vf v = scaled(1, dtype, x, scale, shift, c, VL);
    ba_store_n(dst + c, vf_min(most, vf_max(least, v)), VL);
  }
  if (c == n) return;
  vf v = scaled(0, dtype, x, scale, shift, c, n - c);
  ba_store_n(dst + c, vf_min(most, vf_max(least, v)), n - c);
}

/* Takes apart what a channel may lack, so that no loop asks for it. */
EXT_INLINE void clamp_row(const ext_dtype dtype, int64_t n, const void* x, const float* scale,
                          const float* shift, float low, float high, ba* dst) {
  if (scale && shift)
    scale_row(dtype, n, x, scale, shift, low, high, dst);
  else if (scale)
    scale_row(dtype, n, x, scale, NULL, low, high, dst);
  else
    scale_row(dtype, n, x, NULL, shift, low, high, dst);
}

/* dst = activation(x * scale + shift) of a row of A, whose first column is channel k0. */
static void apply_prologue(const ext_bgemm* g, int64_t row, const void* x, int64_t k0, int64_t kc,
                           ba* dst) {
  enum { CHUNK = 256 };
  const ext_prologue* p = g->prologue;
  const float* shift = p->shift ? p->shift + k0 : NULL;
  const float* scale = p->scale ? p->scale + row / g->image_rows * p->scale_stride + k0 : NULL;
  float low, high;
  if (ext_clamp_bounds(&p->activation, &low, &high)) {
    if (g->s.x == EXT_BFLOAT16)
      clamp_row(EXT_BFLOAT16, kc, x, scale, shift, low, high, dst);
    else
      clamp_row(EXT_FLOAT32, kc, x, scale, shift, low, high, dst);
    return;
  }
  float values[CHUNK];
  for (int64_t from = 0; from < kc; from += CHUNK) {
    const int64_t count = i64_min(CHUNK, kc - from);
    for (int64_t c = 0; c < count; c += VL)
      vf_store(values + c, scaled(0, g->s.x, x, scale, shift, from + c, i64_min(VL, count - c)));
    EXT_NAME(ext_activate)(&p->activation, count, values, values);
    ba_run_of_float(dst + from, values, count);
  }
}

/* Packs rows of the block of A, by the caller's function or from a plain matrix. */
static void pack_rows(const bgemm_state* s, int64_t row, int64_t rows, int64_t k0, int64_t kc,
                      ba* dst) {
  const ext_bgemm* g = s->g;
  if (g->pack) g->pack(g->source, s->a_offset, row, rows, k0, kc, dst, s->stride);
  for (int64_t r = 0; r < rows; r++, dst += s->stride) {
    const void* a = stored_at(g->a, g->s.x, s->a_offset + (row + r) * g->a_row + k0);
    if (g->prologue)
      apply_prologue(g, row + r, a, k0, kc, dst);
    else if (!g->pack)
      ba_run(g->s.x, dst, a, kc);
    ba_zeros(dst + kc, ceil_div(kc, BK_STEP) * BK_STEP - kc);
  }
}

/* Vectors of columns of the next tile, of which so many columns are left: a vector more would lie
 * past the last panel. */
EXT_INLINE int64_t tile_vectors(const bgemm_state* s, int64_t columns) {
  if (s->g->m <= BLONE && columns > EXT_PANEL - VL) return EXT_PANEL / VL;
  if (s->g->m <= BFEW && columns > (BWIDE - 1) * VL) return BWIDE;
  return columns > (BN - BHALF) * VL ? BN : BHALF;
}

/* Micropanels of a block of A, one block of K. */
typedef struct {
  int64_t count, row[BMC_MOST + 1]; /* the first row of each */
  const ba* a;                      /* of the first */
  int64_t k0, kc;                   /* of K */
  int first, last;                  /* whether it is the first block of K, and the last */
} bgemm_block;

/* A column of tiles.  `before` is the number of columns before it, `next_panels` how many panels
 * the one behind it has. */
static void run_columns(const bgemm_state* s, const bgemm_block* block, bgemm_tile* t, int64_t j,
                        int64_t vectors, int64_t before, int64_t next_panels) {
  const int64_t steps = ceil_div(block->kc, BK_STEP);
  for (int64_t part = 0; part < s->k_parts; part++) {
    const int64_t k0 = part * steps / s->k_parts * BK_STEP;
    const int64_t past = i64_min((part + 1) * steps / s->k_parts * BK_STEP, block->kc);
    const int first = block->first && part == 0, last = block->last && part == s->k_parts - 1;
    const uint16_t* b = s->g->panels + j / EXT_PANEL * t->panel + (block->k0 + k0) / 2 * BPAIR;
    t->b = b + j % EXT_PANEL * 2;
    t->pairs = ceil_div(past - k0, 2);
    t->before = BA_PARTS > 1 && block->first ? k0 : 0;
    t->unfinished = block->first && part + 1 < s->k_parts;
    for (int64_t i = 0; i < block->count; i++) {
      const int64_t row = block->row[i] - block->row[0], width = vectors * VL;
      float* sums = s->partial ? s->partial + before * s->partial_step + i * BR * width : NULL;
      const bgemm_sums between = {first ? NULL : sums, last ? NULL : sums, width};
      t->a = block->a + (s->packed ? i * BR : row) * t->a_row + k0;
      const int64_t next = j + vectors * VL;
      btile_plan_fetch(t, b + (next / EXT_PANEL - j / EXT_PANEL) * t->panel, next_panels, i,
                       block->count);
      run_tile(s, t, block->row[i + 1] - block->row[i], block->row[i], j, vectors, &between);
    }
  }
}

/* One block of A (micropanels [i0, i1), one block of K) times the columns [j0, j1). */
static void run_block(const bgemm_state* s, int64_t k, int64_t i0, int64_t i1, int64_t j0,
                      int64_t j1) {
  const ext_bgemm* g = s->g;
  const int64_t k0 = k * s->k_block, kc = i64_min(s->k_block, g->k - k0);
  bgemm_block block = {.count = i1 - i0, .k0 = k0, .kc = kc};
  block.first = k == 0;
  block.last = k == s->k_blocks - 1;
  int64_t* row = block.row;
  for (int64_t i = 0; i <= block.count; i++) row[i] = first_row(g, i0 + i);
  for (int64_t i = 0; s->packed && i < block.count; i++)
    pack_rows(s, row[i], row[i + 1] - row[i], k0, kc, s->packed + i * BR * s->stride);
  const ba* a = stored_at(g->a, EXT_BFLOAT16, s->a_offset + k0);
  block.a = s->packed ? s->packed : a + row[0] * g->a_row;
  bgemm_tile t = {.panel = ceil_div(g->k, 2) * BPAIR, .low = s->tail.low, .s = g->s};
  t.high = s->tail.high;
  t.has_low = t.low > -__builtin_inff();
  t.has_high = t.high < __builtin_inff();
  t.a_row = s->packed ? s->stride : g->a_row;
  t.residual_row = s->e.residual_stride;
  t.residual_is_factor = s->e.residual_is_factor;
  t.y_row = g->y_row;
  for (int64_t j = j0, vectors; j < j1; j += vectors * VL) {
    vectors = tile_vectors(s, j1 - j);
    t.columns = i64_min(vectors * VL, j1 - j);
    const int64_t left = ceil_div(j1 - j - t.columns, EXT_PANEL);
    run_columns(s, &block, &t, j, vectors, j - j0, left);
  }
}

/* Micropanels [i0, i1) times columns [j0, j1) on the calling thread. */
static int run_range(const ext_bgemm* g, int64_t a_offset, int64_t i0, int64_t i1, int64_t j0,
                     int64_t j1) {
  bgemm_state s = {.g = g, .e = g->epilogue, .a_offset = a_offset};
  const int64_t steps = ceil_div(g->k, BK_STEP), of_block = ceil_div(steps, k_blocks(g, i1 - i0));
  s.k_blocks = i64_max(1, ceil_div(steps, i64_max(1, of_block)));
  s.k_block = of_block * BK_STEP;
  s.tail = ext_plan_tail(&s.e);
  int64_t mc = i64_min(block_micropanels(s.k_block), i1 - i0);
  s.stride = row_stride(s.k_block);
  /* Whole lines first: what follows them is aligned as well. */
  int64_t packed_size = in_place(g) ? 0 : mc * BR * s.stride * (int64_t)sizeof(ba);
  int64_t partial_size = 0;
  const int64_t chunk = s.k_blocks > 1 ? i64_min(sums_columns(mc), j1 - j0) : j1 - j0;
  s.k_parts = k_parts(s.k_block, mc, j1 - j0);
  if (s.k_blocks > 1 || s.k_parts > 1) {
    const int64_t columns = s.k_blocks > 1 ? ceil_div(chunk, BWIDE_N) * BWIDE_N : BTILE_N;
    s.partial_step = s.k_blocks > 1 ? mc * BR : 0;
    partial_size = mc * BR * columns * (int64_t)sizeof(float);
  }
  char* memory = NULL;
  if (packed_size + partial_size > 0) {
    memory = ext_workspace_alloc((size_t)(packed_size + partial_size));
    if (!memory) return EXT_ERR_MEMORY;
  }
  if (packed_size) s.packed = (ba*)memory;
  if (partial_size) s.partial = (float*)(memory + packed_size);
  int64_t blocks = ceil_div(i1 - i0, mc);
  btile_session_begin(micropanels(g) > 1 ? BR : g->m);
  for (int64_t b = 0; b < blocks; b++) {
    const int64_t first = i0 + b * (i1 - i0) / blocks, past = i0 + (b + 1) * (i1 - i0) / blocks;
    for (int64_t j = j0; j < j1; j += chunk)
      for (int64_t k = 0; k < s.k_blocks; k++)
        run_block(&s, k, first, past, j, i64_min(j1, j + chunk));
  }
  btile_session_end();
  ext_workspace_free(memory);
  return EXT_OK;
}

/* Moves the operands of `g` to batch item `index`; returns its offset in A. */
static int64_t select_batch(ext_bgemm* g, int64_t index) {
  int64_t a = 0, y = 0, residual = 0, bias = 0;
  for (int d = g->batch_ndim - 1; d >= 0; d--) {
    int64_t i = index % g->batch[d];
    index /= g->batch[d];
    a += i * g->a_batch[d];
    g->panels += i * g->b_batch[d];
    y += i * g->y_batch[d];
    residual += i * g->residual_batch[d];
    bias += i * g->bias_batch[d];
  }
  ext_epilogue* e = &g->epilogue;
  g->y = (void*)stored_at(g->y, g->s.y, y);
  if (e->residual) e->residual = stored_at(e->residual, g->s.residual, residual);
  if (e->bias) e->bias += bias;
  return a;
}

typedef struct {
  const ext_bgemm* g;
  product_parts parts;
} bgemm_job;

static int bgemm_tasks(void* context, int64_t begin, int64_t end) {
  const bgemm_job* job = context;
  const product_parts parts = job->parts;
  for (int64_t task = begin; task < end; task++) {
    ext_bgemm g = *job->g;
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

int EXT_BGEMM_RUN(const ext_bgemm* g) {
  int64_t batches = 1;
  for (int d = 0; d < g->batch_ndim; d++) batches *= g->batch[d];
  if (g->m <= 0 || g->n <= 0 || batches <= 0) return EXT_OK;
  int64_t macs = i64_max(g->m, LEAST_ROWS) * g->n * i64_max(1, g->k);
  bgemm_job job = {g, {1, 1}};
  if (macs * batches < 2 * TASK_MACS) return ext_products(bgemm_tasks, &job, 0, batches);
  int64_t threads = ext_num_threads();
  if (threads > 1) {
    int64_t wanted = i64_min(ceil_div(TASKS_PER_THREAD * threads, batches), macs / TASK_MACS);
    job.parts = split_product(micropanels(g), ceil_div(g->n, EXT_PANEL), threads, wanted);
  }
  int64_t tasks = batches * job.parts.m * job.parts.n;
  int64_t grain = threads > 1 ? i64_max(1, TASK_MACS * job.parts.m * job.parts.n / macs) : tasks;
  return ext_parallel_products(tasks, grain, bgemm_tasks, &job);
}

#endif /* EXT_BGEMM_LOOPS_H_ */
