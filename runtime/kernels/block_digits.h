/*
 * block_digits.h - rows of a as integers, for units that add products of bytes.
 *
 *   sum_p a[p] (q[p] - zero) = unit (high + low / 2^16)
 *
 * Of a chunk of a block, a[p] is rounded towards zero to a whole number of 2^-30 of a power of 2
 * next to the largest: four digits of 8 signed bits.  The sums of their products with q are exact,
 * so the result is closer than one that is summed in fp32, wherever numbers of a chunk differ by
 * less than 2^7.  Digits are made once, and serve all columns.
 */
#ifndef EXT_BLOCK_DIGITS_H_
#define EXT_BLOCK_DIGITS_H_

#include "block_weight.h"

#if defined(DIGIT_ROWS)

enum {
  DIGITS = 4,
  CHUNK = 128, /* rows: 255 * 128 * 128 * 256 < 2^31 */
  LEAST_EXPONENT = 29
};

typedef struct {
  float unit;
  int32_t high, low; /* sums of the digits: 256 first + second, 256 third + fourth */
} digit_chunk;

/* Digits of the rows of a, [row][DIGITS][padded], and what belongs to their chunks, [row][chunks].
 */
typedef struct {
  int64_t padded, chunks;
  int8_t* digits;
  digit_chunk* of_chunks;
  void* memory;
} block_digits;

EXT_INLINE int64_t chunk_end(int64_t p, int64_t block, int64_t k) {
  int64_t end = i64_min(k, (p / block + 1) * block);
  return i64_min(end, p + CHUNK);
}

