/*
 * y[i][j] = epilogue(sum_p A[i][p] B[p][j]) for fp32 A [m][k], B in panels [ceil(n / 16)][k][16],
 * on tiles of bf16: numbers in three parts (gemm_parts.h).
 *
 * What gemm.c does with a range of rows and columns, where the CPU has tiles.  Loops, from outside:
 *   M blocks    micropanels of 32 rows whose parts stay in L2
 *   K blocks    at most K_BLOCK of K
 *   N tiles     two panels of B
 *   K parts     of which B's share stays close while all micropanels pass
 *   micropanels tiles of sums
 * Weights stay fp32 in memory, and take no more room or time to read: B is taken apart anew for
 * each block of A.  While tiles multiply, vectors take apart what comes next: the next K part of B,
 * and while the first tile of columns passes, the next micropanel of A.
 */
#include "gemm.h"

#if defined(EXT_TILES)

#include "activation.h"
#include "gemm_parts.h"
#include "gemm_rows.h"

enum {
  K_BLOCK = 1024, /* at most, a multiple of a step */
  K_PART = 128,   /* of B, 24 KB of parts stay in L1 while those of A pass by */
  B_PART = K_PART / PARTS_K * PARTS_STEP, /* elements of a tile of columns' parts */
  LEAST_MICROPANELS = 2,
  MOST_MICROPANELS = 16,
  LEAST_K = 128
};

typedef struct {
  const ext_gemm* g;
  ext_epilogue e;
  ext_tail tail;
  int64_t a_offset;
  int64_t k_blocks, k_block, steps; /* steps of a block */
  int in_place;
  uint16_t* a;    /* a block of A: [micropanel][step] */
  uint16_t* b[2]; /* a K part of a tile of columns, and the next one */
  float* sums;    /* [tile of columns, of one K block alone][micropanel][32][32] */
  float* rows;    /* fp32 rows of A that are to be taken apart, A_STRIDE apart */
  float* panels;  /* [2][K_PART][EXT_PANEL], where B is unpacked */
  float* edge;    /* the last, short step of K */
} parts_state;

/* A block of A: rows [row, row_end) and a block of K; what comes next of both operands. */
typedef struct {
  int64_t row, row_end, count; /* micropanels */
  int64_t k0, kc, parts;
  int64_t j0, j1;
  parts_split next_a, next_b;
} parts_block;

/* The first step of K part `part`, which may be the one behind the last. */
EXT_INLINE int64_t first_step(const parts_block* block, int64_t part) {
  return part * ceil_div(block->kc, PARTS_K) / block->parts;
}
EXT_INLINE int64_t k_of_part(const parts_block* block, int64_t part, int64_t* k) {
  *k = first_step(block, part) * PARTS_K;
  return i64_min(first_step(block, part + 1) * PARTS_K, block->kc) - *k;
}

/* Takes apart a step that K ends within, from s->edge, after the whole ones of `split`. */
static void split_edge(const parts_state* s, parts_split* split, int64_t row, int64_t tile) {
  parts_split edge = *split;
  edge.from = s->edge;
  edge.row = row;
  edge.tile = tile;
  edge.to += split->quarters / (4 * split->tiles) * PARTS_STEP;
  edge.quarters = 4 * split->tiles;
  split_some(&edge, edge.quarters);
}
/* The same of A's rows, `stride` apart, or of B's panels: `n` numbers of K, then zeros. */
static void split_edge_of_a(parts_state* s, parts_split* split, const float* from, int64_t stride,
                            int64_t n) {
  for (int64_t r = 0; r < split->rows; r++) {
    copy_run(s->edge + r * PARTS_K, from + r * stride, n);
    zero_run(s->edge + r * PARTS_K + n, PARTS_K - n);
  }
  split_edge(s, split, PARTS_K, TILE_ROWS * PARTS_K);
}
static void split_edge_of_b(parts_state* s, parts_split* split, const float* from, int64_t panel,
                            int64_t n) {
  for (int64_t h = 0; h < split->tiles; h++) {
    float* to = s->edge + h * PARTS_K * EXT_PANEL;
    copy_run(to, from + h * panel, n * EXT_PANEL);
    zero_run(to + n * EXT_PANEL, (PARTS_K - n) * EXT_PANEL);
  }
  split_edge(s, split, EXT_PANEL, PARTS_K * EXT_PANEL);
}

