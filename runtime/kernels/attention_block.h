/*
 * attention_block.h - what a block of keys adds to the sums of a few queries.
 *
 *   s[r][j] = scale q[r] . k[j] + mask[r][j],   e[r][j] = exp(s[r][j] - most),
 *   sums[r] = sums[r] by[r] + sum_j e[r][j] v[j]
 */
#ifndef EXT_ATTENTION_BLOCK_H_
#define EXT_ATTENTION_BLOCK_H_

#include "../simd/math.h"
#include "attention.h"

/* Keys of a block at most, and of one that some rows share. */
enum { BLOCK = 64, SHARED_BLOCK = 32 };

/* Where vectors are long, and registers many, keys are turned for so many rows, if they have so
 * many floats at most: no product needs a sum across lanes then (2000 keys that 7 rows share, on
 * Zen 5: a fifth less time; with AVX2 a fifth more). */
#if VL == 16
#define TURN_ROWS 3
enum { MOST_DEPTH = 128 };
#endif

/* Rows that are computed at once. */
#if defined(TURN_ROWS)
#define DOT_ROWS 8
#else
#define DOT_ROWS FEW_QUERIES
#endif

/* q . k[j] for VL keys that are `row` apart. */
EXT_INLINE vf dots(const float* q, const float* k, int64_t row, int64_t depth) {
  vf t[VL];
  EXT_UNROLL
  for (int j = 0; j < VL; j++) t[j] = vf_zero();
  int64_t i = 0;
  for (; i + VL <= depth; i += VL) {
    const vf x = vf_load(q + i);
    EXT_UNROLL
    for (int j = 0; j < VL; j++) t[j] = vf_fma(x, vf_load(k + j * row + i), t[j]);
  }
  if (i < depth) {
    const vf x = vf_load_n(q + i, depth - i);
    EXT_UNROLL
    for (int j = 0; j < VL; j++) t[j] = vf_fma(x, vf_load_n(k + j * row + i, depth - i), t[j]);
  }
  vf_transpose(t);
  EXT_UNROLL
  for (int step = 1; step < VL; step *= 2) {
    EXT_UNROLL
    for (int j = 0; j < VL; j += 2 * step) t[j] += t[j + step];
  }
  return t[0];
}

/* q . k */
EXT_INLINE float dot(const float* q, const float* k, int64_t depth) {
  vf sum = vf_zero();
  int64_t i = 0;
  for (; i + VL <= depth; i += VL) sum = vf_fma(vf_load(q + i), vf_load(k + i), sum);
  if (i < depth) sum = vf_fma(vf_load_n(q + i, depth - i), vf_load_n(k + i, depth - i), sum);
  return vf_sum(sum);
}

/* Rows that are asked for bit by bit. */
typedef struct {
  const float* at;
  int64_t column, columns, row, rows; /* floats of a row and to the next one; how many are left */
} rows_ahead;

/* Rows of the keys and of the values of the next block, which are asked for while this block is
 * computed: of many reads at once most would wait.  Heads that lie side by side share the work by
 * rows, not by columns: memory that is asked for in order is read ahead by the CPU as well. */
typedef struct {
  rows_ahead keys, values;
  int64_t pace;    /* lines for each product of a row with a vector of keys that lie as they are */
  int values_once; /* values are read once by all rows, not several times */
  int twice;       /* see asks_twice; keys and values by turns, not one after the other */
} ahead;

enum { LINE = EXT_ALIGN / (int)sizeof(float), LINES = 8 };

/* Asks for the next `lines`, a divisor of those of a row or a multiple; the first time, if `twice`,
 * LINES further. */
EXT_INLINE void fetch_rows(rows_ahead* next, int lines, int twice) {
  if (next->rows == 0) return;
  const float* at = next->at + next->column;
  if (twice)
    for (int i = 0; i < lines; i++) __builtin_prefetch(at + (i + LINES) * LINE, 0, 2);
  for (int i = 0; i < lines; i++) __builtin_prefetch(at + i * LINE, 0, 2);
  next->column += lines * LINE;
  if (next->column < next->columns) return;
  next->column = 0;
  next->at += next->row;
  next->rows--;
}

/* Asks for the next `lines`, LINES or half of them. */
EXT_INLINE void fetch(ahead* next, const int lines) {
  if (next->twice) {
    fetch_rows(&next->keys, lines / 2, 1);
    fetch_rows(&next->values, lines / 2, 1);
    return;
  }
  fetch_rows(next->keys.rows ? &next->keys : &next->values, lines, 0);
}

