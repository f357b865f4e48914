/* AVX-512: 8-bit integers, and sums of their products; see simd.h. */

EXT_INLINE vi vi_load(const int32_t* p) {
  return (vi)_mm512_loadu_si512(p);
}
EXT_INLINE void vi_store(int32_t* p, vi x) {
  _mm512_storeu_si512(p, (__m512i)x);
}
EXT_INLINE vf vi_to_vf(vi x) {
  return _mm512_cvtepi32_ps((__m512i)x);
}
EXT_INLINE vi vi_load_u8(const uint8_t* p) {
  return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p));
}
EXT_INLINE vi vi_load_s8(const uint8_t* p) {
  return (vi)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p));
}
EXT_INLINE void vi_store_low(uint8_t* p, vi x) {
  _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8((__m512i)x));
}

#if defined(EXT_DOT)

typedef uint8_t qa;
typedef __m512i vq, vqa, vqb;

EXT_INLINE vqa vq_row(const qa* p) {
  int32_t four;
  memcpy(&four, p, sizeof four);
  return _mm512_set1_epi32(four);
}
EXT_INLINE vqb vq_panel(const int8_t* p) {
  return _mm512_loadu_si512(p);
}
EXT_INLINE vq vq_start(vi start) {
  return (vq)start;
}
EXT_INLINE vq vq_dot(vq sum, vqa a, vqb b) {
  return _mm512_dpbusd_epi32(sum, a, b);
}
EXT_INLINE vi vq_sum(vq sum, vi start) {
  (void)start;
  return (vi)sum;
}

#else /* 16-bit products of pairs, which cannot saturate as those of vpmaddubsw do */

typedef int16_t qa;
typedef __m512i vqa;
typedef struct {
  __m512i half[2]; /* of eight columns each; of sums two for each column */
} vq, vqb;

EXT_INLINE vqa vq_row(const qa* p) {
  long long four;
  memcpy(&four, p, sizeof four);
  return _mm512_set1_epi64(four);
}
EXT_INLINE vqb vq_panel(const int8_t* p) {
  return (vqb){{_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)p)),
                _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)(p + 32)))}};
}
EXT_INLINE vq vq_start(vi start) {
  (void)start;
  return (vq){{_mm512_setzero_si512(), _mm512_setzero_si512()}};
}
EXT_INLINE vq vq_dot(vq sum, vqa a, vqb b) {
  return (vq){{_mm512_add_epi32(sum.half[0], _mm512_madd_epi16(a, b.half[0])),
               _mm512_add_epi32(sum.half[1], _mm512_madd_epi16(a, b.half[1]))}};
}
EXT_INLINE vi vq_sum(vq sum, vi start) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  return start + (vi)_mm512_add_epi32(_mm512_permutex2var_epi32(sum.half[0], even, sum.half[1]),
                                      _mm512_permutex2var_epi32(sum.half[0], odd, sum.half[1]));
}

#endif
