/*
 * gemm_parts.h - an fp32 in three parts, and the microkernel that multiplies parts on tiles.
 *
 *   x = x1 + x2 + x3: each the bf16 nearest to what is left, halves away from zero
 *
 * bf16 has 8 bits, so that |x2| <= 2^-8 |x|, |x3| <= 2^-16 |x|, and nothing is left of 24.  Of the
 * nine products of two such sums six are added up in fp32,
 *
 *   x w ~ x1 w1 + (x1 w2 + x2 w1) + (x1 w3 + x2 w2 + x3 w1),
 *
 * and what is not there is at most 2^-23 |x w|, less than what sums of a few products lose by
 * rounding.  (G. Henry, P. T. P. Tang, A. Heinecke: Leveraging the bfloat16 Artificial Intelligence
 * Datatype For Higher-Precision Computations, 2019.)
 *
 * Of an infinity, a NaN, or an fp32 that is beyond the greatest bf16, x3 is a NaN, and so are all
 * sums that it is part of.  A product beyond the greatest fp32 gives infinities of either sign, and
 * their sum a NaN.  So sums that are no numbers are computed once more, in vectors.  Below 2^-110
 * or so units for bf16 take the lower parts as zero.
 *
 * What is packed.  K goes by steps of 32; of each the numbers k and k + 16 are neighbours, which
 * two vectors give without crossing lanes.  A step of A has [3 parts][32 rows][16][2], one of B
 * [2 panels][3 parts][16][16 columns][2]: a tile of either is 1 KB in one piece.
 */
#ifndef EXT_GEMM_PARTS_H_
#define EXT_GEMM_PARTS_H_

#include "gemm.h"
#include "tile_sums.h"

enum {
  PARTS = 3,
  PARTS_ROWS = GEMM_PARTS_ROWS,        /* of a micropanel: two tiles */
  PARTS_COLUMNS = GEMM_PARTS_COLUMNS,  /* of a tile of sums: two panels */
  PARTS_K = 32,                        /* a step */
  PARTS_TILE = TILE_ROWS * PARTS_K,    /* elements of a tile */
  PARTS_STEP = 2 * PARTS * PARTS_TILE, /* of a step of either operand */
  PARTS_SUMS = PARTS_ROWS * PARTS_COLUMNS,
  QUARTER = TILE_ROWS / 4 /* rows of a tile that are taken apart at once */
};

_Static_assert(PARTS_ROWS == 2 * TILE_ROWS && PARTS_COLUMNS == 2 * EXT_PANEL, "two by two tiles");

/* fp32 numbers to take apart: tiles of 16 rows, each of which is two vectors of 16 floats. */
typedef struct {
  const float* from;
  int64_t row, second; /* floats from row to row, and from the first vector to the second */
  int64_t tile, step; /* from tile to tile, of which a step has one or two, and from step to step */
  int64_t rows;       /* that there are in a step: the last one stands in for others */
  int64_t tiles;      /* of a step */
  int64_t ahead;      /* floats to what is taken apart later, and goes to L2 meanwhile */
  uint16_t* to;
  int64_t part, to_tile; /* elements from part to part, and from tile to tile */
  int64_t done, quarters;
} parts_split;

/* The upper halves of a, and those of b above them. */
EXT_INLINE vi upper_halves(vi a, vi b) {
  return (vi)((vu)a >> 16 | ((vu)b & 0xffff0000u));
}

/* The parts of a[i] and b[i], i < VL, as pairs. */
EXT_INLINE void take_apart(vf a, vf b, uint16_t* to, int64_t part) {
  EXT_UNROLL
  for (int i = 0; i < PARTS - 1; i++, to += part) {
    const vi a_high = (vi)(((vu)a + 0x8000u) & 0xffff0000u);
    const vi b_high = (vi)(((vu)b + 0x8000u) & 0xffff0000u);
    vi_store((int32_t*)to, upper_halves(a_high, b_high));
    a -= (vf)a_high;
    b -= (vf)b_high;
  }
  vi_store((int32_t*)to, upper_halves((vi)a, (vi)b));
}

