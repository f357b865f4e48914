/*
 * bgemm_tiles.h - a tile of sums in AMX's tiles (see bgemm_tile.h): 2 x 2 of them, of 16 x 16 sums
 * each, or fewer for fewer rows or columns.
 *
 * Rows of A are read by 16, whether the tile has them or not, and K by 32: what is packed has room,
 * and zeros for K.  The last rows of a panel are copied, and zeros after them.
 */
#ifndef EXT_BGEMM_TILES_H_
#define EXT_BGEMM_TILES_H_

#include "bgemm_lone.h"
#include "tile_sums.h"

_Static_assert(BR == 2 * TILE_ROWS && BTILE_N == 2 * EXT_PANEL, "two by two tiles");
_Static_assert(BK_STEP == 2 * TILE_PAIRS, "a tile's share of K");

enum {
  BTILE_STEP = TILE_PAIRS * BPAIR,
  BLINE = 2 * EXT_PANEL, /* elements in a line */
  /* Few rows wait for B: it is fetched so many elements ahead, 1 KB of each panel.  At 4 KB a
   * Granite Rapids core reads memory at 14.5 GB/s instead of 17. */
  BAHEAD = BTILE_STEP
};

/* What the micropanel `index` of `count` fetches of the next tile's B, whose panels begin at `b`
 * and of which there are `panels`: a share of each step's lines, so that all of it comes evenly
 * while tiles are computed.  A lone micropanel reads B once, and fetches its own ahead. */
EXT_INLINE void btile_plan_fetch(bgemm_tile* t, const uint16_t* b, int64_t panels, int64_t index,
                                 int64_t count) {
  enum { PANEL_LINES = BTILE_STEP / BLINE };
  int64_t lines = 2 * PANEL_LINES;
  for (int64_t sharing = 2; sharing <= count && lines > 1; sharing *= 2) lines /= 2;
  const int64_t first = index * lines, panel = first / PANEL_LINES;
  t->next = count > 1 ? b + panel * t->panel + first % PANEL_LINES * BLINE : t->b + BAHEAD;
  t->next_lines = count > 1 && panel >= panels ? 0 : lines;
}

#if EXT_PARTS == 2

/* One step along K: high low + high high + low high, so that each of the two is loaded once. */
EXT_INLINE void btiles_step(const int high, const int wide, tile_file* f, const ba* a,
                            int64_t a_row, const uint16_t* b, int64_t panel) {
  const int64_t row_bytes = a_row * (int64_t)sizeof(ba);
  tile_load_once(f, 4, a, row_bytes);
  if (high) tile_load_once(f, 5, a + TILE_ROWS * a_row, row_bytes);
  tile_load(f, 6, b + BLINE, BPAIR * 2);
  if (wide) tile_load(f, 7, b + panel + BLINE, BPAIR * 2);
  tile_sums_add(high, wide, f);
  tile_load(f, 6, b, BPAIR * 2);
  if (wide) tile_load(f, 7, b + panel, BPAIR * 2);
  tile_sums_add(high, wide, f);
  tile_load_once(f, 4, a + BKC, row_bytes);
  if (high) tile_load_once(f, 5, a + TILE_ROWS * a_row + BKC, row_bytes);
  tile_sums_add(high, wide, f);
}

#else

/* One step along K.  `high` and `wide` tell of a second tile of rows, and of columns; as all that
 * follows, constants. */
EXT_INLINE void btiles_step(const int high, const int wide, tile_file* f, const ba* a,
                            int64_t a_row, const uint16_t* b, int64_t panel) {
  const int64_t row_bytes = a_row * (int64_t)sizeof(ba);
  tile_load(f, 6, b, TILE_BYTES);
  tile_load_once(f, 4, a, row_bytes);
  tile_dot(f, 0, 4, 6);
  if (wide) {
    tile_load(f, 7, b + panel, TILE_BYTES);
    tile_dot(f, 1, 4, 7);
  }
  if (high) {
    tile_load_once(f, 5, a + TILE_ROWS * a_row, row_bytes);
    tile_dot(f, 2, 5, 6);
    if (wide) tile_dot(f, 3, 5, 7);
  }
}

#endif

