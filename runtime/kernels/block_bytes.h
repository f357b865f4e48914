/*
 * block_bytes.h - rows of bytes times a w of 4 or 8 bits: a tile of sums in registers.
 *
 *   t[r][j] = sum over chunks c  unit[r][c] scale[c][j] sum_p x[r][p] (q[p][j] - zero[c][j])
 *
 * x are the single digits of block_digits.h, a chunk is 128 rows of a block of w at most, and a
 * chunk's sum of products is exact.  Of many rows, words of 4 bits are written out as bytes first,
 * once for all rows of some columns.
 */
#ifndef EXT_BLOCK_BYTES_H_
#define EXT_BLOCK_BYTES_H_

#include "block_digits.h"

#if defined(DIGIT_ROWS)

/* A tile has BYTE_ROWS rows and BYTE_VECTORS vectors of columns, whose sums of a chunk and of all
 * chunks are in registers. */
#if VL == 16
enum { BYTE_ROWS = 6, BYTE_VECTORS = 2 };
#define EXT_BYTE_ROWS(X) X(2) X(3) X(4) X(5) X(6)
#else
enum { BYTE_ROWS = 3, BYTE_VECTORS = 2 };
#define EXT_BYTE_ROWS(X) X(2) X(3)
#endif

typedef struct {
  const ext_block_weight* w;
  const block_digits* bytes;
  int64_t row, k;       /* the first row of all */
  int64_t j;            /* the first column, of a panel or of a vector of one */
  const int32_t* words; /* of that column */
  int64_t panel;        /* words from one panel to the next */
  float* t;             /* the sums, rows `width` floats apart */
  int64_t width;
} byte_walk;

/* acc += products of a word's rows with the bytes at x; those of the next row are `stride` on. */
EXT_INLINE void dot_bytes(const int rows, const int bits, const int chain, const int8_t* x,
                          int64_t stride, vi word, vq acc[BYTE_ROWS][MOST_CHAINS]) {
  const vi low = vi_set1(0x0f0f0f0f);
  const vi fours[2] = {bits == 8 ? word : word & low, (vi)((vu)word >> 4) & low};
  EXT_UNROLL
  for (int i = 0; i < 8 / bits; i++) {
    EXT_UNROLL
    for (int r = 0; r < rows; r++) {
      vq* sum = &acc[r][(chain + i) % MOST_CHAINS];
      *sum = vq_dot_in_place(*sum, (vqa)fours[i], (vqb)vq_row((const qa*)x + r * stride + 4 * i));
    }
  }
}

/* Adds a chunk's sums to those of all. */
EXT_INLINE void scale_chunk(const int rows, const int chains, const int bits, const int middle,
                            const byte_walk* s, const digit_chunk* chunk, int64_t place,
                            const vq acc[BYTE_ROWS][MOST_CHAINS], vf sum[BYTE_ROWS]) {
  const ext_block_weight* w = s->w;
  const vf scale = vf_load(w->scale + place);
  const vf zero = middle ? vf_zero() : zeros_at(bits, zeros_of(w), w, place);
  EXT_UNROLL
  for (int r = 0; r < rows; r++) {
    const digit_chunk* c = chunk + r * s->bytes->chunks;
    vi total = vq_sum(acc[r][0], vi_set1(0));
    if (chains > 1) total += vq_sum(acc[r][1], vi_set1(0));
    vf part = vi_to_vf(total);
    if (!middle) part = vf_fma(-zero, vi_to_vf(vi_set1(c->high)), part);
    sum[r] = vf_fma(scale * vf_set1(c->unit), part, sum[r]);
  }
}

/* What is fetched ahead. */
enum { NOTHING, WORDS, WORDS_AND_NUMBERS };

