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

#endif
