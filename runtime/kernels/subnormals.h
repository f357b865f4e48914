/*
 * Internal: products without subnormal floats.
 *
 * Intel's cores take some hundred cycles for a multiply-add that reads or makes a number below
 * 1.2e-38, and networks have them: exp(-100) behind the mask of Swin's shifted windows, sigmoids
 * far from zero.  Kernels that sum products take them for 0, as units for bfloat16 always do, which
 * changes a sum by less than 1.2e-38 times its terms.  All else keeps them: a logarithm would tell
 * 1e-40 from 0.  On one thread of a Granite Rapids text detection (PP-OCR) takes 72 ms instead of
 * 314, Swin-T 64 instead of 87.
 *
 * The processor's mode is set around each share of the work, on the thread that does it, and put
 * back.  Arm's cores take no longer for subnormals, and keep them.
 */
#ifndef EXT_SUBNORMALS_H_
#define EXT_SUBNORMALS_H_

#include "public.h"

#if defined(__SSE__)
#include <xmmintrin.h>

enum { SUBNORMALS_ARE_ZERO = 0x8040 }; /* of results and of operands: FTZ and DAZ of MXCSR */

/* body(context, begin, end) with subnormals as 0. */
static inline int ext_products(ext_range_body body, void* context, int64_t begin, int64_t end) {
  const unsigned mode = _mm_getcsr();
  _mm_setcsr(mode | SUBNORMALS_ARE_ZERO);
  const int status = body(context, begin, end);
  _mm_setcsr(mode);
  return status;
}
#else
static inline int ext_products(ext_range_body body, void* context, int64_t begin, int64_t end) {
  return body(context, begin, end);
}
#endif

typedef struct {
  ext_range_body body;
  void* context;
} ext_products_job;

static inline int ext_products_range(void* context, int64_t begin, int64_t end) {
  const ext_products_job* job = context;
  return ext_products(job->body, job->context, begin, end);
}

/* ext_parallel_for of a body that sums products. */
static inline int ext_parallel_products(int64_t n, int64_t grain, ext_range_body body,
                                        void* context) {
  ext_products_job job = {body, context};
  return ext_parallel_for(n, grain, ext_products_range, &job);
}

#endif /* EXT_SUBNORMALS_H_ */
