/*
 * block_tiles.h - many rows of bytes times a w of 4 or 8 bits, in AMX's tiles: 2 x 2 of them, of
 * 16 x 16 sums each, or fewer for fewer rows or columns.
 *
 *   t[r][j] = sum over chunks c  unit[r][c] scale[c][j] sum_p x[r][p] (q[p][j] - zero[c][j])
 *
 * as block_bytes.h has it.  Tiles sum up a chunk, exactly; what scales it adds to t, which stays in
 * L1.  Rows are read by 16, whether there are as many or not: digits have room.
 */
#ifndef EXT_BLOCK_TILES_H_
#define EXT_BLOCK_TILES_H_

#include "block_bytes.h"
#include "tile_sums.h"

enum {
  BLOCK_ROWS = 2 * TILE_ROWS,
  BLOCK_COLUMNS = 2 * EXT_PANEL,
  /* Of fewer rows, which wait for w anyway, vectors take less time. */
  LEAST_TILE_ROWS = 8
};

/* Groups of four rows of w that a tile may have, so that none has rows of two chunks; 0: of no
 * tile.  Past the end of k there are zeros in x. */
EXT_INLINE int64_t tile_quads(int64_t block, int64_t k) {
  if (block >= k || block % 64 == 0) return 16;
  return block % 32 == 0 ? 8 : block % 16 == 0 ? 4 : 0;
}

/* Four rows of w for each of `quads`, times x.  `high` and `wide` tell of a second tile of rows,
 * and of columns; as all that follows, constants. */
EXT_INLINE void block_step(const int high, const int wide, tile_file* f, const int8_t* x,
                           int64_t x_row, const int8_t* b, int64_t panel, int64_t quads) {
  tile_load_panel(f, 6, b, quads);
  tile_load_rows(f, 4, x, x_row, quads);
  tile_dot_mixed(f, 0, 4, 6, quads);
  if (wide) {
    tile_load_panel(f, 7, b + panel, quads);
    tile_dot_mixed(f, 1, 4, 7, quads);
  }
  if (high) {
    tile_load_rows(f, 5, x + TILE_ROWS * x_row, x_row, quads);
    tile_dot_mixed(f, 2, 5, 6, quads);
    if (wide) tile_dot_mixed(f, 3, 5, 7, quads);
  }
}

/* sums [BLOCK_ROWS][BLOCK_COLUMNS] = the products of n rows of w, of a chunk. */
EXT_INLINE void block_chunk(const int high, const int wide, const int8_t* x, int64_t x_row,
                            const int8_t* b, int64_t panel, int64_t n, int64_t quads,
                            int32_t* sums) {
  tile_file file, *f = &file;
  tile_sums_zero(high, wide, f);
  for (; n >= 4 * quads; n -= 4 * quads, x += 4 * quads, b += quads * TILE_BYTES)
    block_step(high, wide, f, x, x_row, b, panel, quads);
  if (n > 0) { /* the end of k, and of what may be read of w */
    _Alignas(EXT_ALIGN) int8_t last[2][TILE_PAIRS * TILE_BYTES] = {{0}};
    memcpy(last[0], b, (size_t)(ceil_div(n, 4) * TILE_BYTES));
    if (wide) memcpy(last[1], b + panel, (size_t)(ceil_div(n, 4) * TILE_BYTES));
    tile_written();
    block_step(high, wide, f, x, x_row, last[0], sizeof last[0], quads);
  }
  tile_sums_store(high, wide, f, sums, BLOCK_COLUMNS);
  tile_written();
}

/* Chunks whose sums are added to t at once, which is read and written once for them. */
enum { CHUNKS_AT_ONCE = 4 };

/* A chunk's place among the scales of the first panel, and its number. */
typedef struct {
  int64_t place[CHUNKS_AT_ONCE], first;
} block_chunks;

/* t += unit scale (sums - zero x) of n chunks, a constant; `middle` tells that zero points are in
 * their `low`. */
