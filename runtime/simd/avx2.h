/* AVX2 and FMA: 8 floats. */
#include <immintrin.h>

typedef float vf __attribute__((vector_size(4 * VL)));
typedef int32_t vi __attribute__((vector_size(4 * VL)));
typedef float vm __attribute__((vector_size(4 * VL)));

EXT_INLINE vf vf_load(const float* p) {
  return _mm256_loadu_ps(p);
}
EXT_INLINE void vf_store(float* p, vf x) {
  _mm256_storeu_ps(p, x);
}
EXT_INLINE vf vf_set1(float x) {
  return _mm256_set1_ps(x);
}
EXT_INLINE __m256i vm_first(int64_t n) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}
EXT_INLINE vf vf_load_n(const float* p, int64_t n) {
  return _mm256_maskload_ps(p, vm_first(n));
}
EXT_INLINE void vf_store_n(float* p, vf x, int64_t n) {
  _mm256_maskstore_ps(p, vm_first(n), x);
}
EXT_INLINE vf vf_fma(vf a, vf b, vf c) {
  return _mm256_fmadd_ps(a, b, c);
}
EXT_INLINE vf vf_max(vf a, vf b) {
  return _mm256_max_ps(a, b);
}
EXT_INLINE vf vf_min(vf a, vf b) {
  return _mm256_min_ps(a, b);
}
EXT_INLINE vf vf_sqrt(vf a) {
  return _mm256_sqrt_ps(a);
}
EXT_INLINE vm vm_lt(vf a, vf b) {
  return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}
EXT_INLINE vm vm_nan(vf a) {
  return _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
}
EXT_INLINE int vm_any(vm m) {
  return _mm256_movemask_ps(m) != 0;
}
EXT_INLINE vf vf_select(vm m, vf a, vf b) {
  return _mm256_blendv_ps(b, a, m);
}

/* In two steps, so that results may be subnormal and n may be 128 for an x below 1. */
EXT_INLINE vf vf_pow2(vf x, vf n) {
  __m256i e = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(e, 1), bias = _mm256_set1_epi32(127);
  __m256i low = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  __m256i high = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(e, half), bias), 23);
  return x * _mm256_castsi256_ps(low) * _mm256_castsi256_ps(high);
}
EXT_INLINE vf vf_pow2_normal(vf x, vf n) {
  const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  const __m256i exponent = _mm256_max_epi32(biased, _mm256_setzero_si256());
  return x * _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}
/* Keeps x in a register: the compiler would rather load it again for each use. */
EXT_INLINE vf vf_keep(vf x) {
  __asm__("" : "+x"(x));
  return x;
}
EXT_INLINE float vf_sum(vf x) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
EXT_INLINE float vf_most(vf x) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

/* Lane i is x[from[i]]; from counts lanes of x. */
EXT_INLINE vf vf_lanes(vf x, vi from) {
  return _mm256_permutevar8x32_ps(x, (__m256i)from);
}

/* Transposes in place the tile whose row i is r[i]: pairs, quads, then 128-bit lanes. */
EXT_INLINE void vf_transpose(vf r[VL]) {
  vf t[VL];
  EXT_UNROLL
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  EXT_UNROLL
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; j++) {
      r[i + 2 * j] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], 0x44);
      r[i + 2 * j + 1] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], 0xee);
    }
  EXT_UNROLL
  for (int i = 0; i < 4; i++) {
    t[i] = _mm256_permute2f128_ps(r[i], r[4 + i], 0x20);
    t[4 + i] = _mm256_permute2f128_ps(r[i], r[4 + i], 0x31);
  }
  EXT_UNROLL
  for (int i = 0; i < 8; i++) r[i] = t[i];
}
