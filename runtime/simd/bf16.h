/*
 * bf16.h - bf16, the upper halves of fp32, in the words of simd.h.
 *
 *   vbf           VL bf16: vbf_load, vbf_store, vbf_load_n, vbf_store_n, vbf_round (of a vf),
 *                 vbf_upper (of a vf whose lower halves are 0), vbf_widen (to a vf); vf_set1_bf16
 *                 widens one for all lanes
 *   ba            an element of packed rows of A: bf16 where the row has a unit for their products
 *                 (EXT_BF16_UNIT, EXT_TILES), else fp32; ba_run_of_float and ba_run_of_bf16 write
 *                 n of them
 *   vba, vbb      two elements of a row for all columns (vb_row); two rows of VL columns of a
 *                 panel (vb_panel)
 *   vb_dot        sum += two products for each column
 *
 * With EXT_PARTS 2 a number is the sum of two bf16, its parts.  In a panel the higher parts of two
 * rows lie before the lower ones.  Rows of A are packed as both parts for tiles
 * (ba_parts_of_float), else as the fp32 that they are.
 *
 * The compiler's own vectors do most of it; masks and units have headers of their own, tiles
 * amx.h.
 */
#ifndef EXT_BF16_H_
#define EXT_BF16_H_

#include "simd.h"

#if !defined(EXT_PARTS)
#define EXT_PARTS 1
#endif
#if EXT_PARTS == 2 && defined(EXT_BF16_UNIT) && !defined(EXT_TILES)
#error "no unit without tiles is faster in two parts than in fp32"
#endif

typedef uint32_t vbits __attribute__((vector_size(4 * VL)));

EXT_INLINE vbf vbf_load(const uint16_t* p) {
  vbf x;
  memcpy(&x, p, sizeof x);
  return x;
}
EXT_INLINE void vbf_store(uint16_t* p, vbf x) {
  memcpy(p, &x, sizeof x);
}
#if !defined(EXT_CONVERTS_HALVES)
EXT_INLINE vf vbf_widen(vbf x) {
  return (vf)(__builtin_convertvector(x, vbits) << 16);
}
EXT_INLINE vbf vbf_upper(vf x) {
  return __builtin_convertvector((vbits)x >> 16, vbf);
}
#endif

/* All lanes are *p. */
EXT_INLINE vf vf_set1_bf16(const uint16_t* p) {
  typedef uint16_t halves __attribute__((vector_size(4 * VL)));
  return (vf)((vbits)((halves){0} + *p) << 16);
}

#if !defined(EXT_MASKED_LANES)
/* Calls: written out in tiles, these loops were half of the code of convolutions by groups. */
static __attribute__((noinline, unused)) vbf vbf_load_n(const uint16_t* p, int64_t n) {
  uint16_t lanes[VL] = {0};
  for (int i = 0; i < VL; i++)
    if (i < n) lanes[i] = p[i];
  return vbf_load(lanes);
}
static __attribute__((noinline, unused)) void vbf_store_n(uint16_t* p, vbf x, int64_t n) {
  for (int i = 0; i < VL; i++)
    if (i < n) p[i] = x[i];
}
#endif

#if !defined(EXT_BF16_UNIT)
/* The nearest, halves to even, in the lower half of each lane; of a NaN its upper half, quiet. */
EXT_INLINE vbits bf16_bits(vf x) {
  vbits bits = (vbits)x, above = bits >> 16;
  vbits rounded = (bits + 0x7fff + (above & 1)) >> 16;
  return (vbits)vf_select(vm_nan(x), (vf)(above | 0x40), (vf)rounded);
}
EXT_INLINE vbf vbf_round(vf x) {
  return __builtin_convertvector(bf16_bits(x), vbf);
}
#endif

#if defined(EXT_BF16_UNIT) || defined(EXT_TILES)

typedef uint16_t ba;

EXT_INLINE void ba_store_n(ba* p, vf x, int64_t n) {
  if (n >= VL)
    vbf_store(p, vbf_round(x));
  else
    vbf_store_n(p, vbf_round(x), n);
}

/* The parts of x: high, the nearest but no infinity, which would leave no number for low; and low,
 * the nearest to the rest, which is infinite or NaN where x is. */
EXT_INLINE void ba_store_parts_n(ba* high, ba* low, vf x, int64_t n) {
  const vf most = vf_set1(0x1.fep127f), least = vf_set1(-0x1.fep127f);
  const vf near = vbf_widen(vbf_round(vf_min(most, vf_max(least, x))));
  ba_store_n(high, near, n);
  ba_store_n(low, x - near, n);
}
EXT_INLINE void ba_parts_of_float(ba* restrict high, ba* restrict low, const float* restrict x,
                                  int64_t n) {
  int64_t i = 0;
  for (; i + VL <= n; i += VL) ba_store_parts_n(high + i, low + i, vf_load(x + i), VL);
  if (i < n) ba_store_parts_n(high + i, low + i, vf_load_n(x + i, n - i), n - i);
}

