/* AVX-512 (F, BW, DQ, VL): 16 floats. */
#include <immintrin.h>

typedef float vf __attribute__((vector_size(4 * VL)));
typedef int32_t vi __attribute__((vector_size(4 * VL)));
typedef __mmask16 vm;

EXT_INLINE vf vf_load(const float* p) {
  return _mm512_loadu_ps(p);
}
EXT_INLINE void vf_store(float* p, vf x) {
  _mm512_storeu_ps(p, x);
}
EXT_INLINE vf vf_set1(float x) {
  return _mm512_set1_ps(x);
}
EXT_INLINE vm vm_first(int64_t n) {
  return (vm)((1u << n) - 1u);
}
EXT_INLINE vf vf_load_n(const float* p, int64_t n) {
  return _mm512_maskz_loadu_ps(vm_first(n), p);
}
EXT_INLINE void vf_store_n(float* p, vf x, int64_t n) {
  _mm512_mask_storeu_ps(p, vm_first(n), x);
}
EXT_INLINE vf vf_fma(vf a, vf b, vf c) {
  return _mm512_fmadd_ps(a, b, c);
}
/* These work on the lower half alone; the upper half of the result is anything.  A core that runs
 * 512 bits as two halves takes half the time. */
EXT_INLINE vf vf_set1_low(float x) {
  return _mm512_castps256_ps512(_mm256_set1_ps(x));
}
EXT_INLINE vf vf_fma_low(vf a, vf b, vf c) {
  __m256 x = _mm512_castps512_ps256(a), y = _mm512_castps512_ps256(b);
  return _mm512_castps256_ps512(_mm256_fmadd_ps(x, y, _mm512_castps512_ps256(c)));
}
/* Half a vector. */
typedef float vh __attribute__((vector_size(4 * VL / 2)));
EXT_INLINE vh vh_load(const float* p) {
  return _mm256_loadu_ps(p);
}
EXT_INLINE void vh_store(float* p, vh x) {
  _mm256_storeu_ps(p, x);
}
/* Numbers p[0] and p[1] by turns. */
EXT_INLINE vh vh_pairs(const float* p) {
  return (vh)_mm256_broadcast_sd((const double*)p);
}
EXT_INLINE vh vh_fma(vh a, vh b, vh c) {
  return _mm256_fmadd_ps(a, b, c);
}
/* In each half: the sums of two neighbours of a, then of b. */
EXT_INLINE vh vh_sum_pairs(vh a, vh b) {
  return _mm256_hadd_ps(a, b);
}
/* The first n lanes from and to float16: the nearest, halves to even.  Subnormal halves are given
 * and taken in whatever mode a process has set. */
EXT_INLINE vf vf_load_float16_n(const uint16_t* p, int64_t n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(vm_first(n), p));
}
EXT_INLINE void vf_store_float16_n(uint16_t* p, vf x, int64_t n) {
  _mm256_mask_storeu_epi16(p, vm_first(n), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
/* The halves of x the other way round. */
EXT_INLINE vf vf_swap_halves(vf x) {
  return _mm512_shuffle_f32x4(x, x, _MM_SHUFFLE(1, 0, 3, 2));
}
EXT_INLINE vf vf_max(vf a, vf b) {
  return _mm512_max_ps(a, b);
}
EXT_INLINE vf vf_min(vf a, vf b) {
  return _mm512_min_ps(a, b);
}
EXT_INLINE vf vf_sqrt(vf a) {
  return _mm512_sqrt_ps(a);
}
EXT_INLINE vm vm_lt(vf a, vf b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
EXT_INLINE vm vm_nan(vf a) {
  return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
}
EXT_INLINE int vm_any(vm m) {
  return m != 0;
}
EXT_INLINE vf vf_select(vm m, vf a, vf b) {
  return _mm512_mask_blend_ps(m, b, a);
}
EXT_INLINE vf vf_pow2(vf x, vf n) {
  return _mm512_scalef_ps(x, n);
}
EXT_INLINE vf vf_pow2_normal(vf x, vf n) {
  return vf_pow2(x, n);
}
/* Keeps x in a register: the compiler would rather load it again for each use. */
EXT_INLINE vf vf_keep(vf x) {
  __asm__("" : "+v"(x));
  return x;
}
EXT_INLINE float vf_sum(vf x) {
  return _mm512_reduce_add_ps(x);
}
EXT_INLINE float vf_most(vf x) {
  return _mm512_reduce_max_ps(x);
}

/* Lane i is x[from[i]]; from counts lanes of x. */
EXT_INLINE vf vf_lanes(vf x, vi from) {
  return _mm512_permutexvar_ps((__m512i)from, x);
}

/* Transposes in place the tile whose row i is r[i]: pairs, quads, then 128-bit lanes. */
EXT_INLINE void vf_transpose(vf r[VL]) {
  vf t[VL];
  EXT_UNROLL
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  EXT_UNROLL
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; j++) {
      __m512d a = _mm512_castps_pd(t[i + j]), b = _mm512_castps_pd(t[i + j + 2]);
      r[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
      r[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    }
  EXT_UNROLL
  for (int i = 0; i < 4;
       i++) { /* r[4 g + i] holds in lane l: rows 4 g .. 4 g + 3, column 4 l + i */
    t[i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0x88);
    t[4 + i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0xdd);
    t[8 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0x88);
    t[12 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0xdd);
  }
  EXT_UNROLL
  for (int i = 0; i < 4; i++) {
    r[i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0x88);
    r[8 + i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0xdd);
    r[4 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0x88);
    r[12 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0xdd);
  }
}
