/* Floats of 16 bits as numbers: float16 is IEEE 754's binary16 (5 bits of exponent, 10 of
 * fraction), bfloat16 the upper half of a float (8 and 7).
 *
 * All by integer arithmetic and without branches, so that loops over them become vectors on every
 * level, and right as well where a process has set the CPU to flush subnormal floats.
 */
#ifndef EXT_HALVES_H_
#define EXT_HALVES_H_

#include "../simd/simd.h"

EXT_INLINE uint32_t bits_of_float(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
EXT_INLINE float float_of_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* Exact.  Below 2^-14 there is no implicit bit: the fraction counts steps of 2^-24. */
EXT_INLINE float float_of_float16(uint16_t half) {
  const uint32_t sign = (uint32_t)(half & 0x8000) << 16, size = half & 0x7fff;
  const uint32_t rebias = (127 - 15) << 23, special = (255 - 31) << 23;
  const uint32_t normal = (size << 13) + (size < 0x7c00 ? rebias : special);
  const uint32_t small = bits_of_float((float)(int32_t)size * 0x1p-24f);
  return float_of_bits(sign | (size < 0x400 ? small : normal));
}

/* The nearest, halves to even; infinity from 65520 on, and NaNs stay such. */
EXT_INLINE uint16_t float16_of_float(float x) {
  const uint32_t bits = bits_of_float(x), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
  const uint32_t rebias = (127 - 15) << 23;
  /* What is dropped, plus this, carries into the last bit kept: above the middle, or at an odd one.
   */
  const uint32_t normal = (size - rebias + 0xfff + (size >> 13 & 1)) >> 13;
  /* The last bit of a sum with 1/2 is worth 2^-24, as that of a subnormal is. */
  const uint32_t small = bits_of_float(float_of_bits(size) + 0.5f) - 0x3f000000;
  const uint32_t finite = size < 0x38800000 ? small : normal; /* 2^-14 */
  const uint32_t large = size > 0x7f800000 ? 0x7e00 | (size >> 13 & 0x1ff) : 0x7c00;
  return (uint16_t)(sign | (size < 0x477ff000 ? finite : large));
}

EXT_INLINE float float_of_bfloat16(uint16_t half) {
  return float_of_bits((uint32_t)half << 16);
}

/* The nearest, halves to even; NaNs stay such. */
EXT_INLINE uint16_t bfloat16_of_float(float x) {
  const uint32_t bits = bits_of_float(x), size = bits & 0x7fffffff;
  const uint32_t nearest = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return (uint16_t)(size > 0x7f800000 ? bits >> 16 | 0x40 : nearest);
}

#endif /* EXT_HALVES_H_ */