/* fp32 rows of a micropanel in K [k0, k0 + kc); *stride is the distance of rows. */
static const float* rows_of_a(const parts_state* s, int64_t row, int64_t rows, int64_t k0,
                              int64_t kc, int64_t* stride) {
  const ext_gemm* g = s->g;
  *stride = s->in_place ? g->a_row : A_STRIDE;
  if (s->in_place) return g->a + s->a_offset + row * g->a_row + k0;
  pack_rows(g, s->a_offset, row, rows, k0, kc, s->rows);
  return s->rows;
}

/* fp32 panels from that of column j on in K [k0, k0 + kc); *panel is their distance. */
static const float* panels_of_b(const parts_state* s, int64_t j, int64_t panels, int64_t k0,
                                int64_t kc, int64_t* panel) {
  const ext_gemm* g = s->g;
  const int64_t rows = g->panel_rows ? g->panel_rows : g->k;
  *panel = (g->unpack ? K_PART : rows) * EXT_PANEL;
  if (!g->unpack) return g->panels + (j / EXT_PANEL * rows + k0) * EXT_PANEL;
  for (int64_t h = 0; h < panels; h++)
    g->unpack(g->weight, g->k, j / EXT_PANEL + h, k0, kc, s->panels + h * *panel);
  return s->panels;
}

EXT_INLINE int64_t micropanel_rows(const parts_block* block, int64_t i) {
  return i64_min(PARTS_ROWS, block->row_end - block->row - i * PARTS_ROWS);
}

/* What is to be taken apart of micropanel i's K part. */
static void plan_a(parts_state* s, parts_block* block, int64_t i, int64_t part) {
  int64_t k, stride;
  const int64_t n = k_of_part(block, part, &k), rows = micropanel_rows(block, i);
  const float* from = rows_of_a(s, block->row + i * PARTS_ROWS, rows, block->k0 + k, n, &stride);
  parts_split* next = &block->next_a;
  *next = (parts_split){.from = from, .row = stride, .second = PARTS_K / 2, .rows = rows};
  next->tiles = rows > TILE_ROWS ? 2 : 1;
  next->tile = TILE_ROWS * stride;
  next->step = PARTS_K;
  next->to = s->a + (i * s->steps + k / PARTS_K) * PARTS_STEP;
  next->part = 2 * PARTS_TILE;
  next->to_tile = PARTS_TILE;
  if (s->in_place && i + 2 < block->count) next->ahead = PARTS_ROWS * stride;
  next->quarters = n / PARTS_K * next->tiles * 4;
  if (n % PARTS_K) split_edge_of_a(s, next, from + n / PARTS_K * PARTS_K, stride, n % PARTS_K);
}

/* Floats from a K part of B to the one that is taken apart after it; 0 where there is none. */
static int64_t ahead_of_b(const parts_block* block, int64_t j, int64_t part, int64_t panel) {
  const int64_t step = first_step(block, part);
  if (part + 1 < block->parts) return (first_step(block, part + 1) - step) * PARTS_K * EXT_PANEL;
  return j + PARTS_COLUMNS < block->j1 ? 2 * panel - step * PARTS_K * EXT_PANEL : 0;
}

/* The same of columns [j, ..) in B. */
static void plan_b(parts_state* s, parts_block* block, int64_t j, int64_t part, uint16_t* to) {
  int64_t k, panel;
  const int64_t n = k_of_part(block, part, &k);
  const int64_t panels = block->j1 - j > EXT_PANEL ? 2 : 1;
  const float* from = panels_of_b(s, j, panels, block->k0 + k, n, &panel);
  parts_split* next = &block->next_b;
  *next = (parts_split){.from = from, .row = EXT_PANEL, .rows = PARTS_ROWS, .to = to};
  next->second = TILE_ROWS * EXT_PANEL;
  next->tiles = panels;
  next->tile = panel;
  next->step = PARTS_K * EXT_PANEL;
  next->part = PARTS_TILE;
  next->to_tile = PARTS * PARTS_TILE;
  next->quarters = n / PARTS_K * panels * 4;
  if (!s->g->unpack) next->ahead = ahead_of_b(block, j, part, panel);
  const int64_t whole = n / PARTS_K * PARTS_K;
  if (whole < n) split_edge_of_b(s, next, from + whole * EXT_PANEL, panel, n - whole);
}