/* The sums' first values: c, or the bias in every row, or zeros. */
EXT_INLINE void btiles_begin(const int high, const int wide, tile_file* f, const bgemm_tile* t) {
  const float* c = t->c;
  int64_t row = t->c_row;
  if (!c && !t->bias) {
    tile_sums_zero(high, wide, f);
    return;
  }
  _Alignas(EXT_ALIGN) float bias[2 * EXT_PANEL];
  if (!c) {
    /* Whole vectors, which loads behind them need not wait for. */
    for (int64_t j = 0; j < (wide ? 2 : 1) * EXT_PANEL; j += VL)
      vf_store(bias + j, vf_load_n(t->bias + j, clamp_lanes(t->columns - j)));
    c = bias;
    row = 0;
  }
  tile_written();
  tile_sums_load(high, wide, f, c, row);
}

EXT_INLINE void btiles_sum(const int high, const int wide, tile_file* f, const bgemm_tile* t) {
  const int64_t panel = t->panel, a_row = t->a_row, past = t->pairs % TILE_PAIRS;
  const uint16_t *b = t->b, *next = t->next;
  const ba* a = t->a;
  const int both = wide && t->next_lines > BTILE_STEP / BLINE;
  const int64_t lines = i64_min(t->next_lines, BTILE_STEP / BLINE);
  const uint16_t* other = next + panel;
  for (int64_t p = t->pairs / TILE_PAIRS; p > 0; p--) {
    btiles_step(high, wide, f, a, a_row, b, panel);
    if (both) {
      EXT_UNROLL
      for (int i = 0; i < BTILE_STEP / BLINE; i++) {
        __builtin_prefetch(next + i * BLINE, 0, 2);
        __builtin_prefetch(other + i * BLINE, 0, 2);
        tile_written(); /* in this order */
      }
      other += BTILE_STEP;
    } else {
      for (int64_t i = 0; i < lines; i++) __builtin_prefetch(next + i * BLINE, 0, 2);
    }
    a += BK_STEP;
    b += BTILE_STEP;
    next += BTILE_STEP;
  }
  if (past == 0) return;
  _Alignas(EXT_ALIGN) uint16_t last[2 * BTILE_STEP] = {0};
  memcpy(last, b, (size_t)(past * BPAIR) * sizeof *b);
  if (wide) memcpy(last + BTILE_STEP, b + panel, (size_t)(past * BPAIR) * sizeof *b);
  tile_written();
  btiles_step(high, wide, f, a, a_row, last, BTILE_STEP);
}

/* Finishes and writes sums [rows][2 EXT_PANEL]. */
EXT_INLINE void btiles_write(const int wide, const bgemm_tile* from, const float* sums) {
  const bgemm_tile tile = *from, *t = &tile; /* a copy: y may not be where it lies */
  const int nv = (wide ? 2 : 1) * EXT_PANEL / VL;
  for (int64_t i = 0; i < t->rows; i++) {
    vf row[BN];
    EXT_UNROLL
    for (int v = 0; v < nv; v++) row[v] = vf_load(sums + i * BTILE_N + v * VL);
    if (t->residual && t->s.residual == EXT_BFLOAT16) btile_join(nv, EXT_BFLOAT16, t, i, row);
    if (t->residual && t->s.residual == EXT_FLOAT32) btile_join(nv, EXT_FLOAT32, t, i, row);
    if (t->s.y == EXT_BFLOAT16)
      btile_write(nv, EXT_BFLOAT16, t, i, row);
    else
      btile_write(nv, EXT_FLOAT32, t, i, row);
  }
}

#if EXT_PARTS == 2

/* The sums of both parts of VL numbers; that of the greatest fp32, whose lower part is rounded up,
 * would be infinite. */
EXT_INLINE vf sums_of_parts(const ba* high) {
  const vf low = vbf_widen(vbf_load(high + BKC)), sum = vbf_widen(vbf_load(high)) + low;
  const vf most = vf_set1(0x1.fffffep127f), least = vf_set1(-0x1.fffffep127f);
  const vm is_finite = vm_lt(vf_max(low, -low), vf_set1(__builtin_inff()));
  return vf_select(is_finite, vf_min(most, vf_max(least, sum)), sum);
}

/* The sums of a tile in fp32, from what they begin with on.  Products of parts may be infinities of
 * either sign where that of their sums is infinite. */
