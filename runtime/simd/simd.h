/*
 * simd.h - one vector type for four instruction sets.
 *
 * A kernel file is compiled once per level, with -DEXT_SIMD_AVX512, -DEXT_SIMD_AVX2,
 * -DEXT_SIMD_NEON or -DEXT_SIMD_BASELINE, and is written in terms of
 *
 *   vf            VL floats; + - * / work on it (GCC and Clang vector extensions)
 *   vi            VL int32_t
 *   vm            a mask of VL lanes
 *
 * and the functions of the level's header: vf_load, vf_store, vf_load_n and vf_store_n (the first
 * n lanes, 0 <= n <= VL; absent lanes read as 0 and are not written), vf_set1, vf_fma (a b + c),
 * vf_max, vf_min (NaN where the second argument is; where the first alone is, NaN or the second),
 * vf_sqrt, vf_select (mask ? a : b), vm_lt, vm_nan, vm_any (1 if a lane is set), vf_keep (the same
 * value, in a register), vf_pow2 (x 2^n for integral n), vf_pow2_normal (the same where |x| is in
 * [1/2, 2): 0 may stand for what is below the smallest normal number, and inf for n = 128), vf_sum
 * and vf_most (over the lanes; vf_most skips NaNs or keeps them, whichever), vf_transpose (a VL x
 * VL tile in registers), vf_lanes (the lanes that a vi says).
 *
 * For 8-bit integers there are, in a header of their own:
 *
 *   vi_load, vi_store, vi_to_vf, vi_load_u8 and vi_load_s8 (VL bytes, widened), vi_store_low (the
 *   lowest byte of each lane); those that end in _n as above
 *   qa            an element of packed rows of A: an x as the level multiplies it (tile_config.h)
 *   vqa, vqb      four elements of a row for all columns (vq_row); four rows of VL columns of a
 *                 panel (vq_panel)
 *   vq            sums of VL columns: vq_start(start), vq_dot (sum += four products for each
 *                 column), vq_sum(sum, start), which gives start and all products as VL int32_t;
 *                 where there are DIGIT_ROWS, vq_dot_in_place is vq_dot for many sums at once, and
 *                 vq_turn_quads(vi) has of every four numbers the third bytes first, then the
 *                 second, the first and the last ones
 *   vx            4 VL bytes.  vx_low and vx_high interleave bytes, vx_low_pairs and vx_high_pairs
 *                 pairs of them: of every 16 bytes the lower or the higher half.  vx_narrow undoes
 *                 both, for four vi of numbers 0 .. 255.  vq_dot_quads (sum += ...) takes four
 *                 bytes for each column, unsigned ones, or signed ones where QUADS_SIGNED; vx_lanes
 *                 gives each column four, as vf_lanes does.  vx_load_quarter reads VL bytes, the
 *                 others are any.  vx_max is of unsigned bytes.  vx_lookup(table, x) looks up each
 *                 byte
 *
 * bf16.h has more words, for bf16.
 *
 * tile_config.h tells how many vectors a level has registers for.  rows.h names the functions of a
 * level, and makes the public ones that choose among the levels.
 */
#ifndef EXT_SIMD_H_
#define EXT_SIMD_H_

#include <stdint.h>
#include <string.h>

#include "rows.h"
#include "tile_config.h"

#define EXT_INLINE static inline __attribute__((always_inline, unused))
#if defined(__clang__)
#define EXT_UNROLL _Pragma("clang loop unroll(full)")
#define EXT_NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define EXT_UNROLL _Pragma("GCC unroll 32")
#define EXT_NO_UNROLL _Pragma("GCC unroll 1")
#endif

/* VL bf16. */
typedef uint16_t vbf __attribute__((vector_size(2 * VL)));

#if defined(EXT_DOT_SIGNED)
enum { QUADS_SIGNED = 1 };
#else
enum { QUADS_SIGNED = 0 };
#endif

typedef uint8_t vx __attribute__((vector_size(4 * VL)));

EXT_INLINE vx vx_load(const void* p) {
  vx x;
  memcpy(&x, p, sizeof x);
  return x;
}
EXT_INLINE void vx_store(void* p, vx x) {
  memcpy(p, &x, sizeof x);
}

#if defined(EXT_SIMD_AVX512)
#include "avx512.h"
#include "avx512_bf16.h"
#include "avx512_bytes.h"
#elif defined(EXT_SIMD_AVX2)
#include "avx2.h"
#include "avx2_bytes.h"
#elif defined(EXT_SIMD_NEON)
#include "neon.h"
#include "neon_bf16.h"
#include "neon_bytes.h"
#elif defined(EXT_SIMD_BASELINE)
#include "baseline.h"
#include "baseline_bytes.h"
#else
#error "define one of EXT_SIMD_AVX512, EXT_SIMD_AVX2, EXT_SIMD_NEON, EXT_SIMD_BASELINE"
#endif

