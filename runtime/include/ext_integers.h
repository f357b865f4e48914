/*
 * ext_integers.h - the C interface of products, reductions and greatest elements of integers,
 * EXT_INT32 or EXT_INT64; part of ext_kernels.h, which includes it behind the parameter blocks of
 * float32.  Sums and products that are too large wrap around.
 */
#ifndef EXT_INTEGERS_H_
#define EXT_INTEGERS_H_

#ifdef __cplusplus
extern "C" {
#endif

/* As ext_matmul, without an epilogue: b is a plain strided matrix. */
int ext_matmul_integers(ext_dtype dtype, const ext_matmul_params* p, const void* a, const void* b,
                        void* y);

/* As ext_reduce, but for means and squares; of nothing the greatest element is the least integer,
 * the least one the greatest. */
int ext_reduce_integers(ext_dtype dtype, ext_reduce_kind kind, int64_t outer, int64_t reduce,
                        int64_t inner, const void* x, void* y);

/* As ext_topk. */
int ext_topk_integers(ext_dtype dtype, const ext_topk_params* p, const void* x, void* values,
                      void* indices);

#ifdef __cplusplus
}
#endif

#endif /* EXT_INTEGERS_H_ */