#else /* products are of fp32, whose lower half is 0 */

typedef float ba;
typedef struct {
  vf even, odd;
} vba, vbb;

EXT_INLINE vba vb_row(const ba* p) {
  return (vba){vf_set1(p[0]), vf_set1(p[1])};
}
/* A column's two numbers are one lane of 32 bits, the first one in its lower half. */
EXT_INLINE vbb vb_panel(const uint16_t* p) {
  vbits two;
  memcpy(&two, p, sizeof two);
#if EXT_PARTS == 2
  vbits low;
  memcpy(&low, p + 2 * EXT_PANEL, sizeof low);
  return (vbb){(vf)(two << 16) + (vf)(low << 16), (vf)(two & 0xffff0000) + (vf)(low & 0xffff0000)};
#else
  return (vbb){(vf)(two << 16), (vf)(two & 0xffff0000)};
#endif
}
EXT_INLINE vf vb_dot(vf sum, vba a, vbb b) {
  return vf_fma(a.odd, b.odd, vf_fma(a.even, b.even, sum));
}

EXT_INLINE void ba_store_n(ba* p, vf x, int64_t n) {
  vf_store_n(p, (vf)(bf16_bits(x) << 16), n);
}

#endif

/* dst[i] = x[i] as packed, i < n. */
EXT_INLINE void ba_run_of_float(ba* restrict dst, const float* restrict x, int64_t n) {
  int64_t i = 0;
  for (; i + VL <= n; i += VL) ba_store_n(dst + i, vf_load(x + i), VL);
  if (i < n) ba_store_n(dst + i, vf_load_n(x + i, n - i), n - i);
}
EXT_INLINE void ba_run_of_bf16(ba* restrict dst, const uint16_t* restrict x, int64_t n) {
  int64_t i = 0;
#if defined(EXT_BF16_UNIT) || defined(EXT_TILES)
  /* Whole registers; the last one begins early, where there is as much before it. */
  for (; i + 2 * VL <= n; i += 2 * VL) memcpy(dst + i, x + i, 4 * VL);
  if (i == n) return;
  if (n >= 2 * VL) {
    memcpy(dst + n - 2 * VL, x + n - 2 * VL, 4 * VL);
  } else if (n >= VL) {
    vbf_store(dst, vbf_load(x));
    vbf_store(dst + n - VL, vbf_load(x + n - VL));
  } else {
    vbf_store_n(dst, vbf_load_n(x, n), n);
  }
#else
  for (; i + VL <= n; i += VL) vf_store(dst + i, vbf_widen(vbf_load(x + i)));
  if (i < n) vf_store_n(dst + i, vbf_widen(vbf_load_n(x + i, n - i)), n - i);
#endif
}
/* VL elements of dst. */
EXT_INLINE void ba_vector_of_bf16(ba* dst, const uint16_t* x) {
#if defined(EXT_BF16_UNIT) || defined(EXT_TILES)
  vbf_store(dst, vbf_load(x));
#else
  vf_store(dst, vbf_widen(vbf_load(x)));
#endif
}

/* ------------------------------------------------------------------ stored as bf16 or as fp32 */

/* The element `index` of numbers that are bf16 where `narrow`, else fp32. */
EXT_INLINE const void* stored_element(const int narrow, const void* p, int64_t index) {
  return (const char*)p + index * (narrow ? 2 : 4);
}

/* VL of them from that element on, or the first `lanes` unless `full`; both flags are constants. */
EXT_INLINE vf stored_load(const int narrow, const int full, const void* p, int64_t index,
                          int64_t lanes) {
  const void* x = stored_element(narrow, p, index);
  if (narrow) return vbf_widen(full ? vbf_load(x) : vbf_load_n(x, lanes));
  return full ? vf_load(x) : vf_load_n(x, lanes);
}

EXT_INLINE void stored_store(const int narrow, const int full, void* p, int64_t index, vf v,
                             int64_t lanes) {
  void* y = (void*)stored_element(narrow, p, index);
  if (narrow && full)
    vbf_store(y, vbf_round(v));
  else if (narrow)
    vbf_store_n(y, vbf_round(v), lanes);
  else if (full)
    vf_store(y, v);
  else
    vf_store_n(y, v, lanes);
}

#endif /* EXT_BF16_H_ */
