/* y[i, j] = x[i, j] + bias[j], bias a constant that TVM stores in the model's library.
 *
 * This file is compiled by export_library, as C or as C++, without optimisation and without a path
 * to the other headers here. Before the first call TVM calls __init_ with the constants; they live
 * as long as the library. */
#include <tvm/ffi/c_api.h>

#ifdef __cplusplus
extern "C" {
#endif

static const float* bias;

static const DLTensor* tensor(const TVMFFIAny* arg) {
  return (const DLTensor*)((const char*)arg->v_obj + sizeof(TVMFFIObject));
}

TVM_FFI_DLL_EXPORT int __tvm_ffi___init_doors_add_bias(void* self, const TVMFFIAny* args,
                                                       int32_t count, TVMFFIAny* result) {
  const TVMFFISeqCell* array =
      (const TVMFFISeqCell*)((const char*)args->v_obj + sizeof(TVMFFIObject));
  (void)self;
  (void)count;
  bias = (const float*)tensor((const TVMFFIAny*)array->data)->data;
  result->type_index = kTVMFFIInt;
  result->v_int64 = 0;
  return 0;
}

TVM_FFI_DLL_EXPORT int __tvm_ffi_doors_add_bias(void* self, const TVMFFIAny* args, int32_t count,
                                                TVMFFIAny* result) {
  const DLTensor *x = tensor(&args[0]), *y = tensor(&args[1]);
  const float* from = (const float*)((const char*)x->data + x->byte_offset);
  float* to = (float*)((char*)y->data + y->byte_offset);
  (void)self;
  (void)count;
  (void)result;
  for (int64_t i = 0; i < x->shape[0] * x->shape[1]; ++i) to[i] = from[i] + bias[i % x->shape[1]];
  return 0;
}

#ifdef __cplusplus
}
#endif
