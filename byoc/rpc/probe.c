/* What a device is, for whoever measures on it: packed functions of a library that is uploaded. */
#include <stdio.h>
#include <stdlib.h>
#include <tvm/ffi/c_api.h>

#include "ext_kernels.h"

/* The kernels' instruction set there. */
TVM_FFI_DLL_EXPORT int __tvm_ffi_byoc_probe_isa(void* self, const TVMFFIAny* args, int32_t n_args,
                                                TVMFFIAny* result) {
  const char* const name = ext_isa_name();
  TVMFFIByteArray bytes = {name, 0};
  (void)self;
  (void)args;
  (void)n_args;
  while (name[bytes.size] != '\0') ++bytes.size;
  return TVMFFIStringFromByteArray(&bytes, result);
}

/* The beginning of a text file of the system's there, such as /proc/cpuinfo; empty where there is
 * none. The path comes as the C string that TVM's RPC makes of every string. */
TVM_FFI_DLL_EXPORT int __tvm_ffi_byoc_probe_read(void* self, const TVMFFIAny* args, int32_t n_args,
                                                 TVMFFIAny* result) {
  enum { MOST = 1 << 16 };
  (void)self;
  if (n_args != 1 || args[0].type_index != kTVMFFIRawStr) {
    TVMFFIErrorSetRaisedFromCStr("TypeError", "byoc_probe_read needs a path, through RPC");
    return -1;
  }
  char* const text = malloc(MOST);
  TVMFFIByteArray bytes = {text, 0};
  FILE* const file = text == NULL ? NULL : fopen(args[0].v_c_str, "r");
  if (file != NULL) {
    bytes.size = fread(text, 1, MOST, file);
    fclose(file);
  }
  const int status = TVMFFIStringFromByteArray(&bytes, result);
  free(text);
  return status;
}