/* t = x w.  rows, vectors, bits, middle (no zero points) and ahead are constants. */
EXT_INLINE void walk_bytes(const int rows, const int vectors, const int bits, const int middle,
                           const int ahead, const byte_walk* s) {
  const int64_t k = s->k, step = 32 / bits, stride = s->bytes->padded, panel = s->panel;
  const int64_t numbers = blocks_of(s->w, k) * EXT_PANEL;
  const int32_t* at = s->words;
  int64_t place = s->j / EXT_PANEL * numbers + s->j % EXT_PANEL;
  const int8_t* x = s->bytes->digits + s->row * stride;
  const digit_chunk* chunk = s->bytes->of_chunks + s->row * s->bytes->chunks;
  const int chains = rows * vectors == 1 || (bits == 4 && rows * vectors < 4) ? MOST_CHAINS : 1;
  const int beside = (vectors - 1) / PER_PANEL; /* panels */
  const int64_t first = place;
  vf sum[BYTE_VECTORS][BYTE_ROWS];
  EXT_UNROLL
  for (int i = 0; i < rows * vectors; i++) sum[i / rows][i % rows] = vf_zero();
  for (int64_t p = 0, block_end = i64_min(k, s->w->block); p < k; chunk++) {
    const int64_t end = i64_min(block_end, p + CHUNK);
    const int64_t jump = skipped(words_of(bits, p), WORDS_AHEAD, panel, beside);
    const int64_t skip = skipped(place - first, NUMBERS_AHEAD, numbers, beside);
    vq acc[BYTE_VECTORS][BYTE_ROWS][MOST_CHAINS];
    EXT_UNROLL
    for (int i = 0; i < rows * vectors; i++) {
      const digit_chunk* c = chunk + i % rows * s->bytes->chunks;
      acc[i / rows][i % rows][0] = vq_start(vi_set1(middle ? c->low : 0));
      acc[i / rows][i % rows][1] = vq_start(vi_set1(0));
    }
    if (chains > 1 && bits == 8)
      for (; p + 2 * step <= end; p += 2 * step, at += 2 * EXT_PANEL) {
        if (ahead) __builtin_prefetch(at + WORDS_AHEAD), __builtin_prefetch(at + WORDS_AHEAD + VL);
        dot_bytes(rows, bits, 0, x + p, stride, vi_load(at), acc[0]);
        dot_bytes(rows, bits, 1, x + p + step, stride, vi_load(at + EXT_PANEL), acc[0]);
      }
    for (; p < end; p += step, at += EXT_PANEL) {
      EXT_UNROLL
      for (int v = 0; v < vectors; v++) {
        const int32_t* words = at + v / PER_PANEL * panel + v % PER_PANEL * VL;
        if (ahead && v % PER_PANEL == 0) __builtin_prefetch(words + WORDS_AHEAD + jump);
        dot_bytes(rows, bits, 0, x + p, stride, vi_load(words), acc[v]);
      }
    }
    p = end;
    EXT_UNROLL
    for (int v = 0; v < vectors; v++) {
      const int64_t n = place + v / PER_PANEL * numbers + v % PER_PANEL * VL;
      if (ahead == WORDS_AND_NUMBERS && v % PER_PANEL == 0)
        __builtin_prefetch(s->w->scale + n + NUMBERS_AHEAD + skip);
      scale_chunk(rows, chains, bits, middle, s, chunk, n, acc[v], sum[v]);
    }
    if (p == block_end) {
      place += EXT_PANEL;
      block_end = i64_min(k, block_end + s->w->block);
    }
  }
  EXT_UNROLL
  for (int i = 0; i < rows * vectors; i++)
    vf_store(s->t + i % rows * s->width + i / rows * VL, sum[i / rows][i % rows]);
}

/* Whether a tile has room for two panels.  Of one row Intel's cores read two side by side (Emerald
 * Rapids: 0.86 to 0.98 of a plain read, and 0.80 to 0.92 one after the other); see panels_at_once
 * for others. */
enum { TWO_PANELS = (int)BYTE_VECTORS >= 2 * PER_PANEL };

