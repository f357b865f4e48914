/* Two tensors behind each other, to be called from TVM. */
#ifndef CONCAT_H_
#define CONCAT_H_

#include <stddef.h>
#include <stdint.h>

/* y = a followed by b along an axis; the other axes, before it and after it, are the same in both.
 *
 * byoc: a=input[*outer,p,*inner] b=input[*outer,q,*inner] y=output[*outer,p+q,*inner]
 *       a_shape=shape(a) b_shape=shape(b) rank=rank(a) axis=axis op=concat
 */
void my_concat(const float* a, const int64_t* a_shape, const float* b, const int64_t* b_shape,
               float* y, int rank, int axis);

#endif
