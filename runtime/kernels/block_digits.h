/*
 * block_digits.h - rows of a as integers, for units that add products of bytes.
 *
 *   sum_p a[p] (q[p] - zero) = unit (2^8 high + low)
 *
 * Of a chunk of a block, a[p] is rounded to a multiple of the largest number by 127 * 2^16: three
 * digits of 8 signed bits, 2^-24 of the largest off.  The sums of their products with q are exact.
 * So the error is 2^-24 largest sum_p |q[p] - zero| at most, which is less than the bound of n
 * numbers that are summed in fp32, wherever the largest is less than n times their mean.  Digits
 * are made once, and serve all columns.
 *
 * Where data may be rounded to bytes there is one digit: the nearest multiple of the largest number
 * by 127 (block_bytes.h).
 */
#ifndef EXT_BLOCK_DIGITS_H_
#define EXT_BLOCK_DIGITS_H_

#include "../simd/math.h"
#include "ahead.h"
#include "block_weight.h"

#if defined(DIGIT_ROWS)

enum {
  DIGITS = 3,
  SLOTS = 4,   /* bytes of a number's digits; the last one is not read */
  CHUNK = 128, /* rows: 255 * 128 * 128 * 256 < 2^31 */
  MOST_CHAINS = 2,
  /* Panels side by side, at most: three sums of each fill half of the registers. */
  MOST_PANELS = PER_PANEL == 1 ? 4 : 2,
  DIGIT_VECTORS = MOST_PANELS * PER_PANEL, /* of sums */
  LONG = 1024,
  ROUND = 32, /* rows of w whose words are one round of the loop: a block, most often */
  MOST_OF_DIGITS = 127 << 16
};

/* The least of largest numbers: smaller ones count as multiples of its share. */
#define LEAST_LARGEST 0x1p-100f

typedef struct {
  float unit;
  /* Of digits 256 first + second, and third: what is added to products with a w without zero
   * points, their sums otherwise.  Of single ones their sum, and what is added. */
  int32_t high, low;
} digit_chunk;

/* Digits of the rows of a, [row][padded / 4][slots][4], where `slots` is SLOTS, or 1 of single
 * ones, and what belongs to their chunks, [row][chunks]. */
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

/* Digits of n numbers x, and of zeros up to VL more; sums are `times` theirs. */
static digit_chunk digits_of_chunk(const float* x, int64_t n, int32_t times, int8_t* digits) {
  vf most = vf_set1(LEAST_LARGEST);
  int64_t i = 0;
  for (; i + VL <= n; i += VL) most = vf_max(most, vf_abs(vf_load(x + i)));
  if (i < n) most = vf_max(most, vf_abs(vf_load_n(x + i, n - i)));
  const float largest = vf_most(most);
  const vf factor = vf_set1((float)MOST_OF_DIGITS / largest);
  const vi half = vi_set1(0x8080);
  vq sums = vq_start(vi_set1(0)); /* of each digit, and of the slot that is not read */
  for (i = 0; i < n; i += VL) {
    const vf part = i + VL <= n ? vf_load(x + i) : vf_load_n(x + i, n - i);
    const vi v = vf_to_vi_saturated(part * factor);
    /* Digits -128 .. 127 from those of two's complement. */
    const vqb d = vq_turn_quads((v + half) ^ half);
    vx_store(digits + SLOTS * i, (vx)d);
    sums = vq_dot_quads(sums, (vx){0} + (uint8_t)1, d);
  }
  int32_t sum[VL];
  vi_store(sum, vq_sum(sums, vi_set1(0)));
  for (int lane = SLOTS; lane < VL; lane++) sum[lane % SLOTS] += sum[lane];
  const int32_t high = times * (sum[0] * 256 + sum[1]), low = times * sum[2];
  return (digit_chunk){largest / (float)MOST_OF_DIGITS, high, low};
}

/* The same of single digits; `middle` is the zero point of a w that has none.  `huge` gets lanes
 * that are not 0 where a number is none, or 2^100 or more.  `whole`, a constant, tells that n is a
 * number of vectors. */
