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
EXT_INLINE vq vq_dot_in_place(vq sum, vqa a, vqb b) { /* GCC copies many sums of the intrinsic */
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
}
EXT_INLINE vi vq_sum(vq sum, vi start) {
  (void)start;
  return (vi)sum;
}
EXT_INLINE vq vq_dot_quads(vq sum, vx a, vqb b) {
  return vq_dot(sum, (__m512i)a, b);
}
EXT_INLINE vqb vq_turn_quads(vi x) {
  const __m128i order = _mm_setr_epi8(2, 6, 10, 14, 1, 5, 9, 13, 0, 4, 8, 12, 3, 7, 11, 15);
  return _mm512_shuffle_epi8((__m512i)x, _mm512_broadcast_i32x4(order));
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
EXT_INLINE vq vq_dot_quads(vq sum, vx a, vqb b) {
  __m512i low = _mm512_cvtepu8_epi16(_mm512_castsi512_si256((__m512i)a));
  __m512i high = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64((__m512i)a, 1));
  return (vq){{_mm512_add_epi32(sum.half[0], _mm512_madd_epi16(low, b.half[0])),
               _mm512_add_epi32(sum.half[1], _mm512_madd_epi16(high, b.half[1]))}};
}

#endif

/* Bytes of the same place in several vectors, side by side. */
EXT_INLINE vx vx_low(vx a, vx b) {
  return (vx)_mm512_unpacklo_epi8((__m512i)a, (__m512i)b);
}
EXT_INLINE vx vx_high(vx a, vx b) {
  return (vx)_mm512_unpackhi_epi8((__m512i)a, (__m512i)b);
}
EXT_INLINE vx vx_low_pairs(vx a, vx b) {
  return (vx)_mm512_unpacklo_epi16((__m512i)a, (__m512i)b);
}
EXT_INLINE vx vx_high_pairs(vx a, vx b) {
  return (vx)_mm512_unpackhi_epi16((__m512i)a, (__m512i)b);
}
EXT_INLINE vx vx_narrow(vi a, vi b, vi c, vi d) {
  return (vx)_mm512_packus_epi16(_mm512_packs_epi32((__m512i)a, (__m512i)b),
                                 _mm512_packs_epi32((__m512i)c, (__m512i)d));
}
EXT_INLINE vx vx_in_order(vx x) {
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return (vx)_mm512_permutexvar_epi32(order, (__m512i)x);
}
/* The least integer stands for a NaN and what does not fit. */
EXT_INLINE vi vf_to_vi_saturated(vf x) {
  return (vi)_mm512_cvtps_epi32(x);
}
EXT_INLINE vx vx_narrow_saturated(vi a, vi b, vi c, vi d, vx zero) {
  __m512i low = _mm512_adds_epi16(_mm512_packs_epi32((__m512i)a, (__m512i)b), (__m512i)zero);
  __m512i high = _mm512_adds_epi16(_mm512_packs_epi32((__m512i)c, (__m512i)d), (__m512i)zero);
  return (vx)_mm512_packus_epi16(low, high);
}
EXT_INLINE vx vx_max(vx a, vx b) {
  return (vx)_mm512_max_epu8((__m512i)a, (__m512i)b);
}
EXT_INLINE vx vx_min(vx a, vx b) {
  return (vx)_mm512_min_epu8((__m512i)a, (__m512i)b);
}
/* The instructions take literals alone. */
EXT_INLINE void vx_store_piece(void* p, vx x, const int i, const int pieces) {
  if (pieces == 1)
    vx_store(p, x);
  else if (pieces == 2)
    _mm256_storeu_si256(p, i == 0 ? _mm512_extracti64x4_epi64((__m512i)x, 0)
                                  : _mm512_extracti64x4_epi64((__m512i)x, 1));
  else if (i < 2)
    _mm_storeu_si128(p, i == 0 ? _mm512_extracti32x4_epi32((__m512i)x, 0)
                               : _mm512_extracti32x4_epi32((__m512i)x, 1));
  else
    _mm_storeu_si128(p, i == 2 ? _mm512_extracti32x4_epi32((__m512i)x, 2)
                               : _mm512_extracti32x4_epi32((__m512i)x, 3));
}
#define EXT_LOADS_QUARTERS
EXT_INLINE vx vx_load_quarter(const void* p) {
  return (vx)_mm512_castsi128_si512(_mm_loadu_si128((const __m128i*)p));
}
EXT_INLINE vx vx_load_n(const void* p, int64_t n) {
  return (vx)_mm512_maskz_loadu_epi8(n < 64 ? (1ull << n) - 1 : ~0ull, p);
}
EXT_INLINE void vx_store_n(void* p, vx x, int64_t n) {
  _mm512_mask_storeu_epi8(p, n < 64 ? (1ull << n) - 1 : ~0ull, (__m512i)x);
}

/* table[x] of 256 bytes.  A shuffle looks up 16 of them where bit 7 of an index is clear, and gives
 * 0 elsewhere: adding 112 with saturation leaves it clear where the upper half is the part's. */
EXT_INLINE vx vx_lookup(const uint8_t* table, vx x) {
  __m512i y = _mm512_setzero_si512();
  EXT_UNROLL
  for (int i = 0; i < 16; i++) {
    __m512i part = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)(table + 16 * i)));
    __m512i at = _mm512_xor_si512((__m512i)x, _mm512_set1_epi8((char)(16 * i)));
    y = _mm512_or_si512(y, _mm512_shuffle_epi8(part, _mm512_adds_epu8(at, _mm512_set1_epi8(112))));
  }
  return (vx)y;
}
