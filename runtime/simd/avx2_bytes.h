/* AVX2: 8-bit integers, and sums of their products; see simd.h. */

EXT_INLINE vi vi_load(const int32_t* p) {
  return (vi)_mm256_loadu_si256((const __m256i*)p);
}
EXT_INLINE void vi_store(int32_t* p, vi x) {
  _mm256_storeu_si256((__m256i*)p, (__m256i)x);
}
EXT_INLINE vf vi_to_vf(vi x) {
  return _mm256_cvtepi32_ps((__m256i)x);
}
EXT_INLINE vi vi_load_u8(const uint8_t* p) {
  return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p));
}
EXT_INLINE vi vi_load_s8(const uint8_t* p) {
  return (vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p));
}
EXT_INLINE void vi_store_low(uint8_t* p, vi x) {
  __m256i low = _mm256_and_si256((__m256i)x, _mm256_set1_epi32(255));
  __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
  _mm_storel_epi64((__m128i*)p, _mm_packus_epi16(words, words));
}

#if defined(EXT_DOT)

typedef uint8_t qa;
typedef __m256i vq, vqa, vqb;

EXT_INLINE vqa vq_row(const qa* p) {
  int32_t four;
  memcpy(&four, p, sizeof four);
  return _mm256_set1_epi32(four);
}
EXT_INLINE vqb vq_panel(const int8_t* p) {
  return _mm256_loadu_si256((const __m256i*)p);
}
EXT_INLINE vq vq_start(vi start) {
  return (vq)start;
}
#if defined(EXT_DOT_WITHOUT_UNIT) /* for tests: what the instruction does, on any AVX2 */
EXT_INLINE vq vq_dot(vq sum, vqa a, vqb b) {
  const __m256i low = _mm256_set1_epi16(255);
  __m256i even =
      _mm256_madd_epi16(_mm256_and_si256(a, low), _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8));
  __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(a, 8), _mm256_srai_epi16(b, 8));
  return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
}
#else
EXT_INLINE vq vq_dot(vq sum, vqa a, vqb b) {
  return _mm256_dpbusd_avx_epi32(sum, a, b);
}
#endif
EXT_INLINE vq vq_dot_in_place(vq sum, vqa a, vqb b) {
  return vq_dot(sum, a, b);
}
EXT_INLINE vi vq_sum(vq sum, vi start) {
  (void)start;
  return (vi)sum;
}
EXT_INLINE vq vq_dot_quads(vq sum, vx a, vqb b) {
  return vq_dot(sum, (__m256i)a, b);
}
EXT_INLINE vqb vq_turn_quads(vi x) {
  const __m128i order = _mm_setr_epi8(2, 6, 10, 14, 1, 5, 9, 13, 0, 4, 8, 12, 3, 7, 11, 15);
  return _mm256_shuffle_epi8((__m256i)x, _mm256_broadcastsi128_si256(order));
}

#else /* 16-bit products of pairs, which cannot saturate as those of vpmaddubsw do */

typedef int16_t qa;
typedef __m256i vqa;
typedef struct {
  __m256i half[2]; /* of four columns each; of sums two for each column */
} vq, vqb;

