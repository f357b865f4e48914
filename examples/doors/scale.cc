// The same in C++: "doors.scale_cpp"(x, by, y). TVM's FFI checks the arguments' number and types.
// This kernel wants contiguous float32 tensors and says so.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/reflection/registry.h>

namespace ffi = tvm::ffi;

static void Scale(ffi::TensorView x, double by, ffi::TensorView y) {
  const DLDataType f32{kDLFloat, 32, 1};
  if (x.dtype() != f32 || y.dtype() != f32 || x.numel() != y.numel()) {
    TVM_FFI_THROW(ValueError) << "doors.scale_cpp: x is " << x.dtype() << " with " << x.numel()
                              << " elements, y " << y.dtype() << " with " << y.numel()
                              << "; need two float32 tensors of one size";
  }
  if (!x.IsContiguous() || !y.IsContiguous()) {
    TVM_FFI_THROW(ValueError) << "doors.scale_cpp: x has strides " << x.strides() << ", y "
                              << y.strides() << "; need contiguous tensors";
  }
  // data_ptr() leaves out the byte offset that views of TVM tensors have.
  const auto* from =
      reinterpret_cast<const float*>(static_cast<char*>(x.data_ptr()) + x.byte_offset());
  auto* to = reinterpret_cast<float*>(static_cast<char*>(y.data_ptr()) + y.byte_offset());
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = static_cast<float>(by) * from[i];
}

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef().def("doors.scale_cpp", Scale);
}
