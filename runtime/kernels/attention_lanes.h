/*
 * attention_lanes.h - what a block of keys adds to the sums of a few queries that share it, one
 * query to each lane of half a vector.
 *
 *   s[j][r] = scale q[r] . k[j] + mask[j],   e[j][r] = exp(s[j][r] - most[r]),
 *   sums[r] = sums[r] by[r] + sum_j e[j][r] v[j]
 *
 * Keys are read as they lie, two numbers at a time, and neither the greatest score nor the sum of
 * exponentials crosses lanes.  A core that runs a vector as two halves multiplies a half as fast as
 * it turns keys for whole vectors, and needs not turn them.
 */
#ifndef EXT_ATTENTION_LANES_H_
#define EXT_ATTENTION_LANES_H_

#include "ahead.h"
#include "attention_block.h"

#if defined(EXT_HALF_VECTORS)

enum {
  LANES = VL / 2, /* rows at most */
  LANE_KEYS = 8   /* whose products are summed at once */
};

/* What is known of all keys so far: a number for each row, twice. */
typedef struct {
  float *total, *most; /* the sum of exponentials, and the greatest exponent */
} lane_state;

/* s[j][r] = q[r] . k[j] of `keys` keys that are `row` apart.  A pair of a key's numbers, which is
 * loaded once, meets those of four rows, and of the four others: a core that loads two of them and
 * multiplies two halves in a cycle would wait for loads of single numbers. */
EXT_INLINE void lane_dots(const int keys, const float* turned, const float* k, int64_t row,
                          int64_t depth, float* s, ahead* next) {
  vh sum[LANE_KEYS][2];
  EXT_UNROLL
  for (int j = 0; j < keys; j++) sum[j][0] = sum[j][1] = (vh){0};
  for (int64_t i = 0, end; i < depth;) {
    if (keys > 1) fetch(next, LINES);
    for (end = i64_min(depth, i + LINE); i < end; i += 2) {
      const vh first = vh_load(turned + i * LANES), second = vh_load(turned + (i + 1) * LANES);
      EXT_UNROLL
      for (int j = 0; j < keys; j++) {
        const vh pair = vh_pairs(k + j * row + i);
        sum[j][0] = vh_fma(pair, first, sum[j][0]);
        sum[j][1] = vh_fma(pair, second, sum[j][1]);
      }
    }
  }
  EXT_UNROLL
  for (int j = 0; j < keys; j++) vh_store(s + j * LANES, vh_sum_pairs(sum[j][0], sum[j][1]));
}

/* Scales the scores of n keys and adds the mask, which may be NULL; behind an odd number lies one
 * of -inf.  Returns the greatest of each row, twice; those that are no numbers are none. */
EXT_INLINE vf lane_scores(float scale, int64_t n, const float* mask, int64_t step, float* s) {
  const vf by = vf_set1(scale);
  const vm lower = vm_first(LANES);
  vf high = vf_set1(-__builtin_inff());
  for (int64_t j = 0; j < n; j += 2) {
    const int64_t second = j + 1 < n ? j + 1 : j;
    vf v = vf_load(s + j * LANES) * by;
    if (mask) v += vf_select(lower, vf_set1(mask[j * step]), vf_set1(mask[second * step]));
    if (second == j) v = vf_select(lower, v, vf_set1(-__builtin_inff()));
    vf_store(s + j * LANES, v);
    high = vf_select(vm_lt(high, v), v, high);
  }
  vf other = vf_swap_halves(high);
  return vf_select(vm_lt(high, other), other, high);
}

/* The exponentials of scores, and what earlier sums are scaled down by. */
EXT_INLINE void lane_exponentials(int64_t n, vf high, float* s, const lane_state* state,
                                  float* by) {
  const vf before = vf_load(state->most);
  const vf most = vf_select(vm_lt(before, high), high, before);
  const vf shift = vf_select(vm_lt(vf_set1(-__builtin_inff()), most), most, vf_zero());
  const vf down = vf_select(vm_lt(before, most), vf_exp_normal(before - shift), vf_set1(1.0f));
  vf sum = vf_zero();
  for (int64_t j = 0; j < n; j += 2) {
    const vf e = vf_exp_normal(vf_load(s + j * LANES) - shift);
    vf_store(s + j * LANES, e);
    sum += e;
  }
  vf_store(state->total, vf_fma(vf_load(state->total), down, sum + vf_swap_halves(sum)));
  vf_store(state->most, most);
  vf_store(by, down);
}

/* A block of n keys for `rows` rows, whose sums are `apart`. */
static void keys_of_lanes(const ext_attention_params* p, int64_t rows, const float* turned,
                          const float* k, const float* v, int64_t n, const float* mask,
                          const lane_state* state, float* sums, int64_t apart, ahead* next) {
  const int64_t row = p->k_strides[2];
  _Alignas(EXT_ALIGN) float s[(BLOCK + 1) * LANES], by[VL];
  int64_t j = 0;
  for (; j + LANE_KEYS <= n; j += LANE_KEYS)
    lane_dots(LANE_KEYS, turned, k + j * row, row, p->depth, s + j * LANES, next);
  for (; j < n; j++) lane_dots(1, turned, k + j * row, row, p->depth, s + j * LANES, next);
  const vf high = lane_scores(p->scale, n, mask, p->mask_strides[3], s);
  lane_exponentials(n, high, s, state, by);
  for (int64_t r = 0; r < rows; r += FEW_QUERIES)
    add_few_values(1, LANES, i64_min(FEW_QUERIES, rows - r), s + r, v, p->v_strides[2], n, p->width,
                   by + r, sums + r * apart, apart, next);
}

#endif /* EXT_HALF_VECTORS */
#endif /* EXT_ATTENTION_LANES_H_ */
