/* Internal: elementwise functions over a span, and the epilogue of a tile. */
#ifndef EXT_ACTIVATION_H_
#define EXT_ACTIVATION_H_

#include "../simd/simd.h"

/* y[i] = f(x[i]), i < n, on the calling thread; y may be x. */
void EXT_NAME(ext_activate)(const ext_activation* f, int64_t n, const float* x, float* y);

/* The same epilogue in the form that a tile's tail wants.  `clamp` says that there is no `before`
 * and that `after` is min(max(v, low), high), which runs in registers; identity is the clamp to
 * [-inf, inf], exact for every value. */
typedef struct {
  int clamp;
  float low, high;
} ext_tail;

static inline int ext_clamp_bounds(const ext_activation* f, float* low, float* high) {
  *low = -__builtin_inff();
  *high = __builtin_inff();
  if (f->kind == EXT_RELU) *low = 0.0f;
  if (f->kind == EXT_CLIP) {
    *low = f->alpha;
    *high = f->beta;
  }
  return f->kind == EXT_IDENTITY || f->kind == EXT_RELU || f->kind == EXT_CLIP;
}

/* Without a residual, the two activations are neighbours: an epilogue with one of them only is
 * rewritten to have it in `after`.  Returns the tail. */
static inline ext_tail ext_plan_tail(ext_epilogue* e) {
  ext_tail tail;
  if (!e->residual && e->after.kind == EXT_IDENTITY) {
    e->after = e->before;
    e->before.kind = EXT_IDENTITY;
  }
  int cheap = ext_clamp_bounds(&e->after, &tail.low, &tail.high);
  tail.clamp = cheap && e->before.kind == EXT_IDENTITY;
  return tail;
}

/* y[i][j] = after(before(t[i][j]) + residual[i][j]), or times it, i < rows, j < columns, for a tile
 * t of `width` columns to a row, which is overwritten.  residual is NULL or the tile's corner. */
void EXT_NAME(ext_finish_tile)(const ext_epilogue* e, int64_t rows, int64_t columns, float* t,
                               int64_t width, const float* residual, int64_t residual_stride,
                               float* y, int64_t y_stride);

/* Whether ext_finish_tile_bf16 has the activation. */
EXT_INLINE int has_bf16_form(ext_unary_kind kind) {
  return kind == EXT_GELU || kind == EXT_GELU_TANH || kind == EXT_SILU || kind == EXT_SIGMOID;
}

/* y[i][j] = f(t[i][j]) rounded to bf16, i < rows, j < columns, by a shorter form of f. */
void EXT_NAME(ext_finish_tile_bf16)(ext_unary_kind f, int64_t rows, int64_t columns, const float* t,
                                    int64_t width, uint16_t* y, int64_t y_stride);

#endif /* EXT_ACTIVATION_H_ */
