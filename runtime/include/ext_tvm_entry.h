/*
 * ext_tvm_entry.h - how a generated region function meets TVM's FFI.
 *
 * Included by generated code only.  Each region is exported as a packed function in
 * destination-passing style: its arguments are the inputs, then the outputs, as tensors.  The
 * caller is checked once per call; a mismatch raises TVM's error with the tensor's name, what was
 * expected and what was found.
 */
#ifndef EXT_TVM_ENTRY_H_
#define EXT_TVM_ENTRY_H_

#include <stddef.h>
#include <stdio.h>
#ifndef EXT_TVM_TYPES
#include <tvm/ffi/c_api.h>
#endif

#include "ext_extents.h"
#include "ext_kernels.h"

/* With EXT_ENTRY_APART the functions that only calls with mistakes make use of, and the check of a
 * call, are those of tvm_entry.c in the runtime's archive: to compile them anew takes as long as
 * all the rest of a small region.  Its compiler does not see TVM's header; this one does, and
 * compares. */
#ifdef EXT_ENTRY_APART
#define EXT_ENTRY
_Static_assert(sizeof(TVMFFIAny) == 16 && offsetof(TVMFFIAny, type_index) == 0 &&
                   offsetof(TVMFFIAny, v_obj) == 8 && offsetof(TVMFFIAny, v_ptr) == 8,
               "tvm_types.h: TVMFFIAny is another one here");
_Static_assert(sizeof(TVMFFIObject) == 24 && sizeof(TVMFFIShapeCell) == 16 &&
                   offsetof(TVMFFIShapeCell, data) == 0 && offsetof(TVMFFIShapeCell, size) == 8,
               "tvm_types.h: TVM's objects are others here");
_Static_assert(sizeof(DLTensor) == 48 && offsetof(DLTensor, data) == 0 &&
                   offsetof(DLTensor, device) == 8 && offsetof(DLTensor, ndim) == 16 &&
                   offsetof(DLTensor, dtype) == 20 && offsetof(DLTensor, shape) == 24 &&
                   offsetof(DLTensor, strides) == 32 && offsetof(DLTensor, byte_offset) == 40,
               "tvm_types.h: DLTensor is another one here");
_Static_assert(sizeof(DLDevice) == 8 && offsetof(DLDevice, device_type) == 0 &&
                   sizeof(DLDataType) == 4 && offsetof(DLDataType, code) == 0 &&
                   offsetof(DLDataType, bits) == 1 && offsetof(DLDataType, lanes) == 2,
               "tvm_types.h: DLDevice or DLDataType is another one here");
_Static_assert(kTVMFFIDLTensorPtr == 7 && kTVMFFIShape == 69 && kTVMFFITensor == 70 && kDLCPU == 1,
               "tvm_types.h: the numbers of types are others here");
#else
#define EXT_ENTRY static inline
#endif

/* What a region expects of one argument: this dtype and shape, on the CPU, contiguous. */
typedef struct {
  const char* name;
  const char* dtype;
  uint8_t code, bits;
  int32_t ndim;
  int64_t shape[EXT_MAX_DIMS];
} ext_tensor_spec;

static inline const DLTensor* ext_tensor_of(const TVMFFIAny* arg) {
  if (arg->type_index == kTVMFFITensor) {
    return (const DLTensor*)((const char*)arg->v_obj + sizeof(TVMFFIObject));
  }
  return arg->type_index == kTVMFFIDLTensorPtr ? (const DLTensor*)arg->v_ptr : NULL;
}

/* Extent of an axis of an argument; 0 where the argument is no tensor of that rank, which
 * ext_check_call then reports. */
static inline int64_t ext_extent(const TVMFFIAny* args, int32_t n, int index, int ndim, int axis) {
  const DLTensor* t = index < n ? ext_tensor_of(&args[index]) : NULL;
  return t != NULL && t->ndim == ndim ? t->shape[axis] : 0;
}

/* Raises an error of TVM; always -1. */
EXT_ENTRY int ext_raise(const char* kind, const char* message);
EXT_ENTRY int ext_raise_status(const char* region, const char* operation, int status);
EXT_ENTRY int ext_raise_library(const char* region, const char* library, const char* composite,
                                int status, const char* text);
EXT_ENTRY int ext_raise_negative(const char* region, const char* extent, int64_t value,
                                 const char* sizes);
EXT_ENTRY int ext_is_contiguous(const DLTensor* t);
EXT_ENTRY int ext_take_sizes(const char* region, const TVMFFIAny* args, int32_t n, int count,
                             int64_t* sizes);
EXT_ENTRY int ext_check_tensor(const char* region, const TVMFFIAny* arg,
                               const ext_tensor_spec* spec, void** data);
EXT_ENTRY int ext_check_call(const char* region, const TVMFFIAny* args, int32_t n,
                             const ext_tensor_spec* specs, int32_t expected, void** data);

#ifndef EXT_ENTRY_APART
#include "ext_tvm_entry_functions.h"
#endif

#endif /* EXT_TVM_ENTRY_H_ */
