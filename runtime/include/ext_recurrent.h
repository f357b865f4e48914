/*
 * ext_recurrent.h - layers of recurrent networks; ext_kernels.h includes it.
 */
#ifndef EXT_RECURRENT_H_
#define EXT_RECURRENT_H_

#include "ext_common.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  EXT_RNN = 0,
  EXT_GRU,
  EXT_GRU_RESET_LAST, /* the reset gate multiplies a product instead of the state before it */
  EXT_LSTM
} ext_recurrent_kind;

/* What gates apply to their sums. */
typedef enum {
  EXT_GATE_SIGMOID = 0,      /* 1 / (1 + exp(-x)) */
  EXT_GATE_TANH,             /* tanh(x) */
  EXT_GATE_RELU,             /* max(x, 0) */
  EXT_GATE_AFFINE,           /* alpha x + beta */
  EXT_GATE_LEAKY_RELU,       /* x < 0 ? alpha x : x */
  EXT_GATE_THRESHOLDED_RELU, /* x > alpha ? x : 0 */
  EXT_GATE_SCALED_TANH,      /* alpha tanh(beta x) */
  EXT_GATE_HARD_SIGMOID,     /* min(max(alpha x + beta, 0), 1) */
  EXT_GATE_ELU,              /* x < 0 ? alpha (exp(x) - 1) : x */
  EXT_GATE_SOFTSIGN,         /* x / (1 + |x|) */
  EXT_GATE_SOFTPLUS          /* log(1 + exp(x)) */
} ext_gate_kind;

/* The steps of a layer, whose products of the inputs are known: with s the sums x + h r of a gate,
 * h and c the states of the step before, f, g and k the functions, those of sums after these were
 * clipped,
 *   EXT_RNN              h' = f(s)
 *   EXT_GRU              z, u = f(s_z), f(s_u);  h' = (1 - z) g(x_n + (u h) r_n) + z h
 *   EXT_GRU_RESET_LAST   the same with g(x_n + u (h r_n + bias))
 *   EXT_LSTM             i, f = f(s_i + p_i c), f(s_f + p_f c);  c' = f c + i g(s_n)
 *                        h' = f(s_o + p_o c') k(c')
 * One direction, or two that are independent: the second runs from the last step to the first. */
typedef struct {
  ext_recurrent_kind kind;
  int32_t directions; /* 1 or 2 */
  int32_t reverse;    /* the only direction runs from the last step to the first */
  int32_t coupled;    /* EXT_LSTM: f = 1 - i */
  int64_t steps, batch, units;
  int64_t x_step, x_row;              /* between steps and rows of the batch */
  int64_t y_step, y_direction, y_row; /* units are contiguous in y and the states */
  int64_t state_direction, state_row; /* of all states */
  float clip;                         /* above 0, or 0 for none */
  ext_gate_kind functions[6];         /* f, g, k; those of the second direction behind them */
  float alphas[6], betas[6];
} ext_recurrent_params;

/* Gates lie side by side in blocks of 16 units, in ONNX's order (z, u, n; i, o, f, n): r
 * [direction][block][units][gate][16].  EXT_GRU has two parts of it for each direction,
 * [block][units][2][16] and [block][units][1][16].  Integers, which are for EXT_LSTM, are r
 * [direction][block][ceil(units / 4)][gate][16][4] with scales [direction][block][gate][16], and
 * the sums of the columns beside them; zero points are 0.  What lies past the units in a block is
 * zero in all of them. */
typedef struct {
  ext_dtype dtype; /* of r: EXT_FLOAT32, EXT_BFLOAT16 or EXT_INT8 */
  const void* r;
  const float* scale; /* NULL for floats, as are the sums */
  const int32_t* sums;
  const float* bias;      /* [direction][block][16] for EXT_GRU_RESET_LAST, else NULL */
  const float* peepholes; /* [direction][block][3][16] (i, o, f) for EXT_LSTM, or NULL */
} ext_recurrent_weights;

/* x [step][row][direction][block][gate][16] has the products of the inputs with biases.  lengths
 * [batch] is NULL, or how many steps of each row there are: the second direction begins at the last
 * of these, y is zero behind it.  h and c are the first states, NULL for zeros; y, last_h and
 * last_c are NULL where nobody wants them.  EXT_ERR_INDEX, and results undefined, where a length is
 * below 0 or above `steps`.  States are quantised at each step for integers, each row by its range
 * as ext_dynamic_quantize does it; one that is not finite makes its row NaN. */
int ext_recurrent(const ext_recurrent_params* p, const ext_recurrent_weights* w, const float* x,
                  const int32_t* lengths, const float* h, const float* c, float* y, float* last_h,
                  float* last_c);

#ifdef __cplusplus
}
#endif
#endif /* EXT_RECURRENT_H_ */
