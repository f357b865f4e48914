/*
 * bgemm_tile.h - the microkernel of bf16 products: a tile of fp32 sums.
 *
 *   v[i][j] = c[i][j] + bias[j] + sum_p a[i][p] * b[p][j],  i < rows <= BR, j < columns
 *
 * With EXT_PARTS 2 tiles add up high high + high low + low high of the parts; vectors multiply in
 * fp32, as no unit without tiles does three such products in less time.
 *
 * Either v is written to `sums`, in whole vectors, or finished in registers: residual, clamp, and
 * storing as fp32 or bf16.
 *
 * bgemm_vectors.h has the sums in vectors, bgemm_tiles.h in AMX's tiles.
 */
#ifndef EXT_BGEMM_TILE_H_
#define EXT_BGEMM_TILE_H_

#include "../simd/bf16_pairs.h"
#include "bgemm.h"
#if defined(EXT_TILES)
#include "../simd/amx.h"
#endif

typedef struct {
  const ba* a; /* rows a_row apart */
  int64_t a_row;
  const uint16_t* b; /* two rows of a panel; the next two follow, the next panel at + panel */
  int64_t panel;
  const uint16_t* next; /* a panel that is wanted soon: goes to L2 meanwhile */
  int64_t next_lines;   /* of it, for every step of a tile's K */
  int64_t pairs;        /* of rows of B */
  int64_t rows, columns;
  const float* c; /* NULL, or what earlier blocks of K summed up; may be `sums` */
  int64_t c_row;
  const float* bias; /* what the first of them began with */
  /* Numbers of K that c has the products of, which lie before those at `a` and `b`, or 0: with
   * parts they say what the sums are of.  `unfinished`: more follow, and then all are looked at. */
  int64_t before;
  int unfinished;
  float* sums; /* NULL: finish in registers */
  int64_t sums_row;
  float low, high;       /* y = min(max(v + residual or v * residual, low), high) */
  int has_low, has_high; /* whether they are finite */
  ext_storage s;
  const void* residual; /* NULL or a tile; may be y */
  int64_t residual_row;
  int residual_is_factor;
  void* y;
  int64_t y_row;
} bgemm_tile;

typedef void (*bgemm_tile_function)(const bgemm_tile* t);

/* Whether a tile that ends within a vector can be finished in registers. */
#if defined(EXT_MASKED_LANES)
enum { BTILE_MASKED = 1 };
#else
enum { BTILE_MASKED = 0 };
#endif

/* VL stored numbers as fp32, or the first `lanes` of them where `whole`, a constant, is 0. */
EXT_INLINE vf btile_load(const int whole, ext_dtype dtype, const void* p, int64_t lanes) {
  if (dtype == EXT_BFLOAT16) return vbf_widen(whole ? vbf_load(p) : vbf_load_n(p, lanes));
  return whole ? vf_load(p) : vf_load_n(p, lanes);
}

EXT_INLINE void btile_store(const int whole, ext_dtype dtype, void* p, vf x, int64_t lanes) {
  if (dtype == EXT_BFLOAT16) {
    vbf y = vbf_round(x);
    if (whole)
      vbf_store(p, y);
    else
      vbf_store_n(p, y, lanes);
  } else if (whole) {
    vf_store(p, x);
  } else {
    vf_store_n(p, x, lanes);
  }
}

/* Adds to `sums`, which has nv vectors, row i of the residual as `dtype`, a constant, has it; or
 * multiplies by it. */
EXT_INLINE void btile_join(const int nv, const ext_dtype dtype, const bgemm_tile* t, int64_t i,
                           vf sums[]) {
  const int64_t lanes = t->columns - (nv - 1) * VL;
  EXT_UNROLL
  for (int v = 0; v < nv; v++) {
    const void* at = stored_at(t->residual, dtype, i * t->residual_row + v * VL);
    const vf other = btile_load(!BTILE_MASKED || v < nv - 1, dtype, at, lanes);
    sums[v] = t->residual_is_factor ? sums[v] * other : sums[v] + other;
  }
}

/* Writes row i of y, of `sums` within the bounds that there are. */
EXT_INLINE void btile_write(const int nv, const ext_dtype dtype, const bgemm_tile* t, int64_t i,
                            vf sums[]) {
  const int64_t lanes = t->columns - (nv - 1) * VL;
  if (t->has_low) {
    const vf low = vf_set1(t->low);
    EXT_UNROLL
    for (int v = 0; v < nv; v++) sums[v] = vf_max(low, sums[v]);
  }
  if (t->has_high) {
    const vf high = vf_set1(t->high);
    EXT_UNROLL
    for (int v = 0; v < nv; v++) sums[v] = vf_min(high, sums[v]);
  }
  const int in_pairs = dtype == EXT_BFLOAT16 && nv % 2 == 0;
  EXT_UNROLL
  for (int v = 0; v < nv; v += 1 + in_pairs) {
    const int whole = !BTILE_MASKED || v + in_pairs < nv - 1;
    void* at = (void*)stored_at(t->y, dtype, i * t->y_row + v * VL);
    if (in_pairs)
      vbf_store_two(whole, at, sums[v], sums[v + 1], lanes);
    else
      btile_store(whole, dtype, at, sums[v], lanes);
  }
}

/* Around the tiles of a thread.  Where all tiles have so many rows, no others of A are read. */
EXT_INLINE void btile_session_begin(int64_t rows) {
#if defined(EXT_TILES)
  if (rows < BR)
    tile_begin_rows(rows);
  else
    tile_begin();
#else
  (void)rows;
#endif
}
EXT_INLINE void btile_session_end(void) {
#if defined(EXT_TILES)
  tile_end();
#endif
}

/* The function of bgemm.c for a tile of so many rows and vectors, BHALF or BN. */
bgemm_tile_function EXT_NAME(ext_bgemm_tile)(int64_t rows, int64_t vectors);

#endif /* EXT_BGEMM_TILE_H_ */
