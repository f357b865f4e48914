/*
 * What runtime/tvm_threads.c asks of TVM's FFI, for programs without TVM: the number of threads in
 * `tvm_threads`.
 */
#ifndef TVM_STAND_IN_H_
#define TVM_STAND_IN_H_

#include <stddef.h>
#include <stdint.h>

static int tvm_threads = 1;

/* TVMFFIAny of tvm/ffi/c_api.h. */
typedef struct {
  int32_t type_index;
  uint32_t padding;
  int64_t value;
} stand_in_any;

enum { STAND_IN_INT = 1 };

__attribute__((visibility("default"))) int TVMFFIFunctionGetGlobal(const void* name,
                                                                   void** function) {
  (void)name;
  *function = &tvm_threads;
  return 0;
}

__attribute__((visibility("default"))) int TVMFFIFunctionCall(void* function, stand_in_any* args,
                                                              int32_t count, stand_in_any* result) {
  (void)args;
  (void)count;
  *result = (stand_in_any){STAND_IN_INT, 0, *(int*)function};
  return 0;
}

__attribute__((visibility("default"))) void TVMFFIErrorMoveFromRaised(void** error) {
  *error = NULL;
}

__attribute__((visibility("default"))) int TVMFFIObjectDecRef(void* object) {
  (void)object;
  return 0;
}

#endif /* TVM_STAND_IN_H_ */
