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

#include "../simd/math.h"
#include "block_weight.h"

#if defined(DIGIT_ROWS)

enum {
  DIGITS = 4,
  CHUNK = 128, /* rows: 255 * 128 * 128 * 256 < 2^31 */
  MOST_CHAINS = 2,
  LEAST_EXPONENT = 29
};

typedef struct {
  float unit;
  int32_t high, low; /* sums of the digits: 256 first + second, 256 third + fourth */
} digit_chunk;

/* Digits of the rows of a, [row][padded / 4][DIGITS][4], and what belongs to their chunks, [row]
 * [chunks]. */
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

/* Digits of n numbers x, and of zeros up to VL more. */
static digit_chunk digits_of_chunk(const float* x, int64_t n, int8_t* digits) {
  vf most = vf_zero();
  int64_t i = 0;
  for (; i + VL <= n; i += VL) most = vf_max(most, vf_abs(vf_load(x + i)));
  if (i < n) most = vf_max(most, vf_abs(vf_load_n(x + i, n - i)));
  const float largest = vf_most(most);
  int32_t bits;
  memcpy(&bits, &largest, sizeof bits);
  const int32_t exponent = bits >> 23 > LEAST_EXPONENT ? bits >> 23 : LEAST_EXPONENT;
  const vf factor = vf_set1(power_of_2(283 - exponent)); /* below 2^30 */
  const vi byte = vi_set1(255), half = vi_set1(0x808080);
  vi high = vi_set1(0), low = vi_set1(0);
  for (i = 0; i < n; i += VL) {
    vi v = __builtin_convertvector(vf_load_n(x + i, i64_min(VL, n - i)) * factor, vi);
    vi d = (v + half) ^ half; /* digits -128 .. 127 from those of two's complement */
    vi rest = ((d << 16 >> 24) << 8) + (d << 24 >> 24);
    high += (v - rest) >> 16;
    low += rest;
    vi first = (vi)((vu)d >> 24), second = d >> 16 & byte, third = d >> 8 & byte;
    vx_store(digits + DIGITS * i, vx_narrow(first, second, third, d & byte));
  }
  /* Sums of less than 2^24: exact as floats. */
  return (digit_chunk){power_of_2(exponent - 13), (int32_t)vf_sum(vi_to_vf(high)),
                       (int32_t)vf_sum(vi_to_vf(low))};
}

static void digits_of_row(const float* x, int64_t step, int64_t k, int64_t block, int8_t* digits,
                          digit_chunk* chunks) {
  float gathered[CHUNK];
  for (int64_t p = 0, end; p < k; p = end) {
    end = chunk_end(p, block, k);
    const float* at = x + p;
    if (step != 1) {
      at = gathered;
      for (int64_t i = p; i < end; i++) gathered[i - p] = x[i * step];
    }
    *chunks++ = digits_of_chunk(at, end - p, digits + DIGITS * p);
  }
}

/* Makes the digits of all rows of all batch items; the caller frees d->memory. */
static int make_digits(const ext_matmul_params* p, const ext_block_weight* w, const float* a,
                       int64_t batches, block_digits* d) {
  const int64_t step = 32 / w->bits, rows = batches * p->m;
  const int64_t block = i64_max(1, i64_min(w->block, p->k));
  d->padded = ceil_div(p->k, step) * step;
  d->chunks = ceil_div(p->k, block) * ceil_div(block, CHUNK);
  const int64_t bytes = rows * d->padded * DIGITS + (int64_t)sizeof(vx); /* as the last ones end */
  d->memory = ext_workspace_alloc((size_t)(ceil_div(bytes, 64) * 64) +
                                  (size_t)(rows * d->chunks) * sizeof(digit_chunk));
  if (!d->memory) return EXT_ERR_MEMORY;
  d->digits = d->memory;
  d->of_chunks = (digit_chunk*)(d->digits + ceil_div(bytes, 64) * 64);
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
                    d->digits + row * DIGITS * d->padded, d->of_chunks + row * d->chunks);
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

/* Words, and numbers of blocks, that are fetched ahead: 8 KB and 2 KB.  One panel follows the
 * other, two runs of memory in all: of more, as of panels side by side, the CPU reads less at once
 * (m = 1, 4 and 8 bits, from memory: 0.91 to 0.95 of a plain read instead of 0.79 to 0.86 on Zen
 * 5). */
enum { WORDS_AHEAD = 128 * EXT_PANEL, NUMBERS_AHEAD = 32 * EXT_PANEL };

/* acc += products of a word's rows with the digits at x; those of the next row are `padded` rows
 * of w apart.  Halves of a word take turns among the chains. */
EXT_INLINE void dot_word(const int rows, const int chains, const int bits, const int8_t* x,
                         int64_t padded, vi word, vq acc[DIGIT_ROWS][MOST_CHAINS][DIGITS]) {
  const vi low = vi_set1(0x0f0f0f0f);
  const vi fours[2] = {bits == 8 ? word : word & low, (vi)((vu)word >> 4) & low};
  EXT_UNROLL
  for (int i = 0; i < 8 / bits; i++) {
    EXT_UNROLL
    for (int r = 0; r < rows; r++) {
      EXT_UNROLL
      for (int d = 0; d < DIGITS; d++) { /* bytes of w have no sign, digits have one */
        vqb digit = (vqb)vq_row((const qa*)x + (r * padded + 4 * i + d) * DIGITS);
        vq* sum = &acc[r][i % chains][d];
        *sum = vq_dot_in_place(*sum, (vqa)fours[i], digit);
      }
    }
  }
}

