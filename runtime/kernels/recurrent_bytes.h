/*
 * recurrent_bytes.h - sums of gates with weights of 8 bits.
 *
 *   sum_k (q[k] - zero) r[k] scale,   q = limit(round(h / scale) + zero)
 *
 * with scale and zero as DynamicQuantizeLinear takes them from the states h of a row: a step is
 * 1 / 255 of their range and zero.  Sums are exact.
 */
#ifndef EXT_RECURRENT_BYTES_H_
#define EXT_RECURRENT_BYTES_H_

#include "recurrent.h"

enum {
  /* What is taken off bytes where units multiply signed ones. */
  BYTE_SHIFT = sizeof(qa) == 1 && QUADS_SIGNED ? 128 : 0
};

/* What the bytes of a row stand for; the scale is NaN where a state is no finite number. */
typedef struct {
  float scale;
  int32_t zero; /* BYTE_SHIFT taken off */
} byte_range;

EXT_INLINE byte_range range_of(const float* h, int64_t units) {
  vf low = vf_zero(), high = vf_zero(), rest = vf_zero();
  for (int64_t k = 0; k < units; k += VL) {
    const vf state = units - k >= VL ? vf_load(h + k) : vf_load_n(h + k, units - k);
    low = vf_min(low, state);
    high = vf_max(high, state);
    rest = rest + (state - state); /* NaN of what is no finite number */
  }
  if (vf_sum(rest) != 0.0f) return (byte_range){__builtin_nanf(""), 0};
  const float most = vf_most(high), least = -vf_most(-low);
  const float scale = most > least ? (most - least) / 255.0f : 1.0f;
  const vf zero = vf_max(vf_zero(), vf_min(vf_set1(255.0f), vf_set1(-least / scale)));
  int32_t zeros[VL];
  vi_store(zeros, vf_to_vi(zero));
  return (byte_range){scale, zeros[0] - BYTE_SHIFT};
}

/* Makes bytes of a row of states, up to a whole block; what lies past the units meets zeros. */
EXT_INLINE byte_range quantise_states(const float* h, int64_t units, qa* bytes) {
  const byte_range range = range_of(h, units);
  const float low = (float)-(range.zero + BYTE_SHIFT);
  for (int64_t k = 0; k < units; k += EXT_PANEL) {
    int32_t whole[EXT_PANEL];
    for (int v = 0; v < EXT_PANEL; v += VL) {
      const vf steps = vf_at_least(vf_load(h + k + v) / vf_set1(range.scale), vf_set1(low));
      const vi near = vf_to_vi(vf_min(steps, vf_set1(low + 255.0f)));
      vi_store(whole + v, near + vi_set1(range.zero));
    }
    for (int i = 0; i < EXT_PANEL; i++) bytes[k + i] = (qa)whole[i];
  }
  return range;
}

EXT_INLINE vq add_products(vq sum, vqa a, vqb b) {
#if defined(DIGIT_ROWS)
  return vq_dot_in_place(sum, a, b);
#else
  return vq_dot(sum, a, b);
#endif
}

/* A block of weights [quads of units][gate][16][4], sums of their columns, and scales. */
typedef struct {
  const int8_t* r;
  const int32_t* sums; /* [gate][16] */
  const float* scale;
  int64_t quads;
} byte_block;

/* t[i][gate] = sums of `rows` rows, which are `row` bytes apart.  Of few rows, `chains` sums of
 * each take turns, which hides the products' latency. */
EXT_INLINE void sum_bytes(const int rows, const int chains, const byte_block* b, const qa* bytes,
                          int64_t row, const byte_range* ranges, float* t) {
  const vi none = vi_set1(0);
  for (int v = 0; v < EXT_PANEL; v += VL) {
    vq acc[RECURRENT_BYTE_ROWS][MOST_GATES];
    EXT_UNROLL
    for (int i = 0; i < chains * rows; i++) {
      EXT_UNROLL
      for (int g = 0; g < MOST_GATES; g++) acc[i][g] = vq_start(none);
    }
    const int8_t* r = b->r + 4 * v;
    int64_t k = 0;
    for (; k + chains <= b->quads; k += chains) {
      EXT_UNROLL
      for (int c = 0; c < chains; c++, r += 4 * TILE_ROW) {
        EXT_UNROLL
        for (int i = 0; i < rows; i++) {
          const vqa quad = vq_row(bytes + i * row + 4 * (k + c));
          EXT_UNROLL
          for (int g = 0; g < MOST_GATES; g++) {
            vq* sum = &acc[c * rows + i][g];
            *sum = add_products(*sum, quad, vq_panel(r + 4 * g * EXT_PANEL));
          }
        }
      }
    }
    for (; k < b->quads; k++, r += 4 * TILE_ROW) {
      EXT_UNROLL
      for (int i = 0; i < rows; i++) {
        const vqa quad = vq_row(bytes + i * row + 4 * k);
        EXT_UNROLL
        for (int g = 0; g < MOST_GATES; g++)
          acc[i][g] = add_products(acc[i][g], quad, vq_panel(r + 4 * g * EXT_PANEL));
      }
    }
    EXT_UNROLL
    for (int i = 0; i < rows; i++) {
      EXT_UNROLL
      for (int g = 0; g < MOST_GATES; g++) {
        vi sum = vq_sum(acc[i][g], none);
        EXT_UNROLL
        for (int c = 1; c < chains; c++) sum = sum + vq_sum(acc[c * rows + i][g], none);
        sum = sum - vi_load(b->sums + g * EXT_PANEL + v) * vi_set1(ranges[i].zero);
        const vf scale = vf_load(b->scale + g * EXT_PANEL + v) * vf_set1(ranges[i].scale);
        vf_store(t + i * TILE_ROW + g * EXT_PANEL + v, vi_to_vf(sum) * scale);
      }
    }
  }
}

static void sum_byte_rows(int64_t rows, const byte_block* b, const qa* bytes, int64_t row,
                          const byte_range* ranges, float* t) {
#define SUM_BYTES(n, k, i)                                                          \
  case n:                                                                           \
    sum_bytes(n, 2 * n <= RECURRENT_BYTE_ROWS ? 2 : 1, b, bytes + first * row, row, \
              ranges + first, t + first * TILE_ROW);                                \
    break;
  const int64_t tiles = ceil_div(rows, RECURRENT_BYTE_ROWS);
  for (int64_t tile = 0; tile < tiles; tile++) {
    const int64_t first = tile * rows / tiles, past = (tile + 1) * rows / tiles;
    switch (past - first) { EXT_RECURRENT_BYTE_ROWS(SUM_BYTES, 0, 0) }
  }
#undef SUM_BYTES
}

#endif /* EXT_RECURRENT_BYTES_H_ */
