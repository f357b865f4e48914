/*
 * recurrent_bytes.h - sums of gates with weights of 8 bits.
 *
 *   sum_k h[k] r[k] scale,   h[k] = unit (256 high + low) to half a unit
 *
 * States are between -1 and 1, so that one unit serves all: two digits of 8 signed bits, made where
 * a state is written.  Sums of their products with the weights are exact.
 */
#ifndef EXT_RECURRENT_BYTES_H_
#define EXT_RECURRENT_BYTES_H_

#include "recurrent.h"

enum {
  STATE_DIGITS = 2,
  /* What is added to digits where units multiply bytes without a sign. */
  DIGIT_SHIFT = sizeof(qa) == 1 && !QUADS_SIGNED ? 128 : 0
};

/* Units of a state of 1: both digits are within -128 .. 127. */
static const float STATE_UNITS = 127.0f * 256.0f;

/* Digits of 16 states, `apart` from the high ones to the low ones; whether all are numbers. */
EXT_INLINE int state_digits(const float* h, float units, qa* digits, int64_t apart) {
  int32_t high[EXT_PANEL], low[EXT_PANEL];
  vf rest = vf_zero();
  for (int v = 0; v < EXT_PANEL; v += VL) {
    const vf state = vf_load(h + v);
    const vi whole = vf_to_vi(state * vf_set1(units));
    const vi last = ((whole + vi_set1(128)) & vi_set1(255)) - vi_set1(128);
    vi_store(high + v, ((whole - last) >> 8) + vi_set1(DIGIT_SHIFT));
    vi_store(low + v, last + vi_set1(DIGIT_SHIFT));
    rest = rest + (state - state); /* NaN of what is no finite number */
  }
  for (int i = 0; i < EXT_PANEL; i++) {
    digits[i] = (qa)high[i];
    digits[apart + i] = (qa)low[i];
  }
  return vf_sum(rest) == 0.0f;
}

EXT_INLINE vq add_products(vq sum, vqa a, vqb b) {
#if defined(DIGIT_ROWS)
  return vq_dot_in_place(sum, a, b);
#else
  return vq_dot(sum, a, b);
#endif
}

/* A block of weights [quads of units][gate][16][4], sums of their columns, and scales times the
 * states' unit. */
typedef struct {
  const int8_t* r;
  const int32_t* sums; /* [gate][16] */
  const float* scale;
  float unit;
  int64_t quads, apart; /* between digits of a row */
} byte_block;

/* t[i][gate] = sums of `rows` rows, whose digits are `row` apart. */
EXT_INLINE void sum_digits(const int rows, const byte_block* b, const qa* digits, int64_t row,
                           float* t) {
  for (int v = 0; v < EXT_PANEL; v += VL) {
    vi start[MOST_GATES];
    vq acc[RECURRENT_DIGIT_ROWS][MOST_GATES][STATE_DIGITS];
    EXT_UNROLL
    for (int g = 0; g < MOST_GATES; g++) {
      start[g] = vi_load(b->sums + g * EXT_PANEL + v) * vi_set1(-DIGIT_SHIFT);
      EXT_UNROLL
      for (int i = 0; i < rows * STATE_DIGITS; i++) acc[i / 2][g][i % 2] = vq_start(start[g]);
    }
    const int8_t* r = b->r + 4 * v;
    for (int64_t k = 0; k < b->quads; k++, r += 4 * TILE_ROW) {
      EXT_UNROLL
      for (int g = 0; g < MOST_GATES; g++) {
        const vqb weights = vq_panel(r + 4 * g * EXT_PANEL);
        EXT_UNROLL
        for (int i = 0; i < rows * STATE_DIGITS; i++) {
          const vqa quad = vq_row(digits + i / 2 * row + i % 2 * b->apart + 4 * k);
          acc[i / 2][g][i % 2] = add_products(acc[i / 2][g][i % 2], quad, weights);
        }
      }
    }
    EXT_UNROLL
    for (int i = 0; i < rows; i++) {
      EXT_UNROLL
      for (int g = 0; g < MOST_GATES; g++) {
        vf high = vi_to_vf(vq_sum(acc[i][g][0], start[g]));
        vf low = vi_to_vf(vq_sum(acc[i][g][1], start[g]));
        vf scale = vf_load(b->scale + g * EXT_PANEL + v) * vf_set1(b->unit);
        vf_store(t + i * TILE_ROW + g * EXT_PANEL + v, vf_fma(vf_set1(256.0f), high, low) * scale);
      }
    }
  }
}

static void sum_byte_rows(int64_t rows, const byte_block* b, const qa* digits, int64_t row,
                          float* t) {
  for (; rows >= RECURRENT_DIGIT_ROWS; rows -= RECURRENT_DIGIT_ROWS) {
    sum_digits(RECURRENT_DIGIT_ROWS, b, digits, row, t);
    digits += RECURRENT_DIGIT_ROWS * row;
    t += RECURRENT_DIGIT_ROWS * TILE_ROW;
  }
  for (; rows > 0; rows--, digits += row, t += TILE_ROW) sum_digits(1, b, digits, row, t);
}

#endif /* EXT_RECURRENT_BYTES_H_ */
