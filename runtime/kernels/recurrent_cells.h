/* Internal: what the functions of recurrent layers make of the sums of 16 units. */
#ifndef EXT_RECURRENT_CELLS_H_
#define EXT_RECURRENT_CELLS_H_

#include "recurrent.h"

/* One row of a tile at a step. */
typedef struct {
  const float *sums, *x;
  const float *h_before, *peepholes, *bias;
  float *h, *c, *update, *reset;
} recurrent_cell;

#define GATE(index, argument) \
  (usual ? index ? vf_tanh(argument) : vf_sigmoid(argument) : gate_of(f + index, clip, argument))
#define SUM(gate) \
  (vf_load(cell->sums + (gate) * EXT_PANEL + v) + vf_load(cell->x + (gate) * EXT_PANEL + v))

EXT_INLINE void lstm_cell(const int usual, const ext_recurrent_params* p, const gate_function* f,
                          const recurrent_cell* cell) {
  const float clip = p->clip;
  for (int v = 0; v < EXT_PANEL; v += VL) {
    vf in = SUM(0), out = SUM(1), keep = SUM(2), fresh = SUM(3), c = vf_load(cell->c + v);
    if (cell->peepholes) {
      in = vf_fma(vf_load(cell->peepholes + v), c, in);
      keep = vf_fma(vf_load(cell->peepholes + 2 * EXT_PANEL + v), c, keep);
    }
    in = GATE(0, in);
    keep = p->coupled ? vf_set1(1.0f) - in : GATE(0, keep);
    c = vf_fma(keep, c, in * GATE(1, fresh));
    vf_store(cell->c + v, c);
    if (cell->peepholes) out = vf_fma(vf_load(cell->peepholes + EXT_PANEL + v), c, out);
    vf squashed = usual ? vf_tanh(c) : gate_of(f + 2, 0.0f, c);
    vf_store(cell->h + v, GATE(0, out) * squashed);
  }
}

EXT_INLINE void gru_reset_cell(const int usual, const ext_recurrent_params* p,
                               const gate_function* f, const recurrent_cell* cell) {
  const float clip = p->clip;
  for (int v = 0; v < EXT_PANEL; v += VL) {
    vf_store(cell->update + v, GATE(0, SUM(0)));
    vf_store(cell->reset + v, GATE(0, SUM(1)) * vf_load(cell->h_before + v));
  }
}

/* h' = (1 - z) n + z h. */
EXT_INLINE vf mixed(vf z, vf n, vf h) {
  return vf_fma(z, h, (vf_set1(1.0f) - z) * n);
}

EXT_INLINE void gru_cell(const int usual, const ext_recurrent_params* p, const gate_function* f,
                         const recurrent_cell* cell) {
  const float clip = p->clip;
  for (int v = 0; v < EXT_PANEL; v += VL) {
    vf n = vf_load(cell->sums + v) + vf_load(cell->x + 2 * EXT_PANEL + v);
    vf h = mixed(vf_load(cell->update + v), GATE(1, n), vf_load(cell->h_before + v));
    vf_store(cell->h + v, h);
  }
}

EXT_INLINE void gru_reset_last_cell(const int usual, const ext_recurrent_params* p,
                                    const gate_function* f, const recurrent_cell* cell) {
  const float clip = p->clip;
  for (int v = 0; v < EXT_PANEL; v += VL) {
    vf product = vf_load(cell->sums + 2 * EXT_PANEL + v) + vf_load(cell->bias + v);
    vf n = vf_fma(GATE(0, SUM(1)), product, vf_load(cell->x + 2 * EXT_PANEL + v));
    vf h = mixed(GATE(0, SUM(0)), GATE(1, n), vf_load(cell->h_before + v));
    vf_store(cell->h + v, h);
  }
}

EXT_INLINE void rnn_cell(const ext_recurrent_params* p, const gate_function* f,
                         const recurrent_cell* cell) {
  const float clip = p->clip;
  for (int v = 0; v < EXT_PANEL; v += VL) vf_store(cell->h + v, gate_of(f, clip, SUM(0)));
}

EXT_INLINE void cell_of(const int usual, const ext_recurrent_params* p, const gate_function* f,
                        int second, const recurrent_cell* cell) {
  switch (p->kind) {
    case EXT_LSTM: lstm_cell(usual, p, f, cell); return;
    case EXT_GRU_RESET_LAST: gru_reset_last_cell(usual, p, f, cell); return;
    case EXT_GRU:
      if (second)
        gru_cell(usual, p, f, cell);
      else
        gru_reset_cell(usual, p, f, cell);
      return;
    default: rnn_cell(p, f, cell);
  }
}

#undef GATE
#endif /* EXT_RECURRENT_CELLS_H_ */
