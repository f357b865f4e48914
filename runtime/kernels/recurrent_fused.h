/*
 * Internal: cells of LSTM and GRU with sigmoid and tanh, s(x) = 1 / (1 + e^-x) and tanh(x) = y / q
 * put into the formulas: one division for each sum of products.  They take two thirds of the time
 * of one function after the other.
 */
#ifndef EXT_RECURRENT_FUSED_H_
#define EXT_RECURRENT_FUSED_H_

#include "recurrent_cells.h"

/* Rows that are computed at once, as registers have room: the functions are chains of instructions
 * that wait for each other. */
enum { FUSED_ROWS = RECURRENT_SUMS < 24 ? 2 : 4 };

/* States whose magnitude is greater are left to recurrent_cells.h: products with them would
 * overflow, and a gate that is all but shut would let some of them through. */
static const float GREATEST_STATE = 65536.0f;

/* e^-x = 2^n 2^r, |r| <= 1/2, 2^r a polynomial of degree 5 (7.5e-8).  At most 2^55: two of them
 * times tanh's q times 2^16 are finite, and what a gate of 2^-55 lets through is lost in rounding.
 */
EXT_INLINE vf exp_of_opposite(vf x) {
  const vf magic = vf_set1(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
  vf t = vf_clip(x * vf_set1(-1.44269504f), -126.0f, 55.0f);
  vf n = (t + magic) - magic, r = t - n;
  vf p = vf_set1(0.00132765f);
  p = vf_fma(p, r, vf_set1(0.00967554f));
  p = vf_fma(p, r, vf_set1(0.05550713f));
  p = vf_fma(p, r, vf_set1(0.2402212f));
  p = vf_fma(p, r, vf_set1(0.69314697f));
  p = vf_fma(p, r, vf_set1(1.0f));
  return vf_pow2_normal(p, n);
}

EXT_INLINE vf any_tanh_parts(vf x, vf* q) {
  return vf_tanh_parts(vf_clip(x, -9.02f, 9.02f), q);
}

/* VL units of `rows` cells of an LSTM:
 * c' = (c (1 + e^-in) q + y (1 + e^-keep)) / ((1 + e^-in) (1 + e^-keep) q),
 * h = y' / ((1 + e^-out) q'). */
EXT_INLINE void fused_lstm_cells(const int rows, int v, const recurrent_cell* cells) {
  const vf one = vf_set1(1.0f);
  vf in[FUSED_ROWS], keep[FUSED_ROWS], out[FUSED_ROWS], y[FUSED_ROWS], q[FUSED_ROWS], c[FUSED_ROWS];
  EXT_UNROLL
  for (int i = 0; i < rows; i++) {
    const recurrent_cell* cell = cells + i;
    in[i] = SUM(0), out[i] = SUM(1), keep[i] = SUM(2), y[i] = SUM(3);
    c[i] = vf_load(cell->c + v);
  }
  EXT_UNROLL
  for (int i = 0; i < rows; i++) y[i] = any_tanh_parts(y[i], q + i);
  EXT_UNROLL
  for (int i = 0; i < rows; i++) in[i] = exp_of_opposite(in[i]);
  EXT_UNROLL
  for (int i = 0; i < rows; i++) keep[i] = exp_of_opposite(keep[i]);
  EXT_UNROLL
  for (int i = 0; i < rows; i++) {
    const vf a = one + keep[i], b = vf_fma(in[i], q[i], q[i]);
    c[i] = vf_fma(c[i], b, y[i] * a) / (a * b);
    vf_store(cells[i].c + v, c[i]);
  }
  EXT_UNROLL
  for (int i = 0; i < rows; i++) out[i] = exp_of_opposite(out[i]);
  EXT_UNROLL
  for (int i = 0; i < rows; i++) y[i] = any_tanh_parts(c[i], q + i);
  EXT_UNROLL
  for (int i = 0; i < rows; i++) vf_store(cells[i].h + v, y[i] / vf_fma(out[i], q[i], q[i]));
}

/* The same of EXT_GRU_RESET_LAST: n = y / q of x + (product + bias) / (1 + e^-reset),
 * h' = (1 - z) n + z h = (e^-update y + h q) / ((1 + e^-update) q). */
EXT_INLINE void fused_gru_cells(const int rows, int v, const recurrent_cell* cells) {
  const vf one = vf_set1(1.0f);
  vf update[FUSED_ROWS], reset[FUSED_ROWS], y[FUSED_ROWS], q[FUSED_ROWS], h[FUSED_ROWS];
  EXT_UNROLL
  for (int i = 0; i < rows; i++) {
    const recurrent_cell* cell = cells + i;
    update[i] = SUM(0), reset[i] = SUM(1), h[i] = vf_load(cell->h_before + v);
    y[i] = vf_load(cell->sums + 2 * EXT_PANEL + v) + vf_load(cell->bias + v);
  }
  EXT_UNROLL
  for (int i = 0; i < rows; i++) reset[i] = exp_of_opposite(reset[i]);
  EXT_UNROLL
  for (int i = 0; i < rows; i++)
    y[i] = vf_load(cells[i].x + 2 * EXT_PANEL + v) + y[i] / (one + reset[i]);
  EXT_UNROLL
  for (int i = 0; i < rows; i++) update[i] = exp_of_opposite(update[i]);
  EXT_UNROLL
  for (int i = 0; i < rows; i++) y[i] = any_tanh_parts(y[i], q + i);
  EXT_UNROLL
  for (int i = 0; i < rows; i++)
    vf_store(cells[i].h + v, vf_fma(update[i], y[i], h[i] * q[i]) / vf_fma(update[i], q[i], q[i]));
}

/* 1 for layers that this file is for. */
EXT_INLINE int has_fused_cells(const ext_recurrent_params* p, const float* peepholes) {
  return p->kind == EXT_GRU_RESET_LAST || (p->kind == EXT_LSTM && !p->coupled && !peepholes);
}

EXT_INLINE void fused_cells(const int rows, const ext_recurrent_params* p, const gate_function* f,
                            const recurrent_cell* cells) {
  vf most = vf_zero();
  for (int v = 0; v < EXT_PANEL; v += VL)
    for (int i = 0; i < rows; i++)
      most =
          vf_max(vf_abs(vf_load((p->kind == EXT_LSTM ? cells[i].c : cells[i].h_before) + v)), most);
  if (__builtin_expect(vm_any(vm_lt(vf_set1(GREATEST_STATE), most)), 0)) {
    for (int i = 0; i < rows; i++) cell_of(1, p, f, 0, cells + i);
    return;
  }
  for (int v = 0; v < EXT_PANEL; v += VL) {
    if (p->kind == EXT_LSTM)
      fused_lstm_cells(rows, v, cells);
    else
      fused_gru_cells(rows, v, cells);
  }
}

#undef SUM
#endif /* EXT_RECURRENT_FUSED_H_ */