EXT_INLINE digit_chunk bytes_of_chunk(const int whole, const float* x, int64_t n, int32_t middle,
                                      int8_t* digits, vi* huge) {
  const vi limit = vi_set1((127 + 100) << 23);
  vf most = vf_set1(LEAST_LARGEST);
  for (int64_t i = 0; i < n; i += VL) {
    const vf size = vf_abs(whole ? vf_load(x + i) : vf_load_n(x + i, i64_min(VL, n - i)));
    *huge |= (vi)size >= limit;
    most = vf_max(most, size);
  }
  const float largest = vf_most(most);
  /* As vf_to_vi, of products that are not rounded before. */
  const vf factor = vf_set1(127.0f / largest), magic = vf_set1(12582912.0f);
  vi sum = vi_set1(0);
  for (int64_t i = 0; i < n; i += 4 * VL) {
    vi d[4];
    EXT_UNROLL
    for (int v = 0; v < 4; v++) {
      const int64_t left = n - i - v * VL;
      d[v] = vi_set1(0);
      if (left > 0) {
        const float* at = x + i + v * VL;
        const vf part = whole ? vf_load(at) : vf_load_n(at, i64_min(VL, left));
        d[v] = (vi)vf_fma(part, factor, magic) - (vi)magic;
      }
      sum += d[v];
    }
    /* Whole vectors are stored: the next chunk writes over what is past this one. */
    const vx flip = (vx){0} + (uint8_t)128;
    const vi up = vi_set1(128);
    vx bytes = vx_in_order(vx_narrow(d[0] + up, d[1] + up, d[2] + up, d[3] + up));
    vx_store(digits + i, bytes ^ flip);
  }
  const int32_t total = (int32_t)vf_sum(vi_to_vf(sum));
  return (digit_chunk){largest / 127.0f, total, -middle * total};
}

typedef struct {
  const ext_matmul_params* p;
  const ext_block_weight* w;
  const float* a;
  int slots; /* bytes of a number's digits */
  block_digits* d;
} digits_job;

static vi digits_of_row(const digits_job* job, const float* x, int64_t row) {
  const int64_t step = job->p->a_col, k = job->p->k, slots = job->slots;
  const int32_t middle = job->w->zero ? 0 : 1 << (job->w->bits - 1);
  int8_t* digits = job->d->digits + row * slots * job->d->padded;
  digit_chunk* chunks = job->d->of_chunks + row * job->d->chunks;
  float gathered[CHUNK];
  vi huge = vi_set1(0);
  for (int64_t p = 0, end; p < k; p = end) {
    end = chunk_end(p, job->w->block, k);
    const float* at = x + p;
    if (step != 1) {
      at = gathered;
      for (int64_t i = p; i < end; i++) gathered[i - p] = x[i * step];
    }
    if (slots != 1)
      *chunks++ = digits_of_chunk(at, end - p, middle ? -middle : 1, digits + SLOTS * p);
    else if ((end - p) % VL == 0)
      *chunks++ = bytes_of_chunk(1, at, end - p, middle, digits + p, &huge);
    else
      *chunks++ = bytes_of_chunk(0, at, end - p, middle, digits + p, &huge);
  }
  return huge;
}

/* Rows [begin, end) of those of all batch items; EXT_UNFIT where one is not to be rounded. */
static int digits_of_rows(void* context, int64_t begin, int64_t end) {
  const digits_job* job = context;
  const ext_matmul_params* p = job->p;
  vi huge = vi_set1(0);
  for (int64_t row = begin; row < end; row++) {
    const float* item = job->a;
    int64_t rest = row / p->m;
    for (int axis = p->batch_ndim - 1; axis >= 0; axis--) {
      item += rest % p->batch[axis] * p->a_batch[axis];
      rest /= p->batch[axis];
    }
    huge |= digits_of_row(job, item + row % p->m * p->a_row, row);
  }
  return vf_sum(vi_to_vf(huge)) == 0 ? EXT_OK : EXT_UNFIT;
}

/* Makes digits of each number of all rows of all batch items, single ones where `slots` is 1; the
 * caller frees d->memory. */