/* sums = A B of a micropanel and a tile of columns over all of K, in fp32: where parts give no
 * number.  Nothing is being taken apart meanwhile, as it needs the same memory. */
static void plain_tile(parts_state* s, const parts_block* block, int64_t i, int64_t j,
                       float* sums) {
  const int64_t row = block->row + i * PARTS_ROWS, rows = micropanel_rows(block, i);
  const int64_t panels = block->j1 - j > EXT_PANEL ? 2 : 1;
  for (int64_t at = 0; at < PARTS_SUMS; at += VL) vf_store(sums + at, vf_zero());
  for (int64_t k = 0, n; k < s->g->k; k += n) {
    int64_t stride, panel;
    n = i64_min(K_PART, s->g->k - k);
    const float* a = rows_of_a(s, row, rows, k, n, &stride);
    const float* b = panels_of_b(s, j, panels, k, n, &panel);
    add_products(rows, panels * EXT_PANEL, n, a, stride, b, panel, sums, PARTS_COLUMNS);
  }
}

static void multiply(const uint16_t* a, const uint16_t* b, int64_t steps, float* sums, int first,
                     int high, int wide, parts_block* block, int64_t a_share, int64_t b_share) {
  parts_split *next_a = &block->next_a, *next_b = &block->next_b;
  if (high && wide)
    parts_tile(1, 1, a, b, steps, sums, first, next_a, a_share, next_b, b_share);
  else if (wide)
    parts_tile(0, 1, a, b, steps, sums, first, next_a, a_share, next_b, b_share);
  else if (high)
    parts_tile(1, 0, a, b, steps, sums, first, next_a, a_share, next_b, b_share);
  else
    parts_tile(0, 0, a, b, steps, sums, first, next_a, a_share, next_b, b_share);
}

/* All micropanels times the columns [j, j + 32) in one K part, whose B is in s->b[now]; takes apart
 * what comes next. */
static void run_part(parts_state* s, parts_block* block, int64_t j, int64_t part, int now,
                     int block_of_k, float* sums) {
  const int64_t step = first_step(block, part), steps = first_step(block, part + 1) - step;
  const int wide = block->j1 - j > EXT_PANEL, more = part + 1 < block->parts;
  block->next_b.quarters = block->next_b.done = 0;
  if (more || j + PARTS_COLUMNS < block->j1)
    plan_b(s, block, more ? j : j + PARTS_COLUMNS, more ? part + 1 : 0, s->b[1 - now]);
  const int64_t places = i64_max(1, 2 * steps);
  const int64_t b_share = ceil_div(block->next_b.quarters, block->count * places);
  for (int64_t i = 0; i < block->count; i++) {
    const int last = i + 1 == block->count, first = j == block->j0 && (!last || more);
    const int64_t next = last ? 0 : i + 1, next_part = last ? part + 1 : part;
    block->next_a.quarters = block->next_a.done = 0;
    if (first) plan_a(s, block, next, next_part);
    const int64_t a_share = ceil_div(block->next_a.quarters, places);
    const int64_t rows = micropanel_rows(block, i);
    if (rows < PARTS_ROWS) tile_begin_rows(rows);
    multiply(s->a + (i * s->steps + step) * PARTS_STEP, s->b[now], steps, sums + i * PARTS_SUMS,
             part == 0 && block_of_k == 0, rows > TILE_ROWS, wide, block, a_share, b_share);
    if (rows < PARTS_ROWS) tile_begin();
    if (first) split_rest(&block->next_a);
  }
  split_rest(&block->next_b);
}