/* s[j] = scale q . k[j] + mask[j step]; returns the greatest, -inf of none and of NaN alone. */
static float scores(const ext_attention_params* p, const float* q, const float* k, int64_t n,
                    const float* mask, float* s, ahead* next) {
  const int64_t row = p->k_strides[2], step = p->mask_strides[3];
  const vf scale = vf_set1(p->scale);
  vf high = vf_set1(-__builtin_inff());
  int64_t j = 0;
  for (; j + VL <= n; j += VL) {
    for (int64_t left = next->pace; left > 0; left -= LINES) fetch(next, LINES);
    vf v = dots(q, k + j * row, row, p->depth) * scale;
    if (mask) v += step ? vf_load(mask + j) : vf_set1(*mask);
    high = vf_select(vm_lt(high, v), v, high); /* unlike vf_max, without NaNs */
    vf_store(s + j, v);
  }
  float most = vf_most(high);
  for (; j < n; j++) {
    s[j] = dot(q, k + j * row, p->depth) * p->scale + (mask ? mask[j * step] : 0.0f);
    most = s[j] > most ? s[j] : most;
  }
  return most;
}

#if defined(TURN_ROWS)

/* kt[i][j] = k[j][i] for the n keys of a block, which are `row` apart, and zeros behind them. */
static void turn_keys(const float* k, int64_t row, int64_t n, int64_t depth, float* kt,
                      ahead* next) {
  for (int64_t j = 0; j < n; j += VL)
    for (int64_t i = 0; i < depth; i += VL) {
      const float* from = k + j * row + i;
      float* to = kt + i * SHARED_BLOCK + j;
      vf t[VL];
      fetch(next, LINES);
      if (j + VL <= n && i + VL <= depth) {
        EXT_UNROLL
        for (int r = 0; r < VL; r++) t[r] = vf_load(from + r * row);
        vf_transpose(t);
        EXT_UNROLL
        for (int r = 0; r < VL; r++) vf_store(to + r * SHARED_BLOCK, t[r]);
        continue;
      }
      const int64_t lanes = i64_min(VL, depth - i);
      for (int r = 0; r < VL; r++) t[r] = j + r < n ? vf_load_n(from + r * row, lanes) : vf_zero();
      vf_transpose(t);
      for (int r = 0; r < lanes; r++) vf_store(to + r * SHARED_BLOCK, t[r]);
    }
}

/* s[r][j] = q[r] . k[j] for `rows` rows and a pair of vectors of keys, from keys that are turned.
 */
EXT_INLINE void dots_of_rows(const int rows, const float* const* q, const float* kt, int64_t depth,
                             float* s, ahead* next) {
  const int lines = next->twice ? LINES / 2 : LINES; /* those of values are among them */
  vf sum[DOT_ROWS][2];
  EXT_UNROLL
  for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = vf_zero();
  for (int64_t i = 0; i < depth; i++, kt += SHARED_BLOCK) {
    const vf first = vf_load(kt), second = vf_load(kt + VL);
    if (i % 4 == 0) fetch(next, lines);
    EXT_UNROLL
    for (int r = 0; r < rows; r++) {
      const vf x = vf_set1(q[r][i]);
      sum[r][0] = vf_fma(x, first, sum[r][0]);
      sum[r][1] = vf_fma(x, second, sum[r][1]);
    }
  }
  EXT_UNROLL
  for (int r = 0; r < rows; r++) {
    vf_store(s + r * BLOCK, sum[r][0]);
    vf_store(s + r * BLOCK + VL, sum[r][1]);
  }
}

/* dots_of_rows of a whole block for `rows` rows, DOT_ROWS at most. */
static void dots_of_block(int64_t rows, const float* const* q, const float* kt, int64_t n,
                          int64_t depth, float* s, ahead* next) {
  for (int64_t j = 0; j < n; j += 2 * VL) switch (rows) {
      case 8: dots_of_rows(8, q, kt + j, depth, s + j, next); break;
      case 7: dots_of_rows(7, q, kt + j, depth, s + j, next); break;
      case 6: dots_of_rows(6, q, kt + j, depth, s + j, next); break;
      case 5: dots_of_rows(5, q, kt + j, depth, s + j, next); break;
      case 4: dots_of_rows(4, q, kt + j, depth, s + j, next); break;
      case 3: dots_of_rows(3, q, kt + j, depth, s + j, next); break;
      case 2: dots_of_rows(2, q, kt + j, depth, s + j, next); break;
      default: dots_of_rows(1, q, kt + j, depth, s + j, next);
    }
}

/* s[j] = scale s[j] + mask[j step]; returns the greatest, as `scores` does. */
static float masked(const ext_attention_params* p, int64_t n, const float* mask, float* s) {
  const int64_t step = p->mask_strides[3];
  const vf scale = vf_set1(p->scale);
  vf high = vf_set1(-__builtin_inff());
  int64_t j = 0;
  for (; j + VL <= n; j += VL) {
    vf v = vf_load(s + j) * scale;
    if (mask) v += step ? vf_load(mask + j) : vf_set1(*mask);
    high = vf_select(vm_lt(high, v), v, high); /* unlike vf_max, without NaNs */
    vf_store(s + j, v);
  }
  float most = vf_most(high);
  for (; j < n; j++) {
    s[j] = s[j] * p->scale + (mask ? mask[j * step] : 0.0f);
    most = s[j] > most ? s[j] : most;
  }
  return most;
}