#if !defined(EXT_SIMD_AVX512)
EXT_INLINE vx vx_load_n(const void* p, int64_t n) {
  uint8_t bytes[sizeof(vx)] = {0};
  memcpy(bytes, p, (size_t)n);
  return vx_load(bytes);
}
EXT_INLINE void vx_store_n(void* p, vx x, int64_t n) {
  memcpy(p, &x, (size_t)n);
}
#endif

#if !defined(EXT_LOADS_QUARTERS)
EXT_INLINE vx vx_load_quarter(const void* p) {
  vx x = {0};
  memcpy(&x, p, VL);
  return x;
}
#endif

/* Four bytes of x for each lane: those that a vi names. */
EXT_INLINE vx vx_lanes(vx x, vi from) {
  return (vx)vf_lanes((vf)x, from);
}

EXT_INLINE vf vf_zero(void) {
  return vf_set1(0.0f);
}

/* max that keeps a NaN of either argument. */
#if !defined(EXT_MAX_KEEPS_NAN)
EXT_INLINE vf vf_max_nan(vf a, vf b) {
  return vf_select(vm_nan(a), a, vf_max(a, b));
}
EXT_INLINE vf vf_min_nan(vf a, vf b) {
  return vf_select(vm_nan(a), a, vf_min(a, b));
}
#endif

/* max(v, low), and low where v is NaN. */
EXT_INLINE vf vf_at_least(vf v, vf low) {
#if defined(EXT_MAX_KEEPS_NAN)
  return vf_select(vm_lt(low, v), v, low);
#else
  return vf_max(v, low);
#endif
}

/* The nearest integers, halves to even, of -2^22 .. 2^22: the sum's lowest bit is worth 1. */
EXT_INLINE vi vf_to_vi(vf x) {
  const vf magic = vf_set1(12582912.0f); /* 1.5 2^23 */
  return (vi)(x + magic) - (vi)magic;
}

/* The same as floats. */
EXT_INLINE vf vf_rounded(vf x) {
#if defined(EXT_SIMD_AVX512)
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  const vf magic = vf_set1(12582912.0f);
  return (x + magic) - magic;
#endif
}

typedef uint32_t vu __attribute__((vector_size(4 * VL)));

/* v / s as division rounds it, where r = 1 / s and the quotient are no infinities. */
EXT_INLINE vf vf_quotient(vf v, vf s, vf r) {
#if defined(EXT_FMA_ROUNDS_TWICE)
  (void)r;
  return v / s;
#else
  vf q = v * r;
  return vf_fma(vf_fma(-q, s, v), r, q);
#endif
}

EXT_INLINE vi vi_set1(int32_t x) {
  return (vi){0} + x;
}
EXT_INLINE vi vi_load_n(const int32_t* p, int64_t n) {
  int32_t lanes[VL] = {0};
  for (int i = 0; i < VL; i++)
    if (i < n) lanes[i] = p[i];
  return vi_load(lanes);
}
EXT_INLINE vi vi_load_u8_n(const uint8_t* p, int64_t n) {
  uint8_t lanes[VL] = {0};
  for (int i = 0; i < VL; i++)
    if (i < n) lanes[i] = p[i];
  return vi_load_u8(lanes);
}
EXT_INLINE void vi_store_low_n(uint8_t* p, vi x, int64_t n) {
  uint8_t lanes[VL];
  vi_store_low(lanes, x);
  for (int i = 0; i < VL; i++)
    if (i < n) p[i] = lanes[i];
}

EXT_INLINE int64_t i64_min(int64_t a, int64_t b) {
  return a < b ? a : b;
}
EXT_INLINE int64_t i64_max(int64_t a, int64_t b) {
  return a > b ? a : b;
}
EXT_INLINE int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
EXT_INLINE int64_t clamp_lanes(int64_t n) {
  return n < 0 ? 0 : n > VL ? VL : n;
}

/* dst[i] = src[i], i < n; the ranges do not overlap.  Inline, for runs of tens of floats. */
EXT_INLINE void copy_run(float* restrict dst, const float* restrict src, int64_t n) {
  int64_t i = 0;
  for (; i + VL <= n; i += VL) vf_store(dst + i, vf_load(src + i));
  if (i == n) return;
  if (n >= VL)
    vf_store(dst + n - VL, vf_load(src + n - VL));
  else
    vf_store_n(dst, vf_load_n(src, n), n);
}

EXT_INLINE void zero_run(float* dst, int64_t n) {
  int64_t i = 0;
  for (; i + VL <= n; i += VL) vf_store(dst + i, vf_zero());
  for (; i < n; i++) dst[i] = 0.0f;
}

#include "byte_steps.h"

#endif /* EXT_SIMD_H_ */
