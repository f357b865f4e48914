/*
 * bf16_pairs.h - 2 VL bf16 at once: VL words of 32 bits, whose lower halves are the even ones.
 *
 *   vbits_load           2 VL bf16
 *   vbits_even, vbits_odd  those of even or odd index, as fp32: one instruction each
 *   vbits_store          rounds both, and stores 2 VL bf16
 *   vbf_store_two        rounds two vectors, and stores one after the other, of the second one
 *                        `lanes` unless `whole`, a constant
 *   vbits_key            numbers whose order as int16_t is that of the bf16, with NaNs above
 *                        infinity; vbits_of_key undoes it
 *   vbits_most           the greater of two int16_t
 */
#ifndef EXT_BF16_PAIRS_H_
#define EXT_BF16_PAIRS_H_

#include "bf16.h"

typedef int16_t vkeys __attribute__((vector_size(4 * VL)));
typedef uint16_t vhalves __attribute__((vector_size(4 * VL))); /* whose sums wrap around */

EXT_INLINE vbits vbits_load(const uint16_t* p) {
  vbits x;
  memcpy(&x, p, sizeof x);
  return x;
}
EXT_INLINE vf vbits_even(vbits x) {
  return (vf)(x << 16);
}
EXT_INLINE vf vbits_odd(vbits x) {
  return (vf)(x & 0xffff0000);
}

#if !defined(EXT_ROUNDS_TWO)
EXT_INLINE void vbits_store(uint16_t* p, vf even, vf odd) {
#if defined(EXT_BF16_UNIT)
  const vbits low = __builtin_convertvector(vbf_round(even), vbits);
  const vbits high = __builtin_convertvector(vbf_round(odd), vbits);
#else
  const vbits low = bf16_bits(even), high = bf16_bits(odd);
#endif
  const vbits both = low | high << 16;
  memcpy(p, &both, sizeof both);
}
EXT_INLINE void vbf_store_two(const int whole, uint16_t* p, vf a, vf b, int64_t lanes) {
  vbf_store(p, vbf_round(a));
  if (whole)
    vbf_store(p + VL, vbf_round(b));
  else
    vbf_store_n(p + VL, vbf_round(b), lanes);
}
#endif

/* Of negative numbers the lower bits count down.  0x7f is the number of NaNs of one sign: the
 * negative ones come out lowest, and wrap around to above the positive ones. */
EXT_INLINE vkeys vbits_key(vbits x) {
  const vkeys bits = (vkeys)x;
  return (vkeys)((vhalves)(bits ^ (bits >> 15 & 0x7fff)) - 0x7f);
}
EXT_INLINE vbits vbits_of_key(vkeys key) {
  const vkeys bits = (vkeys)((vhalves)key + 0x7f);
  return (vbits)(bits ^ (bits >> 15 & 0x7fff));
}
EXT_INLINE vkeys vbits_most(vkeys a, vkeys b) {
#if defined(EXT_GREATER_WORDS)
  return (vkeys)vx_max_words((vx)a, (vx)b);
#else
  const vkeys above = a > b;
  return (a & above) | (b & ~above);
#endif
}

#endif /* EXT_BF16_PAIRS_H_ */
