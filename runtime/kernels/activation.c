/* Elementwise functions over a span: y[i] = f(x[i]). */
#include "activation.h"

#include "../simd/math.h"

/* `kind` is a constant at every call, so that each gets a loop of its own.  Two vectors at a time
 * hide the latency of the polynomials. */
EXT_INLINE void span(const ext_unary_kind kind, float alpha, float beta, int64_t n, const float* x,
                     float* y) {
  int64_t i = 0;
  for (; i + 2 * VL <= n; i += 2 * VL) {
    vf u = vf_load(x + i), v = vf_load(x + i + VL);
    vf_store(y + i, vf_activate(kind, alpha, beta, u));
    vf_store(y + i + VL, vf_activate(kind, alpha, beta, v));
  }
  for (; i < n; i += VL) {
    int64_t lanes = i64_min(n - i, VL);
    vf_store_n(y + i, vf_activate(kind, alpha, beta, vf_load_n(x + i, lanes)), lanes);
  }
}

void EXT_NAME(ext_activate)(const ext_activation* f, int64_t n, const float* x, float* y) {
#define EXT_CASE(kind) \
  case kind: span(kind, f->alpha, f->beta, n, x, y); return
  switch (f->kind) {
    case EXT_IDENTITY:
      if (x != y && n > 0) memmove(y, x, (size_t)n * sizeof *y);
      return;
      EXT_CASE(EXT_RELU);
      EXT_CASE(EXT_CLIP);
      EXT_CASE(EXT_SIGMOID);
      EXT_CASE(EXT_SILU);
      EXT_CASE(EXT_HARD_SIGMOID);
      EXT_CASE(EXT_HARD_SWISH);
      EXT_CASE(EXT_GELU);
      EXT_CASE(EXT_GELU_TANH);
      EXT_CASE(EXT_TANH);
      EXT_CASE(EXT_LEAKY_RELU);
      EXT_CASE(EXT_EXP);
      EXT_CASE(EXT_LOG);
      EXT_CASE(EXT_ERF);
      EXT_CASE(EXT_SQRT);
      EXT_CASE(EXT_RSQRT);
      EXT_CASE(EXT_ABS);
      EXT_CASE(EXT_NEG);
      EXT_CASE(EXT_ELU);
      EXT_CASE(EXT_SELU);
      EXT_CASE(EXT_MISH);
      EXT_CASE(EXT_SOFTPLUS);
      EXT_CASE(EXT_FLOOR);
      EXT_CASE(EXT_CEIL);
      EXT_CASE(EXT_ROUND);
      EXT_CASE(EXT_SIN);
      EXT_CASE(EXT_COS);
      EXT_CASE(EXT_TAN);
      EXT_CASE(EXT_SIGN);
      EXT_CASE(EXT_RECIPROCAL);
  }
#undef EXT_CASE
}

void EXT_NAME(ext_finish_tile)(const ext_epilogue* e, int64_t rows, int64_t columns, float* t,
                               int64_t width, const float* residual, int64_t residual_stride,
                               float* y, int64_t y_stride) {
  EXT_NAME(ext_activate)(&e->before, rows * width, t, t);
  if (residual)
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < columns; j++) t[i * width + j] += residual[i * residual_stride + j];
  EXT_NAME(ext_activate)(&e->after, rows * width, t, t);
  for (int64_t i = 0; i < rows; i++) copy_run(y + i * y_stride, t + i * width, columns);
}
