/* Internal: transposes, y[i ys + j] = x[j xs + i], of elements of any size. */
#ifndef EXT_TRANSPOSE_H_
#define EXT_TRANSPOSE_H_

#include "../simd/simd.h"
#include "public.h"

/* y[i n + j] = x[j stride + i] and its reverse, y[j stride + i] = x[i n + j], i < count, j < n: the
 * shuffles of channels and of pixels, in which the compiler finds vectors for a constant n. */
#define EXT_INTERLEAVE(n, type, name)                                                    \
  static void interleave##n##name(int64_t count, const type* restrict x, int64_t stride, \
                                  type* restrict y) {                                    \
    for (int64_t i = 0; i < count; i++) {                                                \
      EXT_UNROLL                                                                         \
      for (int j = 0; j < n; j++) y[i * n + j] = x[j * stride + i];                      \
    }                                                                                    \
  }                                                                                      \
  static void separate##n##name(int64_t count, const type* restrict x, type* restrict y, \
                                int64_t stride) {                                        \
    for (int64_t i = 0; i < count; i++) {                                                \
      EXT_UNROLL                                                                         \
      for (int j = 0; j < n; j++) y[j * stride + i] = x[i * n + j];                      \
    }                                                                                    \
  }
EXT_INTERLEAVE(2, float, )
EXT_INTERLEAVE(3, float, )
EXT_INTERLEAVE(4, float, )
EXT_INTERLEAVE(2, uint8_t, _bytes)
EXT_INTERLEAVE(3, uint8_t, _bytes)
EXT_INTERLEAVE(4, uint8_t, _bytes)
EXT_INTERLEAVE(2, uint16_t, _halves)
EXT_INTERLEAVE(3, uint16_t, _halves)
EXT_INTERLEAVE(4, uint16_t, _halves)
EXT_INTERLEAVE(2, uint64_t, _words)
EXT_INTERLEAVE(3, uint64_t, _words)
EXT_INTERLEAVE(4, uint64_t, _words)

/* A transpose with two to four dense columns, or as many dense rows in x; 0 where it has none. */
#define EXT_TRANSPOSE_FEW(type, name)                                                             \
  static inline int transpose_few##name(int64_t rows, int64_t columns, const type* x, int64_t xs, \
                                        type* y, int64_t ys) {                                    \
    switch (ys == columns ? columns : 0) {                                                        \
      case 2: interleave2##name(rows, x, xs, y); return 1;                                        \
      case 3: interleave3##name(rows, x, xs, y); return 1;                                        \
      case 4: interleave4##name(rows, x, xs, y); return 1;                                        \
      default: break;                                                                             \
    }                                                                                             \
    switch (xs == rows ? rows : 0) {                                                              \
      case 2: separate2##name(columns, x, y, ys); return 1;                                       \
      case 3: separate3##name(columns, x, y, ys); return 1;                                       \
      case 4: separate4##name(columns, x, y, ys); return 1;                                       \
      default: return 0;                                                                          \
    }                                                                                             \
  }
EXT_TRANSPOSE_FEW(float, )
EXT_TRANSPOSE_FEW(uint8_t, _bytes)
EXT_TRANSPOSE_FEW(uint16_t, _halves)
EXT_TRANSPOSE_FEW(uint64_t, _words)

/* y[i ys + j] = x[j xs + i], i < rows, j < columns, for VL of each at most. */
static void transpose_tile(int64_t rows, int64_t columns, const float* x, int64_t xs, float* y,
                           int64_t ys) {
  vf t[VL];
  EXT_UNROLL
  for (int k = 0; k < VL; k++) t[k] = k < columns ? vf_load_n(x + k * xs, rows) : vf_zero();
  vf_transpose(t);
  EXT_UNROLL
  for (int k = 0; k < VL; k++)
    if (k < rows) vf_store_n(y + k * ys, t[k], columns);
}

/* y[i ys + j] = x[j xs + i], i < rows, j < columns, for VL of each. */
EXT_INLINE void transpose_full_tile(const float* x, int64_t xs, float* y, int64_t ys) {
  vf t[VL];
  EXT_UNROLL
  for (int k = 0; k < VL; k++) t[k] = vf_load(x + k * xs);
  vf_transpose(t);
  EXT_UNROLL
  for (int k = 0; k < VL; k++) vf_store(y + k * ys, t[k]);
}

/* y[i ys + j] = x[j][at + i], i < rows, j < columns, for VL of each at most. */
EXT_INLINE void transpose_lines(int64_t rows, int64_t columns, const float* const* x, int64_t at,
                                float* y, int64_t ys) {
  vf t[VL];
  EXT_UNROLL
  for (int k = 0; k < VL; k++)
    t[k] = rows == VL ? vf_load(x[k] + at) : k < columns ? vf_load_n(x[k] + at, rows) : vf_zero();
  vf_transpose(t);
  EXT_UNROLL
  for (int k = 0; k < VL; k++) {
    if (k >= rows) break;
    if (columns == VL)
      vf_store(y + k * ys, t[k]);
    else
      vf_store_n(y + k * ys, t[k], columns);
  }
}

/* y[i ys + j] = x[j xs + i], i < rows, j < columns: tile after tile along the lines of the side
 * whose lines lie further apart, so that few of them are open at a time. */
static void transpose(int64_t rows, int64_t columns, const float* x, int64_t xs, float* y,
                      int64_t ys) {
  if (transpose_few(rows, columns, x, xs, y, ys)) return;
  const int64_t full_rows = rows / VL * VL, full_columns = columns / VL * VL;
  if (ys > xs) {
    for (int64_t i = 0; i < full_rows; i += VL)
      for (int64_t j = 0; j < full_columns; j += VL)
        transpose_full_tile(x + j * xs + i, xs, y + i * ys + j, ys);
  } else {
    for (int64_t j = 0; j < full_columns; j += VL)
      for (int64_t i = 0; i < full_rows; i += VL)
        transpose_full_tile(x + j * xs + i, xs, y + i * ys + j, ys);
  }
  for (int64_t j = 0; j < full_columns && full_rows < rows; j += VL)
    transpose_tile(rows - full_rows, VL, x + j * xs + full_rows, xs, y + full_rows * ys + j, ys);
  for (int64_t i = 0; i < rows && full_columns < columns; i += VL)
    transpose_tile(i64_min(VL, rows - i), columns - full_columns, x + full_columns * xs + i, xs,
                   y + i * ys + full_columns, ys);
}

/* The same for elements of another size. */
#define EXT_TRANSPOSE(type, name)                                                              \
  static inline void transpose##name(int64_t rows, int64_t columns, const type* x, int64_t xs, \
                                     type* y, int64_t ys) {                                    \
    if (transpose_few##name(rows, columns, x, xs, y, ys)) return;                              \
    for (int64_t j = 0; j < columns; j++)                                                      \
      for (int64_t i = 0; i < rows; i++) y[i * ys + j] = x[j * xs + i];                        \
  }
EXT_TRANSPOSE(uint8_t, _bytes)
EXT_TRANSPOSE(uint16_t, _halves)

#endif
