/* The built-in convolution, epilogue included, as the packed function benchmarks.conv2d.
 *
 * Arguments: input [N, H, W, C], packed weight, padded bias, residual and output [N, H', W', C'] as
 * tensors; whether the weight is a depthwise one, whether there is a residual; kind, alpha and beta
 * of the activations before and after it; the fields of ext_conv2d_params in their order. */
#include <tvm/ffi/c_api.h>

#include "ext_kernels.h"

enum { INPUT, WEIGHT, BIAS, RESIDUAL, OUTPUT, DEPTHWISE, HAS_RESIDUAL, BEFORE, AFTER = BEFORE + 3 };
enum { SIZES = AFTER + 3, COUNT = SIZES + (int)(sizeof(ext_conv2d_params) / sizeof(int64_t)) };

/* Tensors are borrowed: TIR calls this. */
static float* data_of(const TVMFFIAny* arg) {
  const DLTensor* t = arg->v_ptr;
  return (float*)((char*)t->data + t->byte_offset);
}

static ext_activation activation_of(const TVMFFIAny* arg) {
  ext_activation f = {(ext_unary_kind)arg[0].v_int64, (float)arg[1].v_float64,
                      (float)arg[2].v_float64};
  return f;
}

static int conv2d(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  (void)self;
  (void)result;
  if (count != COUNT) {
    TVMFFIErrorSetRaisedFromCStr("TypeError", "benchmarks.conv2d: wrong number of arguments");
    return -1;
  }
  union {
    ext_conv2d_params params;
    int64_t sizes[COUNT - SIZES];
  } p;
  for (int i = 0; i < COUNT - SIZES; ++i) p.sizes[i] = args[SIZES + i].v_int64;
  ext_epilogue e = {.bias = data_of(&args[BIAS]),
                    .before = activation_of(&args[BEFORE]),
                    .after = activation_of(&args[AFTER])};
  if (args[HAS_RESIDUAL].v_int64) {
    e.residual = data_of(&args[RESIDUAL]);
    e.residual_stride = p.params.out_c;
  }
  int (*kernel)(const ext_conv2d_params*, const float*, const float*, const ext_epilogue*, float*) =
      args[DEPTHWISE].v_int64 ? ext_depthwise_conv2d : ext_conv2d;
  int status =
      kernel(&p.params, data_of(&args[INPUT]), data_of(&args[WEIGHT]), &e, data_of(&args[OUTPUT]));
  if (status) TVMFFIErrorSetRaisedFromCStr("RuntimeError", ext_status_string(status));
  return status ? -1 : 0;
}

/* The code that calls it and this object are one library: loading it is enough. */
__attribute__((constructor)) static void register_conv2d(void) {
  const TVMFFIByteArray name = {"benchmarks.conv2d", sizeof("benchmarks.conv2d") - 1};
  TVMFFIObjectHandle function;
  if (TVMFFIFunctionCreate(NULL, conv2d, NULL, &function) == 0) {
    TVMFFIFunctionSetGlobal(&name, function, /*allow_override=*/1);
    TVMFFIObjectDecRef(function);
  }
}
