/* How a packed function in C reads a tensor argument. */
#ifndef DOORS_TENSOR_ARG_H_
#define DOORS_TENSOR_ARG_H_

#include <tvm/ffi/c_api.h>

/* The Relax virtual machine and Python pass counted tensor objects, code compiled from TIR passes
 * borrowed DLTensor pointers. NULL for anything else. */
static inline const DLTensor* tensor_arg(const TVMFFIAny* arg) {
  if (arg->type_index == kTVMFFITensor) {
    return (const DLTensor*)((const char*)arg->v_obj + sizeof(TVMFFIObject));
  }
  return arg->type_index == kTVMFFIDLTensorPtr ? (const DLTensor*)arg->v_ptr : NULL;
}

/* The first element: views of TVM tensors keep their offset apart from the pointer. */
static inline float* first_element(const DLTensor* t) {
  return (float*)((char*)t->data + t->byte_offset);
}

static inline int is_float_matrix(const DLTensor* t) {
  return t != NULL && t->ndim == 2 && t->device.device_type == kDLCPU &&
         t->dtype.code == kDLFloat && t->dtype.bits == 32 && t->dtype.lanes == 1;
}

/* Elements from one index of an axis of a matrix to the next; strides may be absent. */
static inline int64_t step(const DLTensor* t, int axis) {
  return t->strides != NULL ? t->strides[axis] : axis == 0 ? t->shape[1] : 1;
}

#endif /* DOORS_TENSOR_ARG_H_ */