EXT_INLINE void add_chunks(const int n, const int wide, const int middle, const byte_walk* s,
                           int64_t rows, const block_chunks* of, int64_t numbers,
                           const int32_t* sums) {
  const int nv = (wide ? 2 : 1) * PER_PANEL;
  const int64_t width = s->width, chunks = s->bytes->chunks;
  const digit_chunk* chunk = s->bytes->of_chunks + s->row * chunks + of->first;
  vf scale[CHUNKS_AT_ONCE][BLOCK_COLUMNS / VL], zero[CHUNKS_AT_ONCE][BLOCK_COLUMNS / VL];
  EXT_UNROLL
  for (int i = 0; i < n * nv; i++) {
    const int v = i % nv;
    const int64_t at = of->place[i / nv] + v / PER_PANEL * numbers + v % PER_PANEL * VL;
    scale[i / nv][v] = vf_load(s->w->scale + at);
    zero[i / nv][v] = middle ? vf_zero() : zeros_at(8, zeros_of(s->w), s->w, at);
  }
  float* t = s->t;
  for (int64_t r = 0; r < rows; r++, t += width, chunk += chunks, sums += BLOCK_COLUMNS) {
    vf total[BLOCK_COLUMNS / VL];
    EXT_UNROLL
    for (int v = 0; v < nv; v++) total[v] = vf_load(t + v * VL);
    EXT_UNROLL
    for (int c = 0; c < n; c++) {
      const vf unit = vf_set1(chunk[c].unit);
      EXT_UNROLL
      for (int v = 0; v < nv; v++) {
        vi sum = vi_load(sums + c * BLOCK_ROWS * BLOCK_COLUMNS + v * VL);
        if (middle) sum += vi_set1(chunk[c].low);
        vf part = vi_to_vf(sum);
        if (!middle) part = vf_fma(-zero[c][v], vi_to_vf(vi_set1(chunk[c].high)), part);
        total[v] = vf_fma(scale[c][v] * unit, part, total[v]);
      }
    }
    EXT_UNROLL
    for (int v = 0; v < nv; v++) vf_store(t + v * VL, total[v]);
  }
}

EXT_INLINE void block_tile(const int high, const int wide, const int middle, const byte_walk* s,
                           int64_t rows, int64_t quads) {
  _Alignas(EXT_ALIGN) int32_t sums[CHUNKS_AT_ONCE][BLOCK_ROWS * BLOCK_COLUMNS];
  const int64_t k = s->k, x_row = s->bytes->padded, numbers = blocks_of(s->w, k) * EXT_PANEL;
  const int64_t block = s->w->block, panel = 4 * s->panel;
  const int8_t* x = s->bytes->digits + s->row * x_row;
  const int8_t* words = (const int8_t*)s->words;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < (wide ? BLOCK_COLUMNS : EXT_PANEL); c += VL)
      vf_store(s->t + r * s->width + c, vf_zero());
  block_chunks of = {.first = 0};
  int64_t place = s->j / EXT_PANEL * numbers;
  for (int64_t p = 0; p < k;) {
    int n = 0;
    for (int64_t end; n < CHUNKS_AT_ONCE && p < k; p = end, n++) {
      end = chunk_end(p, block, k);
      block_chunk(high, wide, x + p, x_row, words + p * EXT_PANEL, panel, end - p, quads, sums[n]);
      of.place[n] = place;
      if (end % block == 0) place += EXT_PANEL;
    }
    if (n == CHUNKS_AT_ONCE) {
      add_chunks(CHUNKS_AT_ONCE, wide, middle, s, rows, &of, numbers, sums[0]);
      of.first += n;
      continue;
    }
    for (int c = 0; c < n; c++, of.first++) {
      of.place[0] = of.place[c];
      add_chunks(1, wide, middle, s, rows, &of, numbers, sums[c]);
    }
  }
}

/* t of so many rows, and of as many of the `columns`, from the first of a panel on, as tiles have,
 * whose number is returned.  The words of w are bytes. */
static int64_t tile_columns(int64_t rows, int64_t columns, const byte_walk* s) {
  const int64_t quads = tile_quads(s->w->block, s->k);
  const int high = rows > TILE_ROWS, wide = columns > EXT_PANEL, middle = !s->w->zero;
  if (high && wide && middle)
    block_tile(1, 1, 1, s, rows, quads);
  else if (high && wide)
    block_tile(1, 1, 0, s, rows, quads);
  else if (high && middle)
    block_tile(1, 0, 1, s, rows, quads);
  else if (high)
    block_tile(1, 0, 0, s, rows, quads);
  else if (wide && middle)
    block_tile(0, 1, 1, s, rows, quads);
  else if (wide)
    block_tile(0, 1, 0, s, rows, quads);
  else if (middle)
    block_tile(0, 0, 1, s, rows, quads);
  else
    block_tile(0, 0, 0, s, rows, quads);
  return wide ? BLOCK_COLUMNS : EXT_PANEL;
}

#endif /* EXT_BLOCK_TILES_H_ */
