/*
 * ext_value_sized.h - what functions need whose result is as large as the values say: tensors in
 * the memory of TVM's runtime, and arguments that are tensors.
 */
#ifndef EXT_VALUE_SIZED_H_
#define EXT_VALUE_SIZED_H_

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ext_tvm_entry.h"

#define EXPORT(name) TVM_FFI_DLL_EXPORT int name(void*, const TVMFFIAny*, int32_t, TVMFFIAny*)

/* Calls a function that TVM's runtime or its FFI registered. */
static inline int call_global(const char* name, TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  TVMFFIByteArray text = {name, strlen(name)};
  TVMFFIObjectHandle function = NULL;
  int status = TVMFFIFunctionGetGlobal(&text, &function);
  if (status != 0) return status;
  if (function == NULL) return ext_raise("RuntimeError", name);
  memset(result, 0, sizeof(*result));
  status = TVMFFIFunctionCall(function, args, n, result);
  TVMFFIObjectDecRef(function);
  return status;
}

/* A tensor in memory of TVM's runtime, which may outlive this library; gives its description. */
static inline int new_tensor(DLDataType dtype, int32_t ndim, const int64_t* shape,
                             TVMFFIAny* result, DLTensor** tensor) {
  TVMFFIAny extents[EXT_MAX_DIMS], args[4];
  memset(extents, 0, sizeof(extents));
  memset(args, 0, sizeof(args));
  for (int32_t i = 0; i < ndim; ++i) {
    extents[i].type_index = kTVMFFIInt;
    extents[i].v_int64 = shape[i];
  }
  if (call_global("ffi.Shape", extents, ndim, &args[0]) != 0) return -1;
  args[1].type_index = kTVMFFIDataType;
  args[1].v_dtype = dtype;
  args[2].type_index = kTVMFFIDevice;
  args[2].v_device = (DLDevice){kDLCPU, 0};
  args[3].type_index = kTVMFFINone;
  int status = call_global("runtime.TVMTensorAllocWithScope", args, 4, result);
  TVMFFIObjectDecRef(args[0].v_obj);
  if (status == 0) *tensor = (DLTensor*)ext_tensor_of(result);
  return status;
}

static inline int new_int64(int32_t ndim, const int64_t* shape, TVMFFIAny* result, int64_t** data) {
  DLTensor* tensor = NULL;
  if (new_tensor((DLDataType){kDLInt, 64, 1}, ndim, shape, result, &tensor) != 0) return -1;
  *data = (int64_t*)((char*)tensor->data + tensor->byte_offset);
  return 0;
}

/* Argument `index` as a tensor on the CPU without gaps, of whole bytes; NULL with an error raised.
 */
static inline const DLTensor* taken_at(const char* function, const TVMFFIAny* args, int32_t n,
                                       int32_t index) {
  const DLTensor* x = index < n ? ext_tensor_of(&args[index]) : NULL;
  char message[160];
  if (x != NULL && x->device.device_type == kDLCPU && x->ndim <= EXT_MAX_DIMS &&
      x->dtype.lanes == 1 && x->dtype.bits % 8 == 0 && ext_is_contiguous(x))
    return x;
  snprintf(message, sizeof(message),
           "%s: argument %d is no contiguous CPU tensor of at most %d axes; pass one", function,
           (int)index, EXT_MAX_DIMS);
  ext_raise("TypeError", message);
  return NULL;
}

static inline const TVMFFIShapeCell* ext_shape_of(const TVMFFIAny* value) {
  return (const TVMFFIShapeCell*)((const char*)value->v_obj + sizeof(TVMFFIObject));
}

static inline const char* data_of(const DLTensor* x) {
  return (const char*)x->data + x->byte_offset;
}

static inline int64_t count_of(const DLTensor* x) {
  int64_t count = 1;
  for (int32_t i = 0; i < x->ndim; ++i) count *= x->shape[i];
  return count;
}

static inline int out_of_memory(const char* function) {
  char message[96];
  snprintf(message, sizeof(message), "%s: out of memory", function);
  return ext_raise("MemoryError", message);
}

#endif /* EXT_VALUE_SIZED_H_ */
