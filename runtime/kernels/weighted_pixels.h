/* Internal: pixels of an image, with their channels side by side, by weights. */
#ifndef EXT_WEIGHTED_PIXELS_H_
#define EXT_WEIGHTED_PIXELS_H_

#include "../simd/simd.h"

/* `vectors` vectors of channels, of which all lanes are there if `full`; both are constants. */
EXT_INLINE void mix_vectors(const int vectors, const int full, const int more, int count,
                            const int64_t* at, const float* weight, const float* x, int64_t lanes,
                            float* y) {
  vf sum[4];
  EXT_UNROLL
  for (int v = 0; v < vectors; v++) {
    sum[v] = vf_zero();
    if (more) sum[v] = full ? vf_load(y + v * VL) : vf_load_n(y + v * VL, lanes);
  }
  for (int t = 0; t < count; t++) {
    const vf w = vf_set1(weight[t]);
    EXT_UNROLL
    for (int v = 0; v < vectors; v++) {
      const float* pixel = x + at[t] + v * VL;
      sum[v] = vf_fma(full ? vf_load(pixel) : vf_load_n(pixel, lanes), w, sum[v]);
    }
  }
  EXT_UNROLL
  for (int v = 0; v < vectors; v++) {
    if (full)
      vf_store(y + v * VL, sum[v]);
    else
      vf_store_n(y + v * VL, sum[v], lanes);
  }
}

/* y[c] = sum over t of weight[t] x[at[t] + c], or with `more`, a constant, y[c] += that sum. */
EXT_INLINE void mix_pixels(const int more, int count, const int64_t* at, const float* weight,
                           const float* x, int64_t channels, float* y) {
  int64_t c = 0;
  for (; c + 4 * VL <= channels; c += 4 * VL)
    mix_vectors(4, 1, more, count, at, weight, x + c, VL, y + c);
  for (; c + VL <= channels; c += VL) mix_vectors(1, 1, more, count, at, weight, x + c, VL, y + c);
  if (c < channels) mix_vectors(1, 0, more, count, at, weight, x + c, channels - c, y + c);
}

#endif /* EXT_WEIGHTED_PIXELS_H_ */