#endif /* TURN_ROWS */

/* s[j] = exp(s[j] - most), whole vectors of s; returns the sum of the first n. */
static float exponentials(float* s, int64_t n, float most) {
  const vf shift = vf_set1(most);
  vf sum = vf_zero();
  int64_t j = 0;
  for (; j + VL <= n; j += VL) {
    const vf e = vf_exp_normal(vf_load(s + j) - shift);
    vf_store(s + j, e);
    sum += e;
  }
  float total = vf_sum(sum);
  if (j < n) {
    vf_store(s + j, vf_exp_normal(vf_load_n(s + j, n - j) - shift));
    for (; j < n; j++) total += s[j];
  }
  return total;
}

/* For `rows` sums that are `apart`, and `vectors` of their columns, of which the last one has
 * `lanes`: sums[r] = sums[r] by[r] + sum_j s[r][j] v[j], values that are `row` apart, and factors
 * that are `s_row` and `s_key`. */
EXT_INLINE void add_columns(const int s_row, const int s_key, const int rows, const int vectors,
                            int64_t lanes, const float* s, const float* v, int64_t row, int64_t n,
                            const float* by, float* sums, int64_t apart, ahead* next) {
  /* A lone row has two chains of sums, which hide the latency of multiply-adds. */
  const int chains = rows == 1 ? 2 : 1, asks = rows > 1 || next->twice;
  vf y[2 * FEW_QUERIES][FEW_VECTORS];
  EXT_UNROLL
  for (int r = 0; r < rows * chains; r++) {
    EXT_UNROLL
    for (int i = 0; i < vectors; i++)
      y[r][i] = r < rows ? vf_load(sums + r * apart + i * VL) * vf_set1(by[r]) : vf_zero();
  }
  int64_t j = 0;
  for (; j + chains <= n; j += chains) {
    EXT_UNROLL
    for (int c = 0; c < chains; c++, v += row) {
      vf x[FEW_VECTORS];
      if (asks && ((j + c) % 2 || next->values_once)) fetch(next, LINES / 2);
      EXT_UNROLL
      for (int i = 0; i < vectors; i++)
        x[i] = lanes == VL ? vf_load(v + i * VL) : vf_load_n(v + i * VL, lanes);
#if VL == 16
      /* Of three rows the compiler would load each vector three times, and wait for the loads. */
      EXT_UNROLL
      for (int i = 0; rows > 1 && i < vectors; i++) x[i] = vf_keep(x[i]);
#endif
      EXT_UNROLL
      for (int r = 0; r < rows; r++) {
        const vf factor = vf_set1(s[r * s_row + (j + c) * s_key]);
        EXT_UNROLL
        for (int i = 0; i < vectors; i++)
          y[c * rows + r][i] = vf_fma(factor, x[i], y[c * rows + r][i]);
      }
    }
  }
  if (chains == 2) {
    EXT_UNROLL
    for (int i = 0; i < vectors; i++) {
      y[0][i] += y[1][i];
      if (j == n) continue;
      const vf x = lanes == VL ? vf_load(v + i * VL) : vf_load_n(v + i * VL, lanes);
      y[0][i] = vf_fma(vf_set1(s[j * s_key]), x, y[0][i]);
    }
  }
  EXT_UNROLL
  for (int r = 0; r < rows; r++) {
    EXT_UNROLL
    for (int i = 0; i < vectors; i++) vf_store(sums + r * apart + i * VL, y[r][i]);
  }
}

/* add_columns of all columns. */
EXT_INLINE void add_values(const int s_row, const int s_key, const int rows, const float* s,
                           const float* v, int64_t row, int64_t n, int64_t width, const float* by,
                           float* sums, int64_t apart, ahead* next) {
  int64_t c = 0;
  for (; c + FEW_VECTORS * VL <= width; c += FEW_VECTORS * VL)
    add_columns(s_row, s_key, rows, FEW_VECTORS, VL, s, v + c, row, n, by, sums + c, apart, next);
  for (; c < width; c += VL)
    add_columns(s_row, s_key, rows, 1, i64_min(VL, width - c), s, v + c, row, n, by, sums + c,
                apart, next);
}

/* add_values of at most FEW_QUERIES rows. */
EXT_INLINE void add_few_values(const int s_row, const int s_key, int64_t rows, const float* s,
                               const float* v, int64_t row, int64_t n, int64_t width,
                               const float* by, float* sums, int64_t apart, ahead* next) {
#define ADD(rows) add_values(s_row, s_key, rows, s, v, row, n, width, by, sums, apart, next)
  switch (rows) {
#if FEW_QUERIES > 2
    case 4: ADD(4); break;
    case 3: ADD(3); break;
#endif
    case 2: ADD(2); break;
    default: ADD(1);
  }
#undef ADD
}

#endif /* EXT_ATTENTION_BLOCK_H_ */