EXT_INLINE float power_of_2(int32_t biased) {
  int32_t bits = biased << 23;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* Digits of n numbers x; those of one place are `padded` apart. */
static digit_chunk digits_of_chunk(const float* x, int64_t n, int8_t* digits, int64_t padded) {
  int32_t most = 0, high = 0, low = 0;
  for (int64_t i = 0; i < n; i++) {
    int32_t bits;
    memcpy(&bits, x + i, sizeof bits);
    bits &= INT32_MAX;
    most = bits > most ? bits : most;
  }
  int32_t exponent = most >> 23 > LEAST_EXPONENT ? most >> 23 : LEAST_EXPONENT;
  const float factor = power_of_2(283 - exponent); /* below 2^30 */
  int8_t *first = digits, *second = first + padded, *third = second + padded;
  int8_t* fourth = third + padded;
  for (int64_t i = 0; i < n; i++) {
    int32_t v = (int32_t)(x[i] * factor);
    int32_t d = (int8_t)v, c = (int8_t)((v = (v - d) >> 8)), b = (int8_t)((v = (v - c) >> 8));
    v = (v - b) >> 8;
    first[i] = (int8_t)v;
    second[i] = (int8_t)b;
    third[i] = (int8_t)c;
    fourth[i] = (int8_t)d;
    high += v * 256 + b;
    low += c * 256 + d;
  }
  return (digit_chunk){power_of_2(exponent - 13), high, low};
}

static void digits_of_row(const float* x, int64_t step, int64_t k, int64_t block, int8_t* digits,
                          int64_t padded, digit_chunk* chunks) {
  float gathered[CHUNK];
  for (int64_t p = 0, end; p < k; p = end) {
    end = chunk_end(p, block, k);
    const float* at = x + p;
    if (step != 1) {
      at = gathered;
      for (int64_t i = p; i < end; i++) gathered[i - p] = x[i * step];
    }
    *chunks++ = digits_of_chunk(at, end - p, digits + p, padded);
  }
  for (int d = 0; d < DIGITS; d++)
    for (int64_t p = k; p < padded; p++) digits[d * padded + p] = 0;
}

/* Makes the digits of all rows of all batch items; the caller frees d->memory. */
static int make_digits(const ext_matmul_params* p, const ext_block_weight* w, const float* a,
                       int64_t batches, block_digits* d) {
  const int64_t step = 32 / w->bits, rows = batches * p->m;
  const int64_t block = i64_max(1, i64_min(w->block, p->k));
  d->padded = ceil_div(p->k, step) * step;
  d->chunks = ceil_div(p->k, block) * ceil_div(block, CHUNK);
  size_t chunks = (size_t)(rows * d->chunks) * sizeof(digit_chunk);
  d->memory = ext_workspace_alloc(chunks + (size_t)(rows * d->padded * DIGITS) + 1);
  if (!d->memory) return EXT_ERR_MEMORY;
  d->of_chunks = d->memory;
  d->digits = (int8_t*)d->memory + chunks;
  for (int64_t b = 0; b < batches; b++) {
    const float* item = a;
    int64_t rest = b;
    for (int axis = p->batch_ndim - 1; axis >= 0; axis--) {
      item += rest % p->batch[axis] * p->a_batch[axis];
      rest /= p->batch[axis];
    }
    for (int64_t r = 0; r < p->m; r++) {
      const int64_t row = b * p->m + r;
      digits_of_row(item + r * p->a_row, p->a_col, p->k, w->block,
                    d->digits + row * DIGITS * d->padded, d->padded,
                    d->of_chunks + row * d->chunks);
    }
  }
  return EXT_OK;
}

/* ------------------------------------------------------------------ the walk */

typedef struct {
  const ext_block_weight* w;
  const block_digits* digits;
  int64_t row, k; /* the first row of all */
  int64_t j;      /* the first column, of a panel or of a vector of one */
  float* t;       /* the sums, rows `width` floats apart */
  int64_t width;
} digit_walk;

/* Lines of w that are fetched ahead: what the CPU fetches by itself ends with a page. */
enum { DIGIT_AHEAD = 16 * EXT_PANEL };

/* acc += products of a word's rows with the digits at x. */
EXT_INLINE void dot_word(const int rows, const int bits, const digit_walk* s, const int8_t* x,
                         vi word, vq acc[DIGIT_ROWS][DIGITS]) {
  const vi low = vi_set1(0x0f0f0f0f);
  const vi fours[2] = {bits == 8 ? word : word & low, (vi)((vu)word >> 4) & low};
  const int64_t padded = s->digits->padded;
  EXT_UNROLL
  for (int i = 0; i < 8 / bits; i++) {
    EXT_UNROLL
    for (int r = 0; r < rows; r++) {
      EXT_UNROLL
      for (int d = 0; d < DIGITS; d++) { /* bytes of w have no sign, digits have one */
        vqb digit = (vqb)vq_row((const qa*)x + (r * DIGITS + d) * padded + 4 * i);
        acc[r][d] = vq_dot(acc[r][d], (vqa)fours[i], digit);
      }
    }
  }
}

/* The sums of a chunk, without its unit. */
EXT_INLINE vf chunk_sum(const digit_chunk* c, vi zero, const vq acc[DIGITS]) {
  const vi none = vi_set1(0);
  vi high = (vq_sum(acc[0], none) << 8) + vq_sum(acc[1], none) - zero * vi_set1(c->high);
  vi low = (vq_sum(acc[2], none) << 8) + vq_sum(acc[3], none) - zero * vi_set1(c->low);
  return vf_fma(vi_to_vf(low), vf_set1(0x1p-16f), vi_to_vf(high));
}

/* t = a w; rows, vectors, bits and zeros are constants. */
EXT_INLINE void walk_digits(const int rows, const int vectors, const int bits,
                            const zero_kind zeros, const digit_walk* s) {
  const ext_block_weight* w = s->w;
  const int64_t k = s->k, step = 32 / bits, panel = words_of(bits, k);
  const int64_t numbers = blocks_of(w, k) * EXT_PANEL;
  const int32_t* at = (const int32_t*)w->values + s->j / EXT_PANEL * panel + s->j % EXT_PANEL;
  int64_t place = s->j / EXT_PANEL * numbers + s->j % EXT_PANEL;
  const int8_t* x = s->digits->digits + s->row * DIGITS * s->digits->padded;
  const digit_chunk* chunk = s->digits->of_chunks + s->row * s->digits->chunks;
  vf sum[DIGIT_ROWS][DIGIT_VECTORS];
  EXT_UNROLL
  for (int i = 0; i < rows * vectors; i++) sum[i / vectors][i % vectors] = vf_zero();
  for (int64_t p = 0; p < k; place += EXT_PANEL) {
    const int64_t block_end = i64_min(k, p + w->block);
    vf part[DIGIT_ROWS][DIGIT_VECTORS];
    EXT_UNROLL
    for (int i = 0; i < rows * vectors; i++) part[i / vectors][i % vectors] = vf_zero();
    for (; p < block_end; chunk++) {
      const int64_t end = i64_min(block_end, p + CHUNK);
      vq acc[DIGIT_VECTORS][DIGIT_ROWS][DIGITS];
      EXT_UNROLL
      for (int i = 0; i < vectors * rows * DIGITS; i++)
        acc[i / (rows * DIGITS)][i / DIGITS % rows][i % DIGITS] = vq_start(vi_set1(0));
      for (; p < end; p += step, at += EXT_PANEL) {
        EXT_UNROLL
        for (int v = 0; v < vectors; v++) {
          const int32_t* from = at + v / PER_PANEL * panel + v % PER_PANEL * VL;
          if (v % PER_PANEL == 0) __builtin_prefetch(from + DIGIT_AHEAD);
          dot_word(rows, bits, s, x + p, vi_load(from), acc[v]);
        }
      }
      p = end;
      EXT_UNROLL
      for (int v = 0; v < vectors; v++) {
        const int64_t n = place + v / PER_PANEL * numbers + v % PER_PANEL * VL;
        vi zero =
            zeros == MIDDLE ? vi_set1(1 << (bits - 1)) : vi_load_u8((const uint8_t*)w->zero + n);
        EXT_UNROLL
        for (int r = 0; r < rows; r++) {
          const digit_chunk* c = chunk + r * s->digits->chunks;
          part[r][v] = vf_fma(vf_set1(c->unit), chunk_sum(c, zero, acc[v][r]), part[r][v]);
        }
      }
    }
    EXT_UNROLL
    for (int v = 0; v < vectors; v++) {
      vf scale = vf_load(w->scale + place + v / PER_PANEL * numbers + v % PER_PANEL * VL);
      EXT_UNROLL
      for (int r = 0; r < rows; r++) sum[r][v] = vf_fma(scale, part[r][v], sum[r][v]);
    }
  }
  EXT_UNROLL
  for (int i = 0; i < rows * vectors; i++)
    vf_store(s->t + i / vectors * s->width + i % vectors * VL, sum[i / vectors][i % vectors]);
}

EXT_INLINE void digits_of(const int rows, const int vectors, const digit_walk* s) {
  if (s->w->bits == 4 && !s->w->zero)
    walk_digits(rows, vectors, 4, MIDDLE, s);
  else if (s->w->bits == 4)
    walk_digits(rows, vectors, 4, INTEGERS, s);
  else if (!s->w->zero)
    walk_digits(rows, vectors, 8, MIDDLE, s);
  else
    walk_digits(rows, vectors, 8, INTEGERS, s);
}

/* As walk_columns. */
static int64_t digit_columns(int64_t rows, int64_t columns, const digit_walk* s) {
  if (rows == 1 && columns > (DIGIT_VECTORS - 1) * VL) {
    digits_of(1, DIGIT_VECTORS, s);
    return DIGIT_VECTORS * VL;
  }
  switch (rows) {
    case 1: digits_of(1, 1, s); break;
#if DIGIT_ROWS > 2
    case 3: digits_of(3, 1, s); break;
    case 4: digits_of(4, 1, s); break;
#endif
    default: digits_of(2, 1, s);
  }
  return VL;
}

#endif /* DIGIT_ROWS */
#endif /* EXT_BLOCK_DIGITS_H_ */
