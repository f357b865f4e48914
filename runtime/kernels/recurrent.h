/* Internal: sums and functions of the gates of recurrent layers. */
#ifndef EXT_RECURRENT_GATES_H_
#define EXT_RECURRENT_GATES_H_

#include "../simd/bf16.h"
#include "../simd/math.h"
#include "ahead.h"

enum {
  MOST_GATES = 4,
  PANEL_VECTORS = EXT_PANEL / VL,
  TILE_ROW = MOST_GATES * EXT_PANEL /* floats of a row in a tile of sums */
};

typedef struct {
  ext_gate_kind kind;
  float alpha, beta;
} gate_function;

static vf rare_gate(const gate_function* f, vf x) {
  const vf alpha = vf_set1(f->alpha), beta = vf_set1(f->beta), one = vf_set1(1.0f);
  switch (f->kind) {
    case EXT_GATE_RELU: return vf_max(vf_zero(), x);
    case EXT_GATE_AFFINE: return vf_fma(alpha, x, beta);
    case EXT_GATE_LEAKY_RELU: return vf_select(vm_lt(x, vf_zero()), alpha * x, x);
    case EXT_GATE_THRESHOLDED_RELU:
      return vf_select(vm_nan(x), x, vf_select(vm_lt(alpha, x), x, vf_zero()));
    case EXT_GATE_SCALED_TANH: return alpha * vf_tanh(beta * x);
    case EXT_GATE_HARD_SIGMOID: return vf_clip(vf_fma(alpha, x, beta), 0.0f, 1.0f);
    case EXT_GATE_ELU: return vf_select(vm_lt(x, vf_zero()), alpha * vf_expm1_low(x), x);
    case EXT_GATE_SOFTSIGN: return x / (one + vf_abs(x));
    case EXT_GATE_SOFTPLUS: return vf_softplus(x);
    default: return x;
  }
}

/* f(x), x clipped to [-clip, clip] first where clip is above 0. */
EXT_INLINE vf gate_of(const gate_function* f, float clip, vf x) {
  if (clip > 0.0f) x = vf_clip(x, -clip, clip);
  if (f->kind == EXT_GATE_SIGMOID) return vf_sigmoid(x);
  if (f->kind == EXT_GATE_TANH) return vf_tanh(x);
  return rare_gate(f, x);
}

/* VL weights from element i of r on. */
EXT_INLINE vf weights_at(const int narrow, const void* r, int64_t i) {
  return narrow ? vbf_widen(vbf_load((const uint16_t*)r + i)) : vf_load((const float*)r + i);
}

/* Weights that L2 has no room for are asked for so many bytes ahead, and those of the next block
 * before the functions of this one, where that helps (ahead.h): 50 steps of an LSTM of 512 units
 * take 2.07 ms instead of 2.20 on Zen 5.  On Zen 4 100 steps take 6.6 ms where nothing is asked
 * for, and 7.6 where it is. */
enum { WEIGHTS_AHEAD = 1536 };

/*
 * t[i][g] = sum_k h[i][k] r[k][g], i < rows, for `gates` gates of all that a row of r has, and
 * `vectors` vectors of units.  Of few sums, `chains` of each take turns along k, which hides the
 * multiply-add's latency.  r is bf16 where it is `narrow`, and read from element `at` on; where it
 * is `far`, it is asked for ahead.
 */
EXT_INLINE void sum_vectors(const int narrow, const int far, const int rows, const int gates,
                            const int vectors, const int chains, const void* r, int64_t at,
                            int64_t r_row, int64_t units, const float* h, int64_t h_row, float* t) {
  const int sums = gates * vectors;
  vf acc[RECURRENT_CHAINS][MOST_GATES * PANEL_VECTORS];
  EXT_UNROLL
  for (int c = 0; c < chains * rows; c++) {
    EXT_UNROLL
    for (int s = 0; s < sums; s++) acc[c][s] = vf_zero();
  }
  int64_t k = 0;
  for (; k + chains <= units; k += chains) {
    EXT_UNROLL
    for (int c = 0; c < chains; c++, at += r_row) {
      vf w[MOST_GATES * PANEL_VECTORS];
      EXT_UNROLL
      for (int s = 0; s < sums; s++) {
        const int64_t place = at + s / vectors * EXT_PANEL + s % vectors * VL;
        if (far) __builtin_prefetch((const char*)r + place * (narrow ? 2 : 4) + WEIGHTS_AHEAD);
        w[s] = weights_at(narrow, r, place);
      }
      EXT_UNROLL
      for (int i = 0; i < rows; i++) {
        const vf each = vf_set1(h[i * h_row + k + c]);
        EXT_UNROLL
        for (int s = 0; s < sums; s++)
          acc[c * rows + i][s] = vf_fma(each, w[s], acc[c * rows + i][s]);
      }
    }
  }
  for (; k < units; k++, at += r_row) {
    EXT_UNROLL
    for (int i = 0; i < rows; i++) {
      const vf each = vf_set1(h[i * h_row + k]);
      EXT_UNROLL
      for (int s = 0; s < sums; s++) {
        vf w = weights_at(narrow, r, at + s / vectors * EXT_PANEL + s % vectors * VL);
        acc[i][s] = vf_fma(each, w, acc[i][s]);
      }
    }
  }
  EXT_UNROLL
  for (int i = 0; i < rows; i++) {
    EXT_UNROLL
    for (int s = 0; s < sums; s++) {
      vf sum = acc[i][s];
      EXT_UNROLL
      for (int c = 1; c < chains; c++) sum = sum + acc[c * rows + i][s];
      vf_store(t + i * TILE_ROW + s / vectors * EXT_PANEL + s % vectors * VL, sum);
    }
  }
}

/* The same for all 16 units of a block and all gates, as many at once as registers hold. */
EXT_INLINE void sum_rows(const int narrow, const int far, const int rows, const int gates,
                         const void* r, int64_t units, const float* h, int64_t h_row, float* t) {
  const int vectors = rows == 1 ? RECURRENT_WIDE : RECURRENT_VECTORS;
  const int most = RECURRENT_SUMS / (rows * vectors);
  const int at_once = gates <= most ? gates : most == 3 ? 2 : most < 1 ? 1 : most;
  const int chains = rows * at_once * vectors >= RECURRENT_CHAINS
                         ? 1
                         : RECURRENT_CHAINS / (rows * at_once * vectors);
  const int64_t r_row = gates * EXT_PANEL;
  for (int v = 0; v < EXT_PANEL; v += vectors * VL) {
    int g = 0;
    for (; g + at_once <= gates; g += at_once)
      sum_vectors(narrow, far, rows, at_once, vectors, chains, r, g * EXT_PANEL + v, r_row, units,
                  h, h_row, t + g * EXT_PANEL + v);
    if (gates % at_once)
      sum_vectors(narrow, far, rows, gates % at_once, vectors, chains, r, g * EXT_PANEL + v, r_row,
                  units, h, h_row, t + g * EXT_PANEL + v);
  }
}

#endif /* EXT_RECURRENT_GATES_H_ */
