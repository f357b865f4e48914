/* Elementwise functions over a span: y[i] = f(x[i]). */
#include "activation.h"

#include "../simd/math.h"
#include "../simd/math_bf16.h"

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

/* Every function but the identity.  clang-format never settles on a form for this list. */
/* clang-format off */
#define EXT_KINDS(X)                                                                          \
  X(EXT_RELU) X(EXT_CLIP) X(EXT_SIGMOID) X(EXT_SILU) X(EXT_HARD_SIGMOID) X(EXT_HARD_SWISH)    \
  X(EXT_GELU) X(EXT_GELU_TANH) X(EXT_TANH) X(EXT_LEAKY_RELU) X(EXT_EXP) X(EXT_LOG) X(EXT_ERF) \
  X(EXT_SQRT) X(EXT_RSQRT) X(EXT_ABS) X(EXT_NEG) X(EXT_ELU) X(EXT_SELU) X(EXT_MISH)           \
  X(EXT_SOFTPLUS) X(EXT_FLOOR) X(EXT_CEIL) X(EXT_ROUND) X(EXT_SIN) X(EXT_COS) X(EXT_TAN)      \
  X(EXT_ATAN) X(EXT_ASIN) X(EXT_ACOS) X(EXT_ASINH) X(EXT_ACOSH) X(EXT_ATANH) X(EXT_SIGN)      \
  X(EXT_RECIPROCAL) X(EXT_EXPM1) X(EXT_LOG1P) X(EXT_TRUNC)
/* clang-format on */

/* y[i][j] = f(t[i][j]), i < rows, j < columns; `kind` as above. */
EXT_INLINE void tile_rows(const ext_unary_kind kind, const ext_activation* f, int64_t rows,
                          int64_t columns, const float* t, int64_t width, float* y,
                          int64_t y_stride) {
  const float alpha = f->alpha, beta = f->beta;
  for (int64_t i = 0; i < rows; i++, t += width, y += y_stride)
    span(kind, alpha, beta, columns, t, y);
}

static void finish_rows(const ext_activation* f, int64_t rows, int64_t columns, const float* t,
                        int64_t width, float* y, int64_t y_stride) {
#define EXT_CASE(kind) \
  case kind: tile_rows(kind, f, rows, columns, t, width, y, y_stride); return;
  switch (f->kind) {
    EXT_KINDS(EXT_CASE)
    case EXT_IDENTITY:
      for (int64_t i = 0; i < rows; i++) copy_run(y + i * y_stride, t + i * width, columns);
      return;
  }
#undef EXT_CASE
}

void EXT_NAME(ext_activate)(const ext_activation* f, int64_t n, const float* x, float* y) {
  if (f->kind != EXT_IDENTITY)
    finish_rows(f, 1, n, x, n, y, n);
  else if (x != y && n > 0)
    memmove(y, x, (size_t)n * sizeof *y);
}

void EXT_NAME(ext_finish_tile)(const ext_epilogue* e, int64_t rows, int64_t columns, float* t,
                               int64_t width, const float* residual, int64_t residual_stride,
                               float* y, int64_t y_stride) {
  if (e->before.kind != EXT_IDENTITY) EXT_NAME(ext_activate)(&e->before, rows * width, t, t);
  if (residual)
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < columns; j += VL) {
        const vf other = vf_load_n(residual + i * residual_stride + j, i64_min(VL, columns - j));
        float* sum = t + i * width + j;
        vf_store(sum, e->residual_is_factor ? vf_load(sum) * other : vf_load(sum) + other);
      }
  finish_rows(&e->after, rows, columns, t, width, y, y_stride);
}

/* `kind` is a constant, as above; rows of t are whole vectors. */
EXT_INLINE void tile_bf16(const ext_unary_kind kind, int64_t rows, int64_t columns, const float* t,
                          int64_t width, uint16_t* y, int64_t y_stride) {
  for (int64_t i = 0; i < rows; i++, t += width, y += y_stride) {
    int64_t j = 0;
    for (; j + VL <= columns; j += VL)
      vbf_store(y + j, vbf_round(vf_activate_bf16(kind, vf_load(t + j))));
    if (j < columns)
      vbf_store_n(y + j, vbf_round(vf_activate_bf16(kind, vf_load(t + j))), columns - j);
  }
}

void EXT_NAME(ext_finish_tile_bf16)(ext_unary_kind f, int64_t rows, int64_t columns, const float* t,
                                    int64_t width, uint16_t* y, int64_t y_stride) {
  switch (f) {
    case EXT_GELU: tile_bf16(EXT_GELU, rows, columns, t, width, y, y_stride); return;
    case EXT_GELU_TANH: tile_bf16(EXT_GELU_TANH, rows, columns, t, width, y, y_stride); return;
    case EXT_SILU: tile_bf16(EXT_SILU, rows, columns, t, width, y, y_stride); return;
    default: tile_bf16(EXT_SIGMOID, rows, columns, t, width, y, y_stride); return;
  }
}