static __attribute__((noinline)) void btiles_plain(int64_t columns, const bgemm_tile* t,
                                                   float* sums, int64_t row) {
  enum { PAIRS = 64 };
  _Alignas(EXT_ALIGN) float x[BR * 2 * PAIRS], w[2][2 * PAIRS * EXT_PANEL];
  for (int64_t i = 0; i < t->rows; i++)
    for (int64_t j = 0; j < columns; j += VL) {
      vf first = vf_zero();
      if (t->c && !t->before)
        first = vf_load(t->c + i * t->c_row + j);
      else if (t->bias)
        first = vf_load_n(t->bias + j, clamp_lanes(t->columns - j));
      vf_store(sums + i * row + j, first);
    }
  for (int64_t p = -t->before / 2, n; p < t->pairs; p += n) {
    n = i64_min(PAIRS, t->pairs - p);
    for (int64_t i = 0; i < t->rows; i++)
      for (int64_t q = 0; q < 2 * n; q += VL)
        vf_store(x + i * 2 * PAIRS + q, sums_of_parts(t->a + i * t->a_row + 2 * p + q));
    for (int64_t j = 0; j < columns; j += VL)
      for (int64_t q = 0; q < n; q++) {
        const uint16_t* b = t->b + j / EXT_PANEL * t->panel + (p + q) * BPAIR + j % EXT_PANEL * 2;
        float* to = w[j / EXT_PANEL] + 2 * q * EXT_PANEL + j % EXT_PANEL;
        vbits above, below;
        memcpy(&above, b, sizeof above);
        memcpy(&below, b + BLINE, sizeof below);
        vf_store(to, (vf)(above << 16) + (vf)(below << 16));
        vf_store(to + EXT_PANEL, (vf)(above & 0xffff0000u) + (vf)(below & 0xffff0000u));
      }
    add_products(t->rows, columns, 2 * n, x, 2 * PAIRS, w[0], 2 * PAIRS * EXT_PANEL, sums, row);
  }
}

/* Stores the sums, as numbers if they are to be.  What they began with stays until it is known
 * whether they are, if they cannot begin anew. */
EXT_INLINE void btiles_store(const int high, const int wide, const tile_file* f,
                             const bgemm_tile* t, float* own) {
  const int64_t columns = (wide ? 2 : 1) * EXT_PANEL;
  const int direct = t->sums && (t->unfinished || t->before || t->c != t->sums);
  float* sums = direct ? t->sums : own;
  const int64_t row = direct ? t->sums_row : BTILE_N;
  tile_sums_store(high, wide, f, sums, row);
  if (t->unfinished) return;
  tile_written();
  if (!are_finite(t->rows, columns, sums, row)) btiles_plain(columns, t, sums, row);
  if (direct) return;
  for (int64_t i = 0; i < t->rows && t->sums; i++)
    copy_run(t->sums + i * t->sums_row, own + i * BTILE_N, columns);
}

#else

EXT_INLINE void btiles_store(const int high, const int wide, const tile_file* f,
                             const bgemm_tile* t, float* own) {
  float* sums = t->sums ? t->sums : own;
  tile_sums_store(high, wide, f, sums, t->sums ? t->sums_row : BTILE_N);
}

#endif

EXT_INLINE void btiles_body(const int high, const int wide, const bgemm_tile* t) {
  _Alignas(EXT_ALIGN) float own[BR * BTILE_N];
  tile_file file, *f = &file;
  btiles_begin(high, wide, f, t);
  btiles_sum(high, wide, f, t);
  btiles_store(high, wide, f, t, own);
  if (!t->sums) btiles_write(wide, t, own);
}

static void btiles_low_narrow(const bgemm_tile* t) {
  btiles_body(0, 0, t);
}
static void btiles_low_wide(const bgemm_tile* t) {
  btiles_body(0, 1, t);
}
static void btiles_high_narrow(const bgemm_tile* t) {
  btiles_body(1, 0, t);
}
static void btiles_high_wide(const bgemm_tile* t) {
  btiles_body(1, 1, t);
}

#if defined(EXT_BLONE_VECTORS)
static void btile_lone_panels(const bgemm_tile* t) {
  btile_lone(BN, t);
}
#endif

/* The function for a tile of so many rows and vectors: BHALF or BN.  A lone row's is in vectors. */
EXT_INLINE bgemm_tile_function btile_function(int64_t rows, int64_t vectors) {
  static const bgemm_tile_function table[2][2] = {{btiles_low_narrow, btiles_low_wide},
                                                  {btiles_high_narrow, btiles_high_wide}};
#if defined(EXT_BLONE_VECTORS)
  if (rows == 1 && EXT_PARTS == 1) return vectors > BHALF ? btile_lone_panels : btile_lone_panel;
#endif
  return table[rows > TILE_ROWS][vectors > BHALF];
}

#endif /* EXT_BGEMM_TILES_H_ */
