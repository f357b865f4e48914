/* y = max(x, 0) as a packed function that is linked into the model's library: the name that TVM
 * looks for in a module is the function's with __tvm_ffi_ before it. */
#include "tensor_arg.h"

TVM_FFI_DLL_EXPORT int __tvm_ffi_doors_relu(void* self, const TVMFFIAny* args, int32_t count,
                                            TVMFFIAny* result) {
  (void)self;
  (void)result;
  const DLTensor* x = count == 2 ? tensor_arg(&args[0]) : NULL;
  const DLTensor* y = count == 2 ? tensor_arg(&args[1]) : NULL;
  if (!is_float_matrix(x) || !is_float_matrix(y)) {
    TVMFFIErrorSetRaisedFromCStr("TypeError", "doors_relu: expected two float32 matrices");
    return -1;
  }
  const float* from = first_element(x);
  float* to = first_element(y);
  for (int64_t i = 0; i < x->shape[0]; ++i) {
    for (int64_t j = 0; j < x->shape[1]; ++j) {
      const float value = from[i * step(x, 0) + j * step(x, 1)];
      to[i * step(y, 0) + j * step(y, 1)] = value > 0 ? value : 0;
    }
  }
  return 0;
}
