/*
 * pairs.h - vectors of numbers that lie in pairs in memory.
 *
 *   vf_firsts(a, b), vf_seconds(a, b)        the first, or second, numbers of 2 VL / 2 pairs
 *   vf_low_pairs(x, y), vf_high_pairs(x, y)  a and b of these again
 */
#ifndef EXT_PAIRS_H_
#define EXT_PAIRS_H_

#include "simd.h"

#if defined(__clang__)
#define EXT_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define EXT_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (vi){__VA_ARGS__})
#endif

EXT_INLINE vf vf_firsts(vf a, vf b) {
#if VL == 16
  return EXT_SHUFFLE(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
#elif VL == 8
  return EXT_SHUFFLE(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
#else
  return EXT_SHUFFLE(a, b, 0, 2, 4, 6);
#endif
}
EXT_INLINE vf vf_seconds(vf a, vf b) {
#if VL == 16
  return EXT_SHUFFLE(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#elif VL == 8
  return EXT_SHUFFLE(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
#else
  return EXT_SHUFFLE(a, b, 1, 3, 5, 7);
#endif
}
EXT_INLINE vf vf_low_pairs(vf x, vf y) {
#if VL == 16
  return EXT_SHUFFLE(x, y, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
#elif VL == 8
  return EXT_SHUFFLE(x, y, 0, 8, 1, 9, 2, 10, 3, 11);
#else
  return EXT_SHUFFLE(x, y, 0, 4, 1, 5);
#endif
}
EXT_INLINE vf vf_high_pairs(vf x, vf y) {
#if VL == 16
  return EXT_SHUFFLE(x, y, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#elif VL == 8
  return EXT_SHUFFLE(x, y, 4, 12, 5, 13, 6, 14, 7, 15);
#else
  return EXT_SHUFFLE(x, y, 2, 6, 3, 7);
#endif
}

#endif /* EXT_PAIRS_H_ */
