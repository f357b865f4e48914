/* AArch64's NEON: 8-bit integers, and sums of their products; see simd.h. */

EXT_INLINE vi vi_load(const int32_t* p) {
  return vld1q_s32(p);
}
EXT_INLINE void vi_store(int32_t* p, vi x) {
  vst1q_s32(p, x);
}
EXT_INLINE vf vi_to_vf(vi x) {
  return vcvtq_f32_s32(x);
}
EXT_INLINE uint32x2_t neon_four_bytes(const void* p) {
  uint32_t four;
  memcpy(&four, p, sizeof four);
  return vdup_n_u32(four);
}
EXT_INLINE vi vi_load_u8(const uint8_t* p) {
  uint16x8_t wide = vmovl_u8(vreinterpret_u8_u32(neon_four_bytes(p)));
  return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(wide)));
}
EXT_INLINE vi vi_load_s8(const uint8_t* p) {
  int16x8_t wide = vmovl_s8(vreinterpret_s8_u32(neon_four_bytes(p)));
  return vmovl_s16(vget_low_s16(wide));
}
EXT_INLINE void vi_store_low(uint8_t* p, vi x) {
  int16x4_t words = vmovn_s32(x);
  int8x8_t bytes = vmovn_s16(vcombine_s16(words, words));
  uint32_t four = vget_lane_u32(vreinterpret_u32_s8(bytes), 0);
  memcpy(p, &four, sizeof four);
}

typedef int8_t qa;
typedef int8x16_t vqb;

EXT_INLINE vqb vq_panel(const int8_t* p) {
  return vld1q_s8(p);
}

#if defined(EXT_DOT)

typedef int8x16_t vqa;
typedef int32x4_t vq;

EXT_INLINE vqa vq_row(const qa* p) {
  uint32x2_t four = neon_four_bytes(p);
  return vreinterpretq_s8_u32(vcombine_u32(four, four));
}
EXT_INLINE vq vq_start(vi start) {
  return start;
}
EXT_INLINE vq vq_dot(vq sum, vqa a, vqb b) {
  return vdotq_s32(sum, a, b);
}
EXT_INLINE vi vq_sum(vq sum, vi start) {
  (void)start;
  return sum;
}
EXT_INLINE vq vq_dot_quads(vq sum, vx a, vqb b) {
  return vdotq_s32(sum, (int8x16_t)a, b);
}

#if defined(EXT_DOT_PAIRS)

typedef int8x16_t vqa_pair; /* eight terms of a row, and of the next */
typedef struct {
  int8x16_t half[2]; /* eight terms of two columns each */
} vqb_pair;
typedef struct {
  int32x4_t half[2]; /* two columns of a row, and of the next */
} vq_pair;

/* 4 `groups` terms, 1 or 2 (a constant), of two rows; NULL is a row of zeros. */
EXT_INLINE vqa_pair vq_rows(const int groups, const qa* first, const qa* second) {
  uint64_t bytes[2] = {0, 0};
  memcpy(&bytes[0], first, groups * sizeof(uint32_t));
  if (second) memcpy(&bytes[1], second, groups * sizeof(uint32_t));
  return vreinterpretq_s8_u64(vcombine_u64(vcreate_u64(bytes[0]), vcreate_u64(bytes[1])));
}
/* As many of VL columns; the second four rows of a panel lie `step` bytes behind the first. */
EXT_INLINE vqb_pair vq_columns(const int groups, const int8_t* p, int64_t step) {
  int32x4_t low = vreinterpretq_s32_s8(vld1q_s8(p)), high = vdupq_n_s32(0);
  if (groups == 2) high = vreinterpretq_s32_s8(vld1q_s8(p + step));
  return (vqb_pair){
      {vreinterpretq_s8_s32(vzip1q_s32(low, high)), vreinterpretq_s8_s32(vzip2q_s32(low, high))}};
}
EXT_INLINE vq_pair vq_dot_pairs(vq_pair sum, vqa_pair a, vqb_pair b) {
  return (vq_pair){{vmmlaq_s32(sum.half[0], a, b.half[0]), vmmlaq_s32(sum.half[1], a, b.half[1])}};
}
EXT_INLINE vq_pair vq_pair_of(vq first, vq second) {
  return (vq_pair){{vcombine_s32(vget_low_s32(first), vget_low_s32(second)),
                    vcombine_s32(vget_high_s32(first), vget_high_s32(second))}};
}
EXT_INLINE vq vq_of_pair(vq_pair sum, const int second) {
  return second ? vcombine_s32(vget_high_s32(sum.half[0]), vget_high_s32(sum.half[1]))
                : vcombine_s32(vget_low_s32(sum.half[0]), vget_low_s32(sum.half[1]));
}

