/*
 * byte_steps.h - numbers, counted in steps of a quantised tensor, to the bytes that stand for them.
 *
 *   y = round(limit(v, low, high)) + zero,  halves to the even integer, low where v is NaN
 */
#ifndef EXT_BYTE_STEPS_H_
#define EXT_BYTE_STEPS_H_

/* What all numbers of a tensor have in common; it is one of int8 where `is_signed`. */
#if defined(EXT_SATURATING_NARROW)
typedef struct {
  vf high;
  vx zero; /* of 16 bits */
  vx least, most, flip;
} vx_steps;

EXT_INLINE vx_steps vx_steps_of(float low, float high, int32_t zero, int is_signed) {
  const int32_t bytes = zero + (is_signed ? 128 : 0);
  const int32_t least = (int32_t)__builtin_rintf(low) + bytes;
  const int32_t most = (int32_t)__builtin_rintf(high) + bytes;
  typedef int16_t vh __attribute__((vector_size(4 * VL)));
  return (vx_steps){vf_set1(high), (vx)((vh){0} + (int16_t)bytes), (vx){0} + (uint8_t)least,
                    (vx){0} + (uint8_t)most, (vx){0} + (uint8_t)(is_signed ? 128 : 0)};
}
/* In the order of vx_narrow.  Integers saturate on their way to bytes, so that only what would pass
 * an int32 has to be limited before. */
EXT_INLINE vx vx_of_steps(vf a, vf b, vf c, vf d, const vx_steps* k) {
  vx y = vx_narrow_saturated(
      vf_to_vi_saturated(vf_min(k->high, a)), vf_to_vi_saturated(vf_min(k->high, b)),
      vf_to_vi_saturated(vf_min(k->high, c)), vf_to_vi_saturated(vf_min(k->high, d)), k->zero);
  return vx_max(y, k->least) ^ k->flip;
}
/* Of numbers between -2^31 and 2^31: bytes are limited, four vectors at once. */
EXT_INLINE vx vx_of_tame_steps(vf a, vf b, vf c, vf d, const vx_steps* k) {
  vx y = vx_narrow_saturated(vf_to_vi_saturated(a), vf_to_vi_saturated(b), vf_to_vi_saturated(c),
                             vf_to_vi_saturated(d), k->zero);
  return vx_max(vx_min(y, k->most), k->least) ^ k->flip;
}
#else
typedef struct {
  vf low, high;
  vi zero;
  vx flip;
} vx_steps;

EXT_INLINE vx_steps vx_steps_of(float low, float high, int32_t zero, int is_signed) {
  const int32_t flip = is_signed ? 128 : 0;
  return (vx_steps){vf_set1(low), vf_set1(high), vi_set1(zero + flip), (vx){0} + (uint8_t)flip};
}
EXT_INLINE vi vx_limited(vf v, const vx_steps* k) {
  return vf_to_vi(vf_min(vf_at_least(v, k->low), k->high)) + k->zero;
}
EXT_INLINE vx vx_of_steps(vf a, vf b, vf c, vf d, const vx_steps* k) {
  return vx_narrow(vx_limited(a, k), vx_limited(b, k), vx_limited(c, k), vx_limited(d, k)) ^
         k->flip;
}
EXT_INLINE vx vx_of_tame_steps(vf a, vf b, vf c, vf d, const vx_steps* k) {
  return vx_of_steps(a, b, c, d, k);
}
#endif

#if !defined(EXT_STORED_PIECES)
/* Part i of `pieces` equal parts. */
EXT_INLINE void vx_store_piece(void* p, vx x, const int i, const int pieces) {
  memcpy(p, (const uint8_t*)&x + i * (4 * VL / pieces), (size_t)(4 * VL / pieces));
}
#endif

#endif /* EXT_BYTE_STEPS_H_ */
