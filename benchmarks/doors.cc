// The trivial kernel of benchmarks.doors as a packed function in C++, whose arguments TVM's FFI
// checks and converts.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

static float* DataOf(tvm::ffi::TensorView t) {
  return reinterpret_cast<float*>(static_cast<char*>(t.data_ptr()) + t.byte_offset());
}

static void Add(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView y) {
  const float *a = DataOf(x), *b = DataOf(w);
  float* to = DataOf(y);
  for (int i = 0; i < 16; ++i) to[i] = a[i] + b[i];
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(byoc_bench_cpp, Add);
