/* Internal: where the heads of attention lie, and attention of few queries. */
#ifndef EXT_ATTENTION_H_
#define EXT_ATTENTION_H_

#include "../simd/simd.h"

/* Where a head of q, y or the mask begins; heads of all batch items are counted on. */
EXT_INLINE int64_t head_offset(const ext_attention_params* p, const int64_t* strides,
                               int64_t head) {
  return head / p->heads * strides[0] + head % p->heads * strides[1];
}

/* How many heads share one of k and v. */
EXT_INLINE int64_t heads_of_group(const ext_attention_params* p) {
  return p->group > 1 ? p->group : 1;
}

/* Where the keys or values of a group of heads begin. */
EXT_INLINE int64_t group_offset(const ext_attention_params* p, const int64_t* strides,
                                int64_t group) {
  const int64_t groups = p->heads / heads_of_group(p);
  return group / groups * strides[0] + group % groups * strides[1];
}

/* The first keys that do for queries [i0, i1), whose rows of the mask begin at `mask`: the numbers
 * of those behind are so low that their exponentials are 0, as each row has a key that is not
 * hidden. All keys, or a multiple of VL. */
EXT_INLINE int64_t keys_seen(const ext_attention_params* p, const float* mask, int64_t i0,
                             int64_t i1) {
  const float hidden = -1e30f, plain = -1e29f; /* scores that come near to these are not numbers */
  const int64_t row = p->mask_strides[2];
  if (!mask || p->mask_strides[3] == 0) return p->keys;
  int64_t seen = p->keys;
  for (int all = 1; all && seen > 0;) {
    const int64_t from = (seen - 1) / VL * VL, lanes = seen - from;
    vi low = vi_set1(-1);
    for (int64_t i = 0; i < i1 - i0; i++) {
      const vf m =
          lanes == VL ? vf_load(mask + i * row + from) : vf_load_n(mask + i * row + from, lanes);
      low &= (vi)(m <= vf_set1(hidden));
    }
    int32_t found[VL];
    vi_store(found, low);
    for (int64_t j = 0; j < lanes; j++) all &= found[j] != 0;
    if (all) seen = from;
  }
  for (int64_t i = 0; i < i1 - i0; i++) {
    int64_t j = 0;
    while (j < seen && !(mask[i * row + j] >= plain)) j++;
    if (j == seen) return p->keys;
  }
  return seen;
}

/* Whether a row has no key among the first n: all of s[j] scale + mask[j] are -inf. */
EXT_INLINE int is_without_key(const ext_attention_params* p, const float* mask, const float* s,
                              int64_t n) {
  for (int64_t j = 0; j < n; j++) {
    const float added = mask ? mask[j * p->mask_strides[3]] : 0.0f;
    if (s[j] * p->scale + added != -__builtin_inff()) return 0;
  }
  return 1;
}

/* Whether ext_attention_few is the faster way. */
EXT_INLINE int is_few(const ext_attention_params* p) {
  return p->queries <= 4;
}

/* As ext_attention, for few queries. */
int EXT_NAME(ext_attention_few)(const ext_attention_params* p, const float* q, const float* k,
                                const float* v, const float* mask, float* y);

#endif /* EXT_ATTENTION_H_ */