/* y of a micropanel and a tile of columns from their sums. */
static void finish(const parts_state* s, int64_t row, int64_t rows, int64_t j, int64_t columns,
                   float* sums) {
  const ext_gemm* g = s->g;
  const float* bias = s->e.bias ? s->e.bias + j : NULL;
  const float* residual = s->e.residual ? s->e.residual + row * s->e.residual_stride + j : NULL;
  float* y = g->y + row * g->y_row + j;
  const vf low = vf_set1(s->tail.low), high = vf_set1(s->tail.high);
  for (int64_t c = 0; c < columns; c += VL) {
    const int64_t lanes = i64_min(VL, columns - c);
    const vf added = bias ? vf_load_n(bias + c, lanes) : vf_zero();
    for (int64_t r = 0; r < rows; r++) {
      vf v = vf_load(sums + r * PARTS_COLUMNS + c) + added;
      if (!s->tail.clamp) {
        vf_store(sums + r * PARTS_COLUMNS + c, v);
        continue;
      }
      if (residual) {
        const vf other = vf_load_n(residual + r * s->e.residual_stride + c, lanes);
        v = s->e.residual_is_factor ? v * other : v + other;
      }
      v = vf_min(high, vf_max(low, v));
      if (lanes == VL)
        vf_store(y + r * g->y_row + c, v);
      else
        vf_store_n(y + r * g->y_row + c, v, lanes);
    }
  }
  if (!s->tail.clamp) EXT_NAME(ext_finish_tile)
  (&s->e, rows, columns, sums, PARTS_COLUMNS, residual, s->e.residual_stride, y, g->y_row);
}

/* One block of A times the columns [j0, j1). */
static void run_block(parts_state* s, parts_block* block, int64_t block_of_k) {
  block->k0 = block_of_k * s->k_block;
  block->kc = i64_min(s->k_block, s->g->k - block->k0);
  block->parts = i64_max(1, ceil_div(block->kc, K_PART));
  int now = 0;
  plan_b(s, block, block->j0, 0, s->b[now]);
  split_rest(&block->next_b);
  plan_a(s, block, 0, 0);
  split_rest(&block->next_a);
  for (int64_t j = block->j0; j < block->j1; j += PARTS_COLUMNS) {
    const int64_t tile = s->k_blocks > 1 ? (j - block->j0) / PARTS_COLUMNS : 0;
    float* sums = s->sums + tile * block->count * PARTS_SUMS;
    for (int64_t part = 0; part < block->parts; part++, now = 1 - now)
      run_part(s, block, j, part, now, (int)block_of_k, sums);
    if (block_of_k + 1 < s->k_blocks) continue;
    for (int64_t i = 0; i < block->count; i++) {
      float* tile_sums = sums + i * PARTS_SUMS;
      const int64_t rows = micropanel_rows(block, i);
      const int64_t columns = i64_min(PARTS_COLUMNS, block->j1 - j);
      if (!are_finite(rows, columns, tile_sums, PARTS_COLUMNS))
        plain_tile(s, block, i, j, tile_sums);
      finish(s, block->row + i * PARTS_ROWS, rows, j, columns, tile_sums);
    }
  }
}

/* Micropanels in a block of A, of which a part of so many steps stays in half of L2. */
static int64_t block_micropanels(int64_t steps) {
  const int64_t bytes = steps * PARTS_STEP * (int64_t)sizeof(uint16_t);
  const int64_t fit = ext_cache_sizes()->l2 / 2 / i64_max(1, bytes);
  return i64_max(LEAST_MICROPANELS, i64_min(fit, MOST_MICROPANELS));
}