EXT_INLINE vqa vq_row(const qa* p) {
  long long four;
  memcpy(&four, p, sizeof four);
  return _mm256_set1_epi64x(four);
}
EXT_INLINE vqb vq_panel(const int8_t* p) {
  return (vqb){{_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)p)),
                _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)(p + 16)))}};
}
EXT_INLINE vq vq_start(vi start) {
  (void)start;
  return (vq){{_mm256_setzero_si256(), _mm256_setzero_si256()}};
}
EXT_INLINE vq vq_dot(vq sum, vqa a, vqb b) {
  return (vq){{_mm256_add_epi32(sum.half[0], _mm256_madd_epi16(a, b.half[0])),
               _mm256_add_epi32(sum.half[1], _mm256_madd_epi16(a, b.half[1]))}};
}
EXT_INLINE vi vq_sum(vq sum, vi start) {
  /* Columns 0 1 4 5 2 3 6 7. */
  return start + (vi)_mm256_permute4x64_epi64(_mm256_hadd_epi32(sum.half[0], sum.half[1]), 0xd8);
}
EXT_INLINE vq vq_dot_quads(vq sum, vx a, vqb b) {
  __m256i low = _mm256_cvtepu8_epi16(_mm256_castsi256_si128((__m256i)a));
  __m256i high = _mm256_cvtepu8_epi16(_mm256_extracti128_si256((__m256i)a, 1));
  return (vq){{_mm256_add_epi32(sum.half[0], _mm256_madd_epi16(low, b.half[0])),
               _mm256_add_epi32(sum.half[1], _mm256_madd_epi16(high, b.half[1]))}};
}

#endif

/* Bytes of the same place in several vectors, side by side. */
EXT_INLINE vx vx_low(vx a, vx b) {
  return (vx)_mm256_unpacklo_epi8((__m256i)a, (__m256i)b);
}
EXT_INLINE vx vx_high(vx a, vx b) {
  return (vx)_mm256_unpackhi_epi8((__m256i)a, (__m256i)b);
}
EXT_INLINE vx vx_low_pairs(vx a, vx b) {
  return (vx)_mm256_unpacklo_epi16((__m256i)a, (__m256i)b);
}
EXT_INLINE vx vx_high_pairs(vx a, vx b) {
  return (vx)_mm256_unpackhi_epi16((__m256i)a, (__m256i)b);
}
EXT_INLINE vx vx_narrow(vi a, vi b, vi c, vi d) {
  return (vx)_mm256_packus_epi16(_mm256_packs_epi32((__m256i)a, (__m256i)b),
                                 _mm256_packs_epi32((__m256i)c, (__m256i)d));
}
EXT_INLINE vx vx_in_order(vx x) {
  return (vx)_mm256_permutevar8x32_epi32((__m256i)x, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
/* The least integer stands for a NaN and what does not fit. */
EXT_INLINE vi vf_to_vi_saturated(vf x) {
  return (vi)_mm256_cvtps_epi32(x);
}
EXT_INLINE vx vx_narrow_saturated(vi a, vi b, vi c, vi d, vx zero) {
  __m256i low = _mm256_adds_epi16(_mm256_packs_epi32((__m256i)a, (__m256i)b), (__m256i)zero);
  __m256i high = _mm256_adds_epi16(_mm256_packs_epi32((__m256i)c, (__m256i)d), (__m256i)zero);
  return (vx)_mm256_packus_epi16(low, high);
}
EXT_INLINE vx vx_max(vx a, vx b) {
  return (vx)_mm256_max_epu8((__m256i)a, (__m256i)b);
}
EXT_INLINE vx vx_min(vx a, vx b) {
  return (vx)_mm256_min_epu8((__m256i)a, (__m256i)b);
}

#define EXT_LOADS_QUARTERS
EXT_INLINE vx vx_load_quarter(const void* p) {
  return (vx)_mm256_castsi128_si256(_mm_loadl_epi64((const __m128i*)p));
}

/* table[x] of 256 bytes.  A shuffle looks up 16 of them where bit 7 of an index is clear, and gives
 * 0 elsewhere: adding 112 with saturation leaves it clear where the upper half is the part's. */
EXT_INLINE vx vx_lookup(const uint8_t* table, vx x) {
  __m256i y = _mm256_setzero_si256();
  EXT_UNROLL
  for (int i = 0; i < 16; i++) {
    __m256i part = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)(table + 16 * i)));
    __m256i at = _mm256_xor_si256((__m256i)x, _mm256_set1_epi8((char)(16 * i)));
    y = _mm256_or_si256(y, _mm256_shuffle_epi8(part, _mm256_adds_epu8(at, _mm256_set1_epi8(112))));
  }
  return (vx)y;
}