/* What the sums of a chunk begin with: a zero point that all columns share is taken off here. */
EXT_INLINE void start_chunk(const int chains, const int bits, const zero_kind zeros,
                            const digit_chunk* c, vq acc[MOST_CHAINS][DIGITS]) {
  const int32_t zero = zeros == MIDDLE ? 1 << (bits - 1) : 0;
  EXT_UNROLL
  for (int i = 0; i < chains * DIGITS; i++) acc[i / DIGITS][i % DIGITS] = vq_start(vi_set1(0));
  acc[0][1] = vq_start(vi_set1(-zero * c->high));
  acc[0][3] = vq_start(vi_set1(-zero * c->low));
}

/* The sum of products with digit d. */
EXT_INLINE vi digit_sum(const int chains, const int d, const vq acc[MOST_CHAINS][DIGITS]) {
  const vi none = vi_set1(0);
  vi sum = vq_sum(acc[0][d], none);
  EXT_UNROLL
  for (int c = 1; c < chains; c++) sum += vq_sum(acc[c][d], none);
  return sum;
}

/* The sums of a chunk, without its unit; `zero` is that of INTEGERS. */
EXT_INLINE vf chunk_sum(const int chains, const zero_kind zeros, const digit_chunk* c, vi zero,
                        const vq acc[MOST_CHAINS][DIGITS]) {
  vi high = (digit_sum(chains, 0, acc) << 8) + digit_sum(chains, 1, acc);
  vi low = (digit_sum(chains, 2, acc) << 8) + digit_sum(chains, 3, acc);
  if (zeros == INTEGERS) {
    high -= zero * vi_set1(c->high);
    low -= zero * vi_set1(c->low);
  }
  return vf_fma(vi_to_vf(low), vf_set1(0x1p-16f), vi_to_vf(high));
}

/* t = a w; rows, vectors, bits and zeros are constants. */
EXT_INLINE void walk_digits(const int rows, const int vectors, const int bits,
                            const zero_kind zeros, const digit_walk* s) {
  const ext_block_weight* w = s->w;
  const int64_t k = s->k, step = 32 / bits, panel = words_of(bits, k);
  const int64_t numbers = blocks_of(w, k) * EXT_PANEL, padded = s->digits->padded;
  const int32_t* at = (const int32_t*)w->values + s->j / EXT_PANEL * panel + s->j % EXT_PANEL;
  int64_t place = s->j / EXT_PANEL * numbers + s->j % EXT_PANEL;
  const int8_t* x = s->digits->digits + s->row * DIGITS * padded;
  const digit_chunk* chunk = s->digits->of_chunks + s->row * s->digits->chunks;
  /* Four chains of products alone would wait for each other where a word makes two of each. */
  const int chains = bits == 4 && rows * vectors == 1 ? MOST_CHAINS : 1;
  vf sum[DIGIT_ROWS][PER_PANEL];
  EXT_UNROLL
  for (int i = 0; i < rows * vectors; i++) sum[i / vectors][i % vectors] = vf_zero();
  for (int64_t p = 0, block_end = i64_min(k, w->block); p < k; chunk++) {
    const int64_t end = i64_min(block_end, p + CHUNK);
    vq acc[PER_PANEL][DIGIT_ROWS][MOST_CHAINS][DIGITS];
    EXT_UNROLL
    for (int i = 0; i < vectors * rows; i++)
      start_chunk(chains, bits, zeros, chunk + i % rows * s->digits->chunks,
                  acc[i / rows][i % rows]);
    for (; p < end; p += step, at += EXT_PANEL) {
      EXT_UNROLL
      for (int v = 0; v < vectors; v++) {
        if (v == 0) __builtin_prefetch(at + WORDS_AHEAD);
        dot_word(rows, chains, bits, x + p * DIGITS, padded, vi_load(at + v * VL), acc[v]);
      }
    }
    p = end;
    EXT_UNROLL
    for (int v = 0; v < vectors; v++) {
      const int64_t n = place + v * VL;
      const uint8_t* zero_at = (const uint8_t*)w->zero + n;
      vi zero = zeros == INTEGERS ? vi_load_u8(zero_at) : vi_set1(0);
      vf scale = vf_load(w->scale + n);
      if (v == 0) {
        __builtin_prefetch(w->scale + n + NUMBERS_AHEAD);
        if (zeros == INTEGERS) __builtin_prefetch(zero_at + NUMBERS_AHEAD);
      }
      EXT_UNROLL
      for (int r = 0; r < rows; r++) {
        const digit_chunk* c = chunk + r * s->digits->chunks;
        vf part = vf_set1(c->unit) * chunk_sum(chains, zeros, c, zero, acc[v][r]);
        sum[r][v] = vf_fma(scale, part, sum[r][v]);
      }
    }
    if (p == block_end) {
      place += EXT_PANEL;
      block_end = i64_min(k, block_end + w->block);
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
  if (rows == 1 && columns > EXT_PANEL - VL) {
    digits_of(1, PER_PANEL, s);
    return EXT_PANEL;
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
