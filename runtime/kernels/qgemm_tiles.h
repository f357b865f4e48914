/*
 * qgemm_tiles.h - a tile of sums in AMX's tiles (see qgemm_tile.h): 2 x 2 of them, of 16 x 16 sums
 * each, or fewer for fewer rows or columns.
 *
 * Rows of A are read by 16, whether the tile has them or not, and each run by 64 bytes: what is
 * packed has room, and what is read in place lies before other rows.  The last rows of a panel are
 * copied, and zeros after them, so that it does not matter what is read past the end of a run.
 */
#ifndef EXT_QGEMM_TILES_H_
#define EXT_QGEMM_TILES_H_

#include "qgemm_tile.h"
#include "tile_sums.h"

_Static_assert(QR == 2 * TILE_ROWS && QTILE_N == 2 * EXT_PANEL, "two by two tiles");
_Static_assert(QK_STEP == (int)TILE_BYTES && K_GROUP * EXT_PANEL == TILE_BYTES,
               "a tile's share of K");

enum {
  QTILE_STEP = TILE_PAIRS * TILE_BYTES, /* bytes of a panel */
  /* Few rows wait for B: it is fetched so many bytes ahead (see bgemm_tiles.h). */
  QAHEAD = QTILE_STEP
};

/* Lines that 16 rows of A hold, each of `rows` rows and `step` rows from the one before. */
EXT_INLINE int64_t qtile_lines(int64_t rows, int64_t step) {
  return rows > TILE_ROWS ? 0 : (TILE_ROWS - rows) / step + 1;
}

/* One step along K.  `is_signed` tells of x, `once` that rows of A are read once for these columns,
 * `high` and `wide` of a second tile of rows, and of columns; as all that follows, constants. */
EXT_INLINE void qtiles_dots(const int is_signed, const int once, const int high, const int wide,
                            tile_file* f, const qa* a, int64_t a_row, int64_t a_high,
                            const int8_t* b, int64_t panel) {
  tile_load(f, 6, b, TILE_BYTES);
  if (wide) tile_load(f, 7, b + panel, TILE_BYTES);
  if (once) {
    tile_load_once(f, 4, a, a_row);
    if (high) tile_load_once(f, 5, a + a_high, a_row);
  } else {
    tile_load(f, 4, a, a_row);
    if (high) tile_load(f, 5, a + a_high, a_row);
  }
  if (is_signed) {
    tile_dot_signed(f, 0, 4, 6);
    if (wide) tile_dot_signed(f, 1, 4, 7);
    if (high) tile_dot_signed(f, 2, 5, 6);
    if (high && wide) tile_dot_signed(f, 3, 5, 7);
  } else {
    tile_dot_unsigned(f, 0, 4, 6);
    if (wide) tile_dot_unsigned(f, 1, 4, 7);
    if (high) tile_dot_unsigned(f, 2, 5, 6);
    if (high && wide) tile_dot_unsigned(f, 3, 5, 7);
  }
}

/* Bytes of the copied ends of runs, of two panels. */
EXT_INLINE int64_t qtile_ends_size(const ext_qgemm* g) {
  const int64_t past = g->run / K_GROUP % TILE_PAIRS;
  return past ? 2 * QTILE_STEP * g->taps[0] * g->taps[1] : 0;
}

/* Makes them of the columns that t->b begins. */
EXT_INLINE void qtile_copy_ends(const qgemm_tile* t, int wide, int8_t* ends) {
  const int64_t past = t->groups % TILE_PAIRS * TILE_BYTES, whole = t->groups * TILE_BYTES - past;
  const int8_t* b = t->b + whole;
  for (int64_t tap = past ? t->taps[0] * t->taps[1] : 0; tap > 0; tap--) {
    for (int i = 0; i <= wide; i++, ends += QTILE_STEP) {
      memcpy(ends, b + i * t->b_step, (size_t)past);
      memset(ends + past, 0, (size_t)(QTILE_STEP - past));
    }
    b += past + whole;
    if (!wide) ends += QTILE_STEP;
  }
}

/* A run of A, whose end in B is at `end`.  Of the next columns' B a share is fetched for each step,
 * from *next on. */
EXT_INLINE void qtiles_run(const int is_signed, const int once, const int high, const int wide,
                           tile_file* f, const qgemm_tile* t, const qa* a, const int8_t* b,
                           const int8_t* end, const int8_t** next) {
  const int64_t panel = t->b_step, a_row = t->a_row, a_high = t->a_high;
  const int64_t fetched = t->next_step * TILE_PAIRS;
  for (int64_t g = t->groups / TILE_PAIRS; g > 0; g--) {
    qtiles_dots(is_signed, once, high, wide, f, a, a_row, a_high, b, panel);
    EXT_UNROLL
    for (int i = 0; i < TILE_PAIRS && !high; i++) {
      __builtin_prefetch(b + QAHEAD + i * TILE_BYTES, 0, 2);
      if (wide) __builtin_prefetch(b + panel + QAHEAD + i * TILE_BYTES, 0, 2);
    }
    for (int64_t i = 0; i < fetched && high; i += TILE_BYTES) __builtin_prefetch(*next + i, 0, 2);
    *next += fetched;
    a += QK_STEP;
    b += QTILE_STEP;
  }
  if (t->groups % TILE_PAIRS)
    qtiles_dots(is_signed, once, high, wide, f, a, a_row, a_high, end, QTILE_STEP);
}

