/* Between two timed runs of a candidate: what its caches would hold inside a network.
 *
 * byoc_tune_start registers the global function byoc.tune.between, which TVM's timer calls before
 * each run, with the arguments of the run. It reads BYOC_OTHER_BYTES of something else, and then
 * all tensors but the last, which is the result. */
#include <stdlib.h>
#include <string.h>
#include <tvm/ffi/c_api.h>

static char* byoc_others;
static volatile char byoc_sink;

static void byoc_touch(const char* data, int64_t size) {
  char sum = 0;
  for (int64_t at = 0; at < size; at += 64) sum += data[at];
  byoc_sink = sum;
}

static int byoc_tune_between(void* self, const TVMFFIAny* args, int32_t n_args, TVMFFIAny* result) {
  (void)self;
  (void)result;
  byoc_touch(byoc_others, BYOC_OTHER_BYTES);
  for (int32_t i = 0; i + 1 < n_args; ++i) {
    if (args[i].type_index != kTVMFFIDLTensorPtr) continue;
    const DLTensor* const tensor = (const DLTensor*)args[i].v_ptr;
    int64_t size = (int64_t)tensor->dtype.bits * tensor->dtype.lanes / 8;
    for (int32_t axis = 0; axis < tensor->ndim; ++axis) size *= tensor->shape[axis];
    byoc_touch((const char*)tensor->data + tensor->byte_offset, size);
  }
  return 0;
}

TVM_FFI_DLL_EXPORT int __tvm_ffi_byoc_tune_start(void* self, const TVMFFIAny* args, int32_t n_args,
                                                 TVMFFIAny* result) {
  static const char name[] = "byoc.tune.between";
  const TVMFFIByteArray text = {name, sizeof(name) - 1};
  TVMFFIObjectHandle function;
  (void)self;
  (void)args;
  (void)n_args;
  result->type_index = kTVMFFINone;
  result->zero_padding = 0;
  result->v_int64 = 0;
  byoc_others = malloc(BYOC_OTHER_BYTES);
  if (byoc_others == NULL) {
    TVMFFIErrorSetRaisedFromCStr("MemoryError", "no memory to empty the caches with");
    return -1;
  }
  memset(byoc_others, 1, BYOC_OTHER_BYTES); /* pages that nobody wrote are all the same one */
  if (TVMFFIFunctionCreate(NULL, byoc_tune_between, NULL, &function) != 0) return -1;
  return TVMFFIFunctionSetGlobal(&text, function, 1);
}
