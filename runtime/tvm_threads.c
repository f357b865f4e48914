/* tvm_threads.h: by TVM's FFI in C, which turns exceptions into return codes. */
#include "tvm_threads.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* TVMFFIByteArray and TVMFFIAny of tvm/ffi/c_api.h. */
typedef struct {
  const char* data;
  size_t size;
} ffi_bytes;

typedef struct {
  int32_t type_index;
  uint32_t padding;
  int64_t value;
} ffi_any;

enum { FFI_INT = 1 };

#define WEAK __attribute__((weak, visibility("default")))
extern int TVMFFIFunctionGetGlobal(const ffi_bytes* name, void** function) WEAK;
extern int TVMFFIFunctionCall(void* function, ffi_any* args, int32_t count, ffi_any* result) WEAK;
extern void TVMFFIErrorMoveFromRaised(void** error) WEAK;
extern int TVMFFIObjectDecRef(void* object) WEAK;

static void forget_error(void) {
  void* error = NULL;
  TVMFFIErrorMoveFromRaised(&error);
  if (error) (void)TVMFFIObjectDecRef(error);
}

/* The packed function that counts them, looked up once and kept; NULL where there is none. */
static void* counter(void) {
  static _Atomic(void*) kept;
  static const char name[] = "runtime.NumThreads";
  void* function = atomic_load_explicit(&kept, memory_order_acquire);
  if (function) return function;
  if (!TVMFFIFunctionGetGlobal || !TVMFFIFunctionCall || !TVMFFIErrorMoveFromRaised ||
      !TVMFFIObjectDecRef)
    return NULL;
  const ffi_bytes bytes = {name, sizeof(name) - 1};
  if (TVMFFIFunctionGetGlobal(&bytes, &function)) forget_error();
  if (function) atomic_store_explicit(&kept, function, memory_order_release);
  return function;
}

int ext_tvm_threads(void) {
  void* function = counter();
  ffi_any count = {0, 0, 0};
  if (!function) return 1;
  if (TVMFFIFunctionCall(function, NULL, 0, &count)) {
    forget_error();
    return 1;
  }
  return count.type_index == FFI_INT && count.value > 1 ? (int)count.value : 1;
}
