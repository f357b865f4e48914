/* AArch64's NEON with the unit for bf16: sums of products; see bf16.h. */

#if defined(EXT_BF16_UNIT)

typedef bfloat16x8_t vba, vbb;

EXT_INLINE vba vb_row(const uint16_t* p) {
  uint32_t two;
  memcpy(&two, p, sizeof two);
  return vreinterpretq_bf16_u32(vdupq_n_u32(two));
}
EXT_INLINE vbb vb_panel(const uint16_t* p) {
  return vreinterpretq_bf16_u16(vld1q_u16(p));
}
EXT_INLINE vf vb_dot(vf sum, vba a, vbb b) {
  return vbfdotq_f32(sum, a, b);
}
EXT_INLINE vbf vbf_round(vf x) {
  return (vbf)vreinterpret_u16_bf16(vcvt_bf16_f32(x));
}

#endif
