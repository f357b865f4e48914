/* y[i, j] = by * x[i, j] as a packed function in C: "doors.scale"(x, by, y).
 *
 * x, y: float32 matrices of one shape on the CPU, with any strides and offset; by: a float.
 * Loading the library registers the function, nobody has to call anything. */
#include "tensor_arg.h"

static int scale(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  (void)self;
  (void)result; /* stays None */
  if (count != 3 || args[1].type_index != kTVMFFIFloat) {
    TVMFFIErrorSetRaisedFromCStr("TypeError", "doors.scale: expected (tensor, float, tensor)");
    return -1;
  }
  const DLTensor *x = tensor_arg(&args[0]), *y = tensor_arg(&args[2]);
  if (!is_float_matrix(x) || !is_float_matrix(y) || x->shape[0] != y->shape[0] ||
      x->shape[1] != y->shape[1]) {
    TVMFFIErrorSetRaisedFromCStr("ValueError",
                                 "doors.scale: x and y differ in shape or are no float32 matrices "
                                 "on the CPU; pass two of one shape");
    return -1;
  }
  const float by = (float)args[1].v_float64;
  const float* from = first_element(x);
  float* to = first_element(y);
  for (int64_t i = 0; i < x->shape[0]; ++i) {
    for (int64_t j = 0; j < x->shape[1]; ++j) {
      to[i * step(y, 0) + j * step(y, 1)] = by * from[i * step(x, 0) + j * step(x, 1)];
    }
  }
  return 0;
}

__attribute__((constructor)) static void register_scale(void) {
  const TVMFFIByteArray name = {"doors.scale", sizeof("doors.scale") - 1};
  TVMFFIObjectHandle function;
  if (TVMFFIFunctionCreate(NULL, scale, NULL, &function) == 0) {
    TVMFFIFunctionSetGlobal(&name, function, /*allow_override=*/1);
    TVMFFIObjectDecRef(function);
  }
}