static int make_digits(const ext_matmul_params* p, const ext_block_weight* w, const float* a,
                       int64_t batches, int slots, block_digits* d) {
  enum { TASK_NUMBERS = 1 << 15 }; /* some ten microseconds */
  const int64_t step = 32 / w->bits, rows = batches * p->m;
  const int64_t block = i64_max(1, i64_min(w->block, p->k));
  d->padded = ceil_div(p->k, step) * step;
  /* Room for the last vector, so that threads write rows of their own alone, and an odd number of
   * cache lines: rows of a tile use different sets. */
  if (slots == 1) d->padded = ((ceil_div(p->k, 64) + 1) | 1) * 64;
  d->chunks = ceil_div(p->k, block) * ceil_div(block, CHUNK);
  int64_t bytes = rows * d->padded * slots + (int64_t)sizeof(vx); /* as the last ones end */
#if defined(EXT_TILES)
  bytes += 31 * d->padded; /* tiles read rows that there are not */
#endif
  d->memory = ext_workspace_alloc((size_t)(ceil_div(bytes, 64) * 64) +
                                  (size_t)(rows * d->chunks) * sizeof(digit_chunk));
  if (!d->memory) return EXT_ERR_MEMORY;
  d->digits = d->memory;
  d->of_chunks = (digit_chunk*)(d->digits + ceil_div(bytes, 64) * 64);
  digits_job job = {p, w, a, slots, d};
  const int64_t grain = slots == 1 ? i64_max(1, TASK_NUMBERS / i64_max(1, p->k)) : rows;
  return ext_parallel_for(rows, grain, digits_of_rows, &job);
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

/* Words, and numbers of blocks, that are fetched ahead: 8 KB and 2 KB, the latter where that helps
 * (ahead.h).  On Zen 4 the numbers that are fetched cost 4 to 7 %, and its L1 has no room for 8 KB
 * of words and LONG digits.  Words of 8 bits are fetched 4 KB ahead there (k = 4864: 6 % less
 * time).  Of two panels of 4 bits side by side, words and numbers are fetched into L2 alone. */
enum { WORDS_AHEAD = 128 * EXT_PANEL, NUMBERS_AHEAD = 32 * EXT_PANEL };

/* Panels whose products with one row are summed side by side: digits are loaded once for all, and
 * there are fewer instructions.  But each is a run of memory of its own, and so are its numbers.
 *
 * Zen 5 reads one panel after the other at 0.91 to 0.95 of a plain read (m = 1, 4 and 8 bits, from
 * memory), and two at 0.79 to 0.86.  Zen 4, with 4 bits and LONG rows, which need twice as many
 * digits, takes 80 us for 2.7 MB of two panels (k = 1344 and 4864), 91 and 113 of one.  Intel's
 * cores with 2 MB of L2 (Emerald Rapids, k = 896 and 4864) read 4 bits at 0.82 to 0.86 of a plain
 * read where panels come one after the other, at 0.88 to 0.96 of two and 0.93 to 1.0 of four, and 8
 * bits at 0.79 to 0.89, 0.91 to 0.98 and 0.89 to 0.92. */
static int panels_at_once(int bits, int64_t k) {
  if (asks_twice()) return bits == 4 ? MOST_PANELS : 2;
  return bits == 4 && k >= LONG && !asks_ahead() ? 2 : 1;
}

/* What is skipped of memory fetched `ahead` of place `at` of a panel of `size`: the panels `beside`
 * it, as behind a panel comes that behind its neighbours. */
EXT_INLINE int64_t skipped(int64_t at, int64_t ahead, int64_t size, const int beside) {
  return at + ahead >= size ? beside * size : 0;
}

/* Asks for a line, into L2 alone where `vectors` are two panels of 4 bits. */
EXT_INLINE void ask_ahead(const int vectors, const int bits, const void* at) {
  if (vectors == 2 * PER_PANEL && bits == 4)
    __builtin_prefetch(at, 0, 2);
  else
    __builtin_prefetch(at);
}

/* Four chains of products alone would wait for each other where a word makes two of each. */
EXT_INLINE int chains_of(const int rows, const int vectors, const int bits) {
  return bits == 4 && rows * vectors == 1 ? MOST_CHAINS : 1;
}

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
        vqb digit = (vqb)vq_row((const qa*)x + (r * padded + 4 * i) * SLOTS + 4 * d);
        vq* sum = &acc[r][i % chains][d];
        *sum = vq_dot_in_place(*sum, (vqa)fours[i], digit);
      }
    }
  }
}

/* acc += products of a row of words, those at `at` and in the panels beside it, with digits. */
EXT_INLINE void dot_words(const int rows, const int vectors, const int bits, const int8_t* x,
                          int64_t padded, const int32_t* at, int64_t panel, int64_t ahead,
                          vq acc[DIGIT_VECTORS][DIGIT_ROWS][MOST_CHAINS][DIGITS]) {
  const int chains = chains_of(rows, vectors, bits);
  EXT_UNROLL
  for (int v = 0; v < vectors; v++) {
    const int32_t* words = at + v / PER_PANEL * panel + v % PER_PANEL * VL;
    if (v % PER_PANEL == 0) ask_ahead(vectors, bits, words + ahead);
    dot_word(rows, chains, bits, x, padded, vi_load(words), acc[v]);
  }
}