int EXT_NAME(ext_gemm_parts_range)(const ext_gemm* g, int64_t a_offset, int64_t row,
                                   int64_t row_end, int64_t j0, int64_t j1) {
  parts_state s = {.g = g, .e = g->epilogue, .a_offset = a_offset};
  s.tail = ext_plan_tail(&s.e);
  s.in_place = !g->pack && !g->prologue;
  s.k_blocks = i64_max(1, ceil_div(g->k, K_BLOCK));
  s.steps = ceil_div(ceil_div(g->k, PARTS_K), s.k_blocks);
  s.k_block = s.steps * PARTS_K;
  s.k_blocks = i64_max(1, ceil_div(g->k, s.k_block));
  const int64_t micropanels = ceil_div(row_end - row, PARTS_ROWS);
  const int64_t blocks = ceil_div(micropanels, block_micropanels(s.steps));
  const int64_t count = ceil_div(micropanels, blocks);
  const int64_t tiles = s.k_blocks > 1 ? ceil_div(j1 - j0, PARTS_COLUMNS) : 1;
  const int64_t of_a = count * s.steps * PARTS_STEP * 2, of_b = B_PART * 2;
  const int64_t of_sums = tiles * count * PARTS_SUMS * (int64_t)sizeof(float);
  const int64_t of_rows = s.in_place ? 0 : PARTS_ROWS * A_STRIDE * (int64_t)sizeof(float);
  const int64_t of_panels = g->unpack ? 2 * K_PART * EXT_PANEL * (int64_t)sizeof(float) : 0;
  const int64_t of_edge = PARTS_K * PARTS_COLUMNS * (int64_t)sizeof(float);
  char* memory =
      ext_workspace_alloc((size_t)(of_a + 2 * of_b + of_sums + of_rows + of_panels + of_edge));
  if (!memory) return EXT_ERR_MEMORY;
  char* at = memory;
  s.a = (uint16_t*)at, at += of_a;
  s.b[0] = (uint16_t*)at, at += of_b;
  s.b[1] = (uint16_t*)at, at += of_b;
  s.sums = (float*)at, at += of_sums;
  s.rows = (float*)at, at += of_rows;
  s.panels = (float*)at, at += of_panels;
  s.edge = (float*)at;
  tile_begin();
  for (int64_t b = 0; b < blocks; b++) {
    parts_block block = {.j0 = j0, .j1 = j1};
    block.row = row + b * micropanels / blocks * PARTS_ROWS;
    block.row_end = i64_min(row_end, row + (b + 1) * micropanels / blocks * PARTS_ROWS);
    block.count = ceil_div(block.row_end - block.row, PARTS_ROWS);
    for (int64_t k = 0; k < s.k_blocks; k++) run_block(&s, &block, k);
  }
  tile_end();
  ext_workspace_free(memory);
  return EXT_OK;
}

/*
 * In the time that vectors take for a tile of 32 x 32 sums and a step of K, tiles need a third for
 * the products; taking the step of A apart takes as long as vectors need for one, of B two thirds
 * of it, and each serves a row, or a block of rows, of tiles.  Of these shares half may be spent.
 * (Granite Rapids: 128 x 768 x 768 at 290 GFLOP/s, 175 in vectors; 128 x 64 at 209 and 187, 32 x
 * 768 at 169 and 161.)  Sums of a short K are soon to be stored: of 784 x 256, K = 64, 96, 128, 256
 * and 512 take 0.97, 0.86, 0.81, 0.77 and 0.75 of the time of vectors on an idle Emerald Rapids,
 * and 1.2 to 1.7 in the moments in which others of the machine slow the unit down.
 */
int EXT_NAME(ext_gemm_parts_fit)(const ext_gemm* g) {
  const float rows = (float)i64_min(g->m, MOST_MICROPANELS / 2 * PARTS_ROWS) / PARTS_ROWS;
  const float columns = (float)g->n / PARTS_COLUMNS;
  return g->k >= LEAST_K && 1 / columns + 2 / (3 * rows) < 0.5f;
}

#else

int EXT_NAME(ext_gemm_parts_range)(const ext_gemm* g, int64_t a_offset, int64_t row,
                                   int64_t row_end, int64_t j0, int64_t j1) {
  (void)g, (void)a_offset, (void)row, (void)row_end, (void)j0, (void)j1;
  return EXT_ERR_ARGUMENT;
}

int EXT_NAME(ext_gemm_parts_fit)(const ext_gemm* g) {
  (void)g;
  return 0;
}

#endif

EXT_DISPATCH(ext_gemm_parts_range,
             (const ext_gemm* g, int64_t a_offset, int64_t row, int64_t row_end, int64_t j0,
              int64_t j1),
             (g, a_offset, row, row_end, j0, j1))
EXT_DISPATCH(ext_gemm_parts_fit, (const ext_gemm* g), (g))
