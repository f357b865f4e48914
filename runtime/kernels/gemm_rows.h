/* Internal: rows of A of a matrix product, as gemm.c and gemm_parts.c pack them. */
#ifndef EXT_GEMM_ROWS_H_
#define EXT_GEMM_ROWS_H_

#include "activation.h"
#include "gemm.h"

/* dst[c] = activation(x[c] * scale[c] + shift[c]), c < n. */
EXT_INLINE void apply_prologue(const ext_activation* f, int64_t n, const float* x,
                               const float* scale, const float* shift, float* dst) {
  float low, high;
  int clamp = ext_clamp_bounds(f, &low, &high);
  for (int64_t c = 0; c < n; c += VL) {
    int64_t lanes = i64_min(VL, n - c);
    vf s = scale ? vf_load_n(scale + c, lanes) : vf_set1(1.0f);
    vf v = vf_fma(vf_load_n(x + c, lanes), s, shift ? vf_load_n(shift + c, lanes) : vf_zero());
    vf_store_n(dst + c, vf_min(vf_set1(high), vf_max(vf_set1(low), v)), lanes);
  }
  if (!clamp) EXT_NAME(ext_activate)(f, n, dst, dst);
}

/* Packs A[row .. row + rows)[k0 .. k0 + kc) of the batch item at `offset`, by the caller's function
 * or from a plain matrix; rows of dst are A_STRIDE apart. */
EXT_INLINE void pack_rows(const ext_gemm* g, int64_t offset, int64_t row, int64_t rows, int64_t k0,
                          int64_t kc, float* dst) {
  if (g->pack) {
    g->pack(g->source, offset, row, rows, k0, kc, dst);
    return;
  }
  const float* a = g->a + offset + row * g->a_row + k0;
  const ext_prologue* before = g->prologue;
  for (int64_t r = 0; r < rows; r++, a += g->a_row, dst += A_STRIDE) {
    if (!before) {
      copy_run(dst, a, kc);
      continue;
    }
    int64_t image = (row + r) / g->image_rows;
    const float* scale = before->scale ? before->scale + image * before->scale_stride + k0 : NULL;
    apply_prologue(&before->activation, kc, a, scale, before->shift ? before->shift + k0 : NULL,
                   dst);
  }
}

#endif /* EXT_GEMM_ROWS_H_ */
