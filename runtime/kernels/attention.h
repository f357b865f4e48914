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

/* Whether ext_attention_few is the faster way. */
EXT_INLINE int is_few(const ext_attention_params* p) {
  return p->queries <= 4;
}

/* As ext_attention, for few queries. */
int EXT_NAME(ext_attention_few)(const ext_attention_params* p, const float* q, const float* k,
                                const float* v, const float* mask, float* y);

#endif /* EXT_ATTENTION_H_ */