#endif

#else

typedef int8x8_t vqa;
typedef struct {
  int32x4_t half[2]; /* of two columns each, two sums for each column */
} vq;

EXT_INLINE vqa vq_row(const qa* p) {
  return vreinterpret_s8_u32(neon_four_bytes(p));
}
EXT_INLINE vq vq_start(vi start) {
  (void)start;
  return (vq){{vdupq_n_s32(0), vdupq_n_s32(0)}};
}
EXT_INLINE vq vq_dot(vq sum, vqa a, vqb b) {
  return (vq){{vpadalq_s16(sum.half[0], vmull_s8(a, vget_low_s8(b))),
               vpadalq_s16(sum.half[1], vmull_s8(a, vget_high_s8(b)))}};
}
EXT_INLINE vi vq_sum(vq sum, vi start) {
  return start + vpaddq_s32(sum.half[0], sum.half[1]);
}
EXT_INLINE vq vq_dot_quads(vq sum, vx a, vqb b) {
  int8x16_t x = (int8x16_t)a;
  return (vq){{vpadalq_s16(sum.half[0], vmull_s8(vget_low_s8(x), vget_low_s8(b))),
               vpadalq_s16(sum.half[1], vmull_s8(vget_high_s8(x), vget_high_s8(b)))}};
}

#endif

/* Bytes of the same place in several vectors, side by side. */
EXT_INLINE vx vx_low(vx a, vx b) {
  return (vx)vzip1q_u8((uint8x16_t)a, (uint8x16_t)b);
}
EXT_INLINE vx vx_high(vx a, vx b) {
  return (vx)vzip2q_u8((uint8x16_t)a, (uint8x16_t)b);
}
EXT_INLINE vx vx_low_pairs(vx a, vx b) {
  return (vx)vzip1q_u16((uint16x8_t)a, (uint16x8_t)b);
}
EXT_INLINE vx vx_high_pairs(vx a, vx b) {
  return (vx)vzip2q_u16((uint16x8_t)a, (uint16x8_t)b);
}
EXT_INLINE vx vx_narrow(vi a, vi b, vi c, vi d) {
  int16x8_t low = vcombine_s16(vmovn_s32(a), vmovn_s32(b));
  int16x8_t high = vcombine_s16(vmovn_s32(c), vmovn_s32(d));
  return (vx)vcombine_s8(vmovn_s16(low), vmovn_s16(high));
}
EXT_INLINE vx vx_in_order(vx x) {
  return x;
}

EXT_INLINE vx vx_max(vx a, vx b) {
  return (vx)vmaxq_u8((uint8x16_t)a, (uint8x16_t)b);
}

/* table[x] of 256 bytes, 64 at a time; others give 0. */
EXT_INLINE vx vx_lookup(const uint8_t* table, vx x) {
  uint8x16_t y = vdupq_n_u8(0);
  for (int i = 0; i < 4; i++)
    y = vorrq_u8(y, vqtbl4q_u8(vld1q_u8_x4(table + 64 * i),
                               veorq_u8((uint8x16_t)x, vdupq_n_u8((uint8_t)(64 * i)))));
  return (vx)y;
}
