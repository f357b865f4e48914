/*
 * Internal: 2 x 2 of AMX's tiles of sums, fp32 or int32: registers 0 and 1 above 2 and 3.  `high`
 * and `wide` tell of a second tile of rows, and of columns; constants.  In memory rows of sums are
 * `row` sums apart.
 */
#ifndef EXT_TILE_SUMS_H_
#define EXT_TILE_SUMS_H_

#include "../simd/amx.h"

/* The sum `index` behind the first one. */
EXT_INLINE const void* tile_sums_at(const void* sums, int64_t index) {
  return (const char*)sums + index * TILE_BYTES / EXT_PANEL;
}

EXT_INLINE void tile_sums_zero(const int high, const int wide, tile_file* f) {
  tile_zero(f, 0);
  if (wide) tile_zero(f, 1);
  if (high) tile_zero(f, 2);
  if (high && wide) tile_zero(f, 3);
}

/* `row` may be 0: the same sums in all rows. */
EXT_INLINE void tile_sums_load(const int high, const int wide, tile_file* f, const void* sums,
                               int64_t row) {
  const int64_t bytes = row * TILE_BYTES / EXT_PANEL, below = TILE_ROWS * row;
  tile_load(f, 0, sums, bytes);
  if (wide) tile_load(f, 1, tile_sums_at(sums, EXT_PANEL), bytes);
  if (high) tile_load(f, 2, tile_sums_at(sums, below), bytes);
  if (high && wide) tile_load(f, 3, tile_sums_at(sums, below + EXT_PANEL), bytes);
}

EXT_INLINE void tile_sums_store(const int high, const int wide, const tile_file* f, void* sums,
                                int64_t row) {
  const int64_t bytes = row * TILE_BYTES / EXT_PANEL, below = TILE_ROWS * row;
  tile_store(f, 0, sums, bytes);
  if (wide) tile_store(f, 1, (void*)tile_sums_at(sums, EXT_PANEL), bytes);
  if (high) tile_store(f, 2, (void*)tile_sums_at(sums, below), bytes);
  if (high && wide) tile_store(f, 3, (void*)tile_sums_at(sums, below + EXT_PANEL), bytes);
}

/* Whether all of so many fp32 sums are numbers, and those that fill the last vectors. */
static __attribute__((noinline, unused)) int are_finite(int64_t rows, int64_t columns,
                                                        const float* sums, int64_t row) {
  vf even = vf_zero(), odd = vf_zero(); /* NaN where one is none */
  for (; rows > 0; rows--, sums += row)
    for (int64_t c = 0; c < columns; c += 2 * VL) {
      even = vf_fma(vf_load(sums + c), vf_zero(), even);
      if (c + VL < columns) odd = vf_fma(vf_load(sums + c + VL), vf_zero(), odd);
    }
  return !vm_any(vm_nan(even + odd));
}

/* sums[r][j] += sum_p a[r][p] b[p][j], r < rows, j < columns, p < k, in vectors: where tiles give
 * no numbers.  b is in panels, `panel` floats apart. */
static __attribute__((noinline, unused)) void add_products(int64_t rows, int64_t columns, int64_t k,
                                                           const float* a, int64_t a_row,
                                                           const float* b, int64_t panel,
                                                           float* sums, int64_t row) {
  enum { AT_ONCE = 8 }; /* rows; the last one stands in for those that there are not */
  for (int64_t r = 0; r < rows; r += AT_ONCE)
    for (int64_t j = 0; j < columns; j += VL) {
      const float *from[AT_ONCE], *w = b + j / EXT_PANEL * panel + j % EXT_PANEL;
      float* to[AT_ONCE];
      vf sum[AT_ONCE];
      EXT_UNROLL
      for (int i = 0; i < AT_ONCE; i++) {
        from[i] = a + i64_min(r + i, rows - 1) * a_row;
        to[i] = sums + i64_min(r + i, rows - 1) * row + j;
        sum[i] = vf_load(to[i]);
      }
      for (int64_t p = 0; p < k; p++) {
        const vf column = vf_load(w + p * EXT_PANEL);
        EXT_UNROLL
        for (int i = 0; i < AT_ONCE; i++) sum[i] = vf_fma(vf_set1(from[i][p]), column, sum[i]);
      }
      EXT_UNROLL
      for (int i = 0; i < AT_ONCE; i++) vf_store(to[i], sum[i]);
    }
}

/* sums += products of bf16, of rows of A in registers 4 and 5 by panels of B in 6 and 7.  No
 * function, as the rows for bytes have no such instruction. */
#define tile_sums_add(high, wide, f)            \
  do {                                          \
    tile_dot(f, 0, 4, 6);                       \
    if (wide) tile_dot(f, 1, 4, 7);             \
    if (high) tile_dot(f, 2, 5, 6);             \
    if ((high) && (wide)) tile_dot(f, 3, 5, 7); \
  } while (0)

#endif /* EXT_TILE_SUMS_H_ */
