/* Internal: the parts of a weight of 4 or 8 bits, and its integers as floats. */
#ifndef EXT_BLOCK_WEIGHT_H_
#define EXT_BLOCK_WEIGHT_H_

#include "../simd/simd.h"

enum { PER_PANEL = EXT_PANEL / VL };

EXT_INLINE int64_t blocks_of(const ext_block_weight* w, int64_t k) {
  return ceil_div(k, w->block);
}
/* Words of `rows` rows of a panel. */
EXT_INLINE int64_t words_of(const int bits, int64_t rows) {
  return ceil_div(rows, 32 / bits) * EXT_PANEL;
}

/* Integers to floats: a field that begins at bit b of the mantissa, below the exponent of
 * 2^(23 - b), makes the number 2^(23 - b) + q; from it, 2^(23 - b) + zero is taken off.  Both steps
 * are exact where zero is an integer.  The mantissa has room for the lower half of a word; the
 * upper half is moved there. */

enum { HALF = 16, MOST_FIELDS = HALF / 4 }; /* bits, and fields, of half a word */

EXT_INLINE vi field_mask(const int bits, const int f) {
  return vi_set1(((1 << bits) - 1) << bits * f);
}
/* 2^(23 - bits f) */
EXT_INLINE vi field_base(const int bits, const int f) {
  return vi_set1((127 + 23 - bits * f) << 23);
}
EXT_INLINE vf field(const int bits, const int f, vi half) {
  return (vf)((half & field_mask(bits, f)) | field_base(bits, f));
}

/* How zero points are given: none, one for all; integers; any numbers. */
typedef enum { MIDDLE, INTEGERS, NUMBERS } zero_kind;

EXT_INLINE zero_kind zeros_of(const ext_block_weight* w) {
  return !w->zero ? MIDDLE : w->zero_dtype == EXT_UINT8 ? INTEGERS : NUMBERS;
}
/* Zero points of VL columns, from that at `place` on; those of NUMBERS. */
EXT_INLINE vf zeros_at(const int bits, const zero_kind zeros, const ext_block_weight* w,
                       int64_t place) {
  if (zeros == MIDDLE) return vf_set1((float)(1 << (bits - 1)));
  if (zeros == INTEGERS) return vi_to_vf(vi_load_u8((const uint8_t*)w->zero + place));
  return vf_load((const float*)w->zero + place);
}
/* What is taken off field f of integers with these zero points. */
EXT_INLINE vf base_of(const int bits, const zero_kind zeros, const int f, vf zero) {
  vf base = (vf)field_base(bits, f);
  return zeros == NUMBERS ? base : base + zero;
}
EXT_INLINE vf less_zero(const int bits, const zero_kind zeros, const int f, vi half, vf base,
                        vf zero) {
  vf q = field(bits, f, half) - base;
  return zeros == NUMBERS ? q - zero : q;
}
/* Which of its word's rows field f of a half is. */
EXT_INLINE int row_of(const int bits, const int f, const int upper) {
  return bits == 8 ? f + 2 * upper : f / 2 + 4 * (f % 2) + 2 * upper;
}
EXT_INLINE vi upper_half(vi word) {
  return (vi)((vu)word >> HALF);
}

/* Instead of a status: a is not to be rounded, or there is no unit for it, and y is as it was. */
enum { EXT_UNFIT = 1 << 16 };

/* ext_matmul_block of a few rows of finite numbers that are not huge, for `batches` batch items;
 * or, `rounded` to bytes, of any rows. */
int ext_matmul_block_few(const ext_matmul_params* p, const ext_block_weight* w, const float* a,
                         const ext_epilogue* e, float* y, int64_t batches, int rounded);

#endif /* EXT_BLOCK_WEIGHT_H_ */
