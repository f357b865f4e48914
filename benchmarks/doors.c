/* The trivial kernel of benchmarks.doors, plain and as a packed function.
 *
 * y = x + w, 16 floats each: about as short as a kernel can be, so that what is measured is the
 * way to it. */
#include <tvm/ffi/c_api.h>

#define SIZE 16

int32_t byoc_bench_add(const float* x, const float* w, float* y) {
  for (int i = 0; i < SIZE; ++i) y[i] = x[i] + w[i];
  return 0;
}

/* The reference inside compiled code: `calls` calls in a row, each reading what the one before it
 * wrote. The pointer is volatile, or the compiler would see through it. */
void byoc_bench_chain(const float* x, const float* w, float* y, int64_t calls) {
  static int32_t (*volatile add)(const float*, const float*, float*) = byoc_bench_add;
  float buffers[2][SIZE];
  for (int64_t i = 0; i < calls; ++i) {
    add(i == 0 ? x : buffers[i % 2], w, i == calls - 1 ? y : buffers[(i + 1) % 2]);
  }
}

/* Tensors come as objects from Python and from Relax, borrowed from TIR. Nothing is checked: this
 * is the least that the door costs. */
static float* data_of(const TVMFFIAny* arg) {
  const DLTensor* t = arg->type_index == kTVMFFITensor
                          ? (const DLTensor*)((const char*)arg->v_obj + sizeof(TVMFFIObject))
                          : (const DLTensor*)arg->v_ptr;
  return (float*)((char*)t->data + t->byte_offset);
}

TVM_FFI_DLL_EXPORT int __tvm_ffi_byoc_bench_packed(void* self, const TVMFFIAny* args, int32_t count,
                                                   TVMFFIAny* result) {
  (void)self;
  (void)count;
  (void)result;
  return byoc_bench_add(data_of(&args[0]), data_of(&args[1]), data_of(&args[2]));
}
