/* AVX-512: bf16 by masks, and sums of their products where the row has the unit; see bf16.h. */

EXT_INLINE vbf vbf_load_n(const uint16_t* p, int64_t n) {
  return (vbf)_mm256_maskz_loadu_epi16(vm_first(n), p);
}
EXT_INLINE void vbf_store_n(uint16_t* p, vbf x, int64_t n) {
  _mm256_mask_storeu_epi16(p, vm_first(n), (__m256i)x);
}

/* GCC 12 makes five instructions of the compiler's own conversions. */
#define EXT_CONVERTS_HALVES
EXT_INLINE vf vbf_widen(vbf x) {
  return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)x), 16);
}
EXT_INLINE vbf vbf_upper(vf x) {
  return (vbf)_mm512_cvtepi32_epi16(_mm512_srli_epi32((__m512i)x, 16));
}

/* 2^x within 1e-4, and 1 / x within 2^-14: see math_bf16.h.  An instruction for the exponent takes
 * infinities too. */
#define EXT_ROUGH_FORMS
EXT_INLINE vf vf_exp2_rough(vf x) {
  const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC), r = x - n;
  __m512 p = _mm512_set1_ps(0.07802453f); /* 2^r, 0 <= r < 1: 7.5e-5 */
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.22606718f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.69583352f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.99992522f));
  return _mm512_scalef_ps(p, n);
}
EXT_INLINE vf vf_inverse_rough(vf x) {
  return _mm512_rcp14_ps(x);
}

/* The greater of words; see bf16_pairs.h. */
#define EXT_GREATER_WORDS
EXT_INLINE vx vx_max_words(vx a, vx b) {
  return (vx)_mm512_max_epi16((__m512i)a, (__m512i)b);
}

#if defined(EXT_BF16_UNIT)

typedef __m512bh vba, vbb;

EXT_INLINE vba vb_row(const uint16_t* p) {
  int32_t two;
  memcpy(&two, p, sizeof two);
  return (__m512bh)_mm512_set1_epi32(two);
}
EXT_INLINE vbb vb_panel(const uint16_t* p) {
  return (__m512bh)_mm512_loadu_si512(p);
}
EXT_INLINE vf vb_dot(vf sum, vba a, vbb b) {
  return _mm512_dpbf16_ps(sum, a, b);
}
EXT_INLINE vbf vbf_round(vf x) {
  return (vbf)_mm512_cvtneps_pbh(x);
}

/* Two vectors are rounded at once; see bf16_pairs.h. */
#define EXT_ROUNDS_TWO
EXT_INLINE void vbits_store(uint16_t* p, vf even, vf odd) {
  static const uint16_t order[32]
      __attribute__((aligned(64))) = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(odd, even);
  _mm512_storeu_si512(p, _mm512_permutexvar_epi16(_mm512_load_si512(order), both));
}
EXT_INLINE void vbf_store_two(const int whole, uint16_t* p, vf a, vf b, int64_t lanes) {
  const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(b, a);
  if (whole)
    _mm512_storeu_si512(p, both);
  else
    _mm512_mask_storeu_epi16(p, 0xffffffffu >> (VL - lanes), both);
}

#endif
