/*
 * tvm_types.h - what ext_tvm_entry.h reads of tvm/ffi/c_api.h and dlpack.h, for tvm_entry.c.
 *
 * The kernels are built without TVM.  Whoever compiles a region has its header, and refuses to
 * compile where that has another layout (the assertions of ext_tvm_entry.h).
 */
#ifndef TVM_TYPES_H_
#define TVM_TYPES_H_

#include <stddef.h>
#include <stdint.h>

#define EXT_TVM_TYPES

enum { kDLCPU = 1 };
enum { kTVMFFIDLTensorPtr = 7, kTVMFFIShape = 69, kTVMFFITensor = 70 };

typedef struct {
  uint32_t device_type;
  int32_t device_id;
} DLDevice;

typedef struct {
  uint8_t code, bits;
  uint16_t lanes;
} DLDataType;

typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} DLTensor;

typedef struct {
  uint64_t counts;
  int32_t type_index;
  uint32_t padding;
  void (*deleter)(void* self, int flags);
} TVMFFIObject;

typedef struct {
  int32_t type_index;
  uint32_t padding;
  union {
    int64_t v_int64;
    void* v_ptr;
    TVMFFIObject* v_obj;
  };
} TVMFFIAny;

typedef struct {
  const int64_t* data;
  size_t size;
} TVMFFIShapeCell;

void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message);

#endif /* TVM_TYPES_H_ */