/* What the sums of a chunk begin with: a zero point that all columns share is taken off here. */
EXT_INLINE void start_chunk(const int chains, const zero_kind zeros, const digit_chunk* c,
                            vq acc[MOST_CHAINS][DIGITS]) {
  EXT_UNROLL
  for (int i = 0; i < chains * DIGITS; i++) acc[i / DIGITS][i % DIGITS] = vq_start(vi_set1(0));
  if (zeros != MIDDLE) return;
  acc[0][1] = vq_start(vi_set1(c->high));
  acc[0][2] = vq_start(vi_set1(c->low));
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
  vi low = digit_sum(chains, 2, acc);
  if (zeros == INTEGERS) {
    high -= zero * vi_set1(c->high);
    low -= zero * vi_set1(c->low);
  }
  return vf_fma(vi_to_vf(high), vf_set1(0x1p8f), vi_to_vf(low));
}

/* t = a w; rows, vectors, bits and zeros are constants. */
EXT_INLINE void walk_digits(const int rows, const int vectors, const int bits,
                            const zero_kind zeros, const digit_walk* s) {
  const ext_block_weight* w = s->w;
  const int64_t k = s->k, step = 32 / bits, panel = words_of(bits, k);
  const int64_t numbers = blocks_of(w, k) * EXT_PANEL, padded = s->digits->padded;
  const int32_t* at = (const int32_t*)w->values + s->j / EXT_PANEL * panel + s->j % EXT_PANEL;
  int64_t place = s->j / EXT_PANEL * numbers + s->j % EXT_PANEL;
  const int64_t first = place;
  const int8_t* x = s->digits->digits + s->row * SLOTS * padded;
  const digit_chunk* chunk = s->digits->of_chunks + s->row * s->digits->chunks;
  const int beside = vectors > PER_PANEL ? vectors / PER_PANEL - 1 : 0; /* panels */
  const int64_t numbers_ahead = beside         ? NUMBERS_AHEAD / 2
                                : asks_ahead() ? NUMBERS_AHEAD
                                               : 0; /* those that are read next */
  const int64_t words_ahead = bits == 8 && !asks_ahead() ? WORDS_AHEAD / 2 : WORDS_AHEAD;
  const int chains = chains_of(rows, vectors, bits);
  vf sum[DIGIT_ROWS][DIGIT_VECTORS];
  EXT_UNROLL
  for (int i = 0; i < rows * vectors; i++) sum[i / vectors][i % vectors] = vf_zero();
  for (int64_t p = 0, block_end = i64_min(k, w->block); p < k; chunk++) {
    const int64_t end = i64_min(block_end, p + CHUNK);
    const int64_t ahead = words_ahead + skipped(words_of(bits, p), words_ahead, panel, beside);
    const int64_t skip = skipped(place - first, numbers_ahead, numbers, beside);
    vq acc[DIGIT_VECTORS][DIGIT_ROWS][MOST_CHAINS][DIGITS];
    EXT_UNROLL
    for (int i = 0; i < vectors * rows; i++)
      start_chunk(chains, zeros, chunk + i % rows * s->digits->chunks, acc[i / rows][i % rows]);
    for (; p + ROUND <= end; p += ROUND) {
      EXT_UNROLL
      for (int i = 0; i < ROUND; i += step, at += EXT_PANEL)
        dot_words(rows, vectors, bits, x + (p + i) * SLOTS, padded, at, panel, ahead, acc);
    }
    for (; p < end; p += step, at += EXT_PANEL)
      dot_words(rows, vectors, bits, x + p * SLOTS, padded, at, panel, ahead, acc);
    p = end;
    EXT_UNROLL
    for (int v = 0; v < vectors; v++) {
      const int64_t n = place + v / PER_PANEL * numbers + v % PER_PANEL * VL;
      const uint8_t* zero_at = (const uint8_t*)w->zero + n;
      vi zero = zeros == INTEGERS ? vi_load_u8(zero_at) : vi_set1(0);
      vf scale = vf_load(w->scale + n);
      if (v % PER_PANEL == 0) {
        ask_ahead(vectors, bits, w->scale + n + numbers_ahead + skip);
        if (zeros == INTEGERS) __builtin_prefetch(zero_at + numbers_ahead + skip);
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
  const int64_t panels = i64_min(panels_at_once(s->w->bits, s->k), ceil_div(columns, EXT_PANEL));
  if (rows == 1 && MOST_PANELS > 2 && panels == MOST_PANELS) {
    digits_of(1, DIGIT_VECTORS, s);
    return MOST_PANELS * EXT_PANEL;
  }
  if (rows == 1 && panels > 1) {
    digits_of(1, 2 * PER_PANEL, s);
    return 2 * EXT_PANEL;
  }
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