/* All runs of A, and sums [rows][width] from the first values on. */
EXT_INLINE void qtiles_sum(const int is_signed, const int high, const int wide, const qgemm_tile* t,
                           int32_t* sums, int64_t width) {
  tile_file file, *f = &file;
  const int8_t *b = t->b, *end = t->ends, *next = t->next;
  const qa* a = t->a;
  tile_written();
  tile_sums_load(high, wide, f, t->columns->start, 0);
  const int once = t->taps[0] * t->taps[1] == 1; /* else neighbouring taps share rows */
  if (once) qtiles_run(is_signed, 1, high, wide, f, t, a, b, end, &next);
  for (int64_t h = once ? 0 : t->taps[0]; h > 0; h--) {
    for (int64_t w = t->taps[1]; w > 0; w--) {
      qtiles_run(is_signed, 0, high, wide, f, t, a, b, end, &next);
      end += 2 * QTILE_STEP;
      a += t->groups * K_GROUP + t->skip[1];
      b += t->groups * TILE_BYTES;
    }
    a += t->skip[0];
  }
  tile_sums_store(high, wide, f, sums, width);
}

/* Brings the rows of several lines together, which lie apart among the sums. */
EXT_INLINE void qtiles_gather(const int wide, const qgemm_tile* t, int32_t* sums, int64_t width) {
  const int64_t columns = wide ? 2 * EXT_PANEL : EXT_PANEL, rows = t->line_rows;
  for (int64_t line = 1; line * rows < t->rows; line++) {
    const int64_t half = line / t->half_lines, in_half = line % t->half_lines;
    const int64_t to = line * rows, from = half * TILE_ROWS + in_half * t->line_step;
    for (int64_t r = 0; r < rows && from > to; r++)
      for (int64_t c = 0; c < columns; c += VL)
        vi_store(sums + (to + r) * width + c, vi_load(sums + (from + r) * width + c));
  }
}

/* The results of a tile, four rows at once, of which the last may be none. */
EXT_INLINE void qtiles_finish(const int wide, const qgemm_tile* t, const int32_t* sums) {
  enum { AT_ONCE = 4 };
  const int nv = wide ? QN : QHALF;
  const vx_steps steps = *t->steps;
  EXT_UNROLL
  for (int v = 0; v < nv; v++) {
    const vf factor = vf_load(t->columns->factor + v * VL);
    const vf shift = vf_load(t->columns->shift + v * VL);
    for (int64_t i = 0; i < t->rows; i += AT_ONCE) {
      vf value[AT_ONCE];
      EXT_UNROLL
      for (int r = 0; r < AT_ONCE; r++) {
        const int64_t row = i64_min(i + r, t->rows - 1);
        value[r] = vf_fma(vi_to_vf(vi_load(sums + row * QTILE_N + v * VL)), factor, shift);
      }
      const vx bytes =
          vx_in_order(vx_of_tame_steps(value[0], value[1], value[2], value[3], &steps));
      uint8_t* y = t->y + i * t->y_row + v * VL;
      EXT_UNROLL
      for (int r = 0; r < AT_ONCE; r++)
        if (i + r < t->rows) vx_store_piece(y + r * t->y_row, bytes, r, AT_ONCE);
    }
  }
}

EXT_INLINE void qtiles_body(const int high, const int wide, const qgemm_tile* t) {
  _Alignas(EXT_ALIGN) int32_t own[QR * QTILE_N];
  int32_t* sums = t->finish ? own : t->sums;
  const int64_t width = t->finish ? QTILE_N : t->width;
  if (t->is_signed)
    qtiles_sum(1, high, wide, t, sums, width);
  else
    qtiles_sum(0, high, wide, t, sums, width);
  tile_written();
  if (t->half_lines) qtiles_gather(wide, t, sums, width);
  if (t->finish) qtiles_finish(wide, t, own);
}

static void qtiles_low_narrow(const qgemm_tile* t) {
  qtiles_body(0, 0, t);
}
static void qtiles_low_wide(const qgemm_tile* t) {
  qtiles_body(0, 1, t);
}
static void qtiles_high_narrow(const qgemm_tile* t) {
  qtiles_body(1, 0, t);
}
static void qtiles_high_wide(const qgemm_tile* t) {
  qtiles_body(1, 1, t);
}

/* The function for a tile of so many rows, and of all columns or of a panel's. */
EXT_INLINE qgemm_tile_function qtile_function(int64_t rows, int all) {
  static const qgemm_tile_function table[2][2] = {{qtiles_low_narrow, qtiles_low_wide},
                                                  {qtiles_high_narrow, qtiles_high_wide}};
  return table[rows > TILE_ROWS][all];
}

/* Around the tiles of a thread. */
EXT_INLINE void qtile_session_begin(void) {
  tile_begin();
}
EXT_INLINE void qtile_session_end(void) {
  tile_end();
}

#endif /* EXT_QGEMM_TILES_H_ */