/* Of one row, a panel after the other, or two side by side. */
EXT_INLINE void walk_row(const int bits, const int ahead, int64_t vectors, const byte_walk* s) {
  const int whole = vectors >= PER_PANEL, middle = !s->w->zero;
  if (TWO_PANELS && vectors > PER_PANEL && middle)
    walk_bytes(1, BYTE_VECTORS, bits, 1, ahead, s);
  else if (TWO_PANELS && vectors > PER_PANEL)
    walk_bytes(1, BYTE_VECTORS, bits, 0, ahead, s);
  else if (whole && middle)
    walk_bytes(1, PER_PANEL, bits, 1, ahead, s);
  else if (whole)
    walk_bytes(1, PER_PANEL, bits, 0, ahead, s);
  else if (middle)
    walk_bytes(1, 1, bits, 1, ahead, s);
  else
    walk_bytes(1, 1, bits, 0, ahead, s);
}

/* Where memory is not to be asked for ahead (ahead.h), 4 bits are nevertheless: of one row, from
 * memory, these are read at 0.99 of a plain read then, and at 0.88 otherwise. */
static void walk_bytes_of_row(int64_t vectors, const byte_walk* s) {
  const int asks = asks_ahead();
  if (s->w->bits == 4 && asks)
    walk_row(4, WORDS_AND_NUMBERS, vectors, s);
  else if (s->w->bits == 4)
    walk_row(4, WORDS, vectors, s);
  else if (asks)
    walk_row(8, WORDS_AND_NUMBERS, vectors, s);
  else
    walk_row(8, NOTHING, vectors, s);
}

#define EXT_BYTE_TILES(rows)                                          \
  static void byte_tile_##rows(int64_t vectors, const byte_walk* s) { \
    if (vectors >= BYTE_VECTORS && !s->w->zero)                       \
      walk_bytes(rows, BYTE_VECTORS, 8, 1, NOTHING, s);               \
    else if (vectors >= BYTE_VECTORS)                                 \
      walk_bytes(rows, BYTE_VECTORS, 8, 0, NOTHING, s);               \
    else if (!s->w->zero)                                             \
      walk_bytes(rows, 1, 8, 1, NOTHING, s);                          \
    else                                                              \
      walk_bytes(rows, 1, 8, 0, NOTHING, s);                          \
  }
EXT_BYTE_ROWS(EXT_BYTE_TILES)
#define EXT_BYTE_TILE_ENTRY(rows) byte_tile_##rows,

/* Walks over as many of the `columns` as it can at once; returns how many.  The words of several
 * rows are bytes. */
static int64_t byte_columns(int64_t rows, int64_t columns, const byte_walk* s) {
  static void (*const tiles[])(int64_t, const byte_walk*) = {EXT_BYTE_ROWS(EXT_BYTE_TILE_ENTRY)};
  const int64_t panel = TWO_PANELS && asks_twice() ? BYTE_VECTORS : PER_PANEL;
  const int64_t most = rows == 1 ? panel : BYTE_VECTORS;
  const int64_t vectors = i64_min(most, ceil_div(columns, VL));
  const int64_t taken = vectors >= most ? most : 1;
  if (rows == 1)
    walk_bytes_of_row(vectors, s);
  else
    tiles[rows - 2](vectors, s);
  return taken * VL;
}

/* Words of 8 rows of 4 bits as two words of bytes each, of `panels` panels of w from `panel` on. */
static void bytes_of_fours(const ext_block_weight* w, int64_t k, int64_t panel, int64_t panels,
                           int32_t* dst) {
  const int32_t* at = (const int32_t*)w->values + panel * words_of(4, k);
  const vi low = vi_set1(0x0f0f0f0f);
  for (int64_t i = 0; i < panels * words_of(4, k); i += EXT_PANEL, dst += 2 * EXT_PANEL) {
    EXT_UNROLL
    for (int v = 0; v < EXT_PANEL; v += VL) {
      const vi word = vi_load(at + i + v);
      vi_store(dst + v, word & low);
      vi_store(dst + EXT_PANEL + v, (vi)((vu)word >> 4) & low);
    }
  }
}

#endif /* DIGIT_ROWS */
#endif /* EXT_BLOCK_BYTES_H_ */