/* Takes apart up to `count` quarters of tiles more. */
static __attribute__((noinline, unused)) void split_some(parts_split* split, int64_t count) {
  const parts_split s = *split; /* read once: for all the compiler knows, parts are where it is */
  const int64_t end = i64_min(s.done + count, s.quarters);
  for (int64_t q = s.done; q < end; q++) {
    const int64_t tile = q / 4, half = tile & (s.tiles - 1), step = tile >> (s.tiles - 1);
    const int64_t first = q % 4 * QUARTER, below = s.rows - 1 - half * TILE_ROWS;
    const float* from = s.from + step * s.step + half * s.tile + i64_min(first, below) * s.row;
    uint16_t* to = s.to + step * PARTS_STEP + half * s.to_tile + first * 2 * EXT_PANEL;
    EXT_UNROLL
    for (int r = 0; r < QUARTER; r++, to += 2 * EXT_PANEL) {
      EXT_UNROLL
      for (int v = 0; v < EXT_PANEL; v += VL)
        take_apart(vf_load(from + v), vf_load(from + s.second + v), to + 2 * v, s.part);
      __builtin_prefetch(from + s.ahead, 0, 2);
      __builtin_prefetch(from + s.ahead + s.second, 0, 2);
      from += first + r < below ? s.row : 0;
    }
  }
  split->done = end;
}
EXT_INLINE void split_rest(parts_split* split) {
  split_some(split, split->quarters);
}

/* Part i of a step of A into tiles 4 and 5, or of B into tiles 6 and 7. */
#define PARTS_LOAD_A(i)                                                         \
  do {                                                                          \
    tile_load_once(f, 4, a + (i) * 2 * PARTS_TILE, TILE_BYTES);                 \
    if (high) tile_load_once(f, 5, a + ((i) * 2 + 1) * PARTS_TILE, TILE_BYTES); \
  } while (0)
#define PARTS_LOAD_B(i)                                                    \
  do {                                                                     \
    tile_load(f, 6, b + (i) * PARTS_TILE, TILE_BYTES);                     \
    if (wide) tile_load(f, 7, b + (PARTS + (i)) * PARTS_TILE, TILE_BYTES); \
  } while (0)

/* sums[32][32] (+)= A B for so many steps of K, while other numbers are taken apart: so many
 * quarters of tiles twice in each step.  `first`: the sums begin with these.  `high` and `wide`
 * tell of a second tile of rows, and of columns; constants. */
EXT_INLINE void parts_tile(const int high, const int wide, const uint16_t* a, const uint16_t* b,
                           int64_t steps, float* sums, int first, parts_split* next_a,
                           int64_t a_share, parts_split* next_b, int64_t b_share) {
  tile_file file, *f = &file;
  if (first)
    tile_sums_zero(high, wide, f);
  else
    tile_sums_load(high, wide, f, sums, PARTS_COLUMNS);
  for (; steps > 0; steps--, a += PARTS_STEP, b += PARTS_STEP) {
    PARTS_LOAD_A(0);
    PARTS_LOAD_B(2);
    tile_sums_add(high, wide, f);
    PARTS_LOAD_B(1);
    tile_sums_add(high, wide, f);
    if (b_share) split_some(next_b, b_share);
    if (a_share) split_some(next_a, a_share);
    PARTS_LOAD_A(1);
    tile_sums_add(high, wide, f);
    PARTS_LOAD_B(0);
    tile_sums_add(high, wide, f);
    if (b_share) split_some(next_b, b_share);
    if (a_share) split_some(next_a, a_share);
    PARTS_LOAD_A(2);
    tile_sums_add(high, wide, f);
    PARTS_LOAD_A(0);
    tile_sums_add(high, wide, f);
  }
  tile_sums_store(high, wide, f, sums, PARTS_COLUMNS);
}

#endif /* EXT_GEMM_PARTS_H_ */
