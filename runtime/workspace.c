/* Scratch memory: TVM's per-thread workspace cache where the process has it, else the C heap. */
#include <stdlib.h>

#include "kernels/public.h"

enum { CPU_DEVICE = 1, DEVICE_ID = 0, FLOAT_CODE = 2, FLOAT_BITS = 32 };

extern void* TVMBackendAllocWorkspace(int device_type, int device_id, uint64_t bytes, int code,
                                      int bits) __attribute__((weak, visibility("default")));
extern int TVMBackendFreeWorkspace(int device_type, int device_id, void* memory)
    __attribute__((weak, visibility("default")));

static int have_tvm(void) {
  return TVMBackendAllocWorkspace && TVMBackendFreeWorkspace;
}

void* ext_workspace_alloc(size_t bytes) {
  size_t rounded = (bytes + EXT_ALIGN - 1) / EXT_ALIGN * EXT_ALIGN;
  if (rounded < bytes) return NULL;
  if (rounded == 0) rounded = EXT_ALIGN;
  if (have_tvm())
    return TVMBackendAllocWorkspace(CPU_DEVICE, DEVICE_ID, rounded, FLOAT_CODE, FLOAT_BITS);
  return aligned_alloc(EXT_ALIGN, rounded);
}

void ext_workspace_free(void* memory) {
  if (!memory) return;
  if (have_tvm())
    (void)TVMBackendFreeWorkspace(CPU_DEVICE, DEVICE_ID, memory);
  else
    free(memory);
}
