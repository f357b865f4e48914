/*
 * ext_tvm_entry_functions.h - the functions of ext_tvm_entry.h, which tells when they are compiled.
 */
#ifndef EXT_TVM_ENTRY_FUNCTIONS_H_
#define EXT_TVM_ENTRY_FUNCTIONS_H_

#include <stdio.h>

EXT_ENTRY int ext_raise(const char* kind, const char* message) {
  TVMFFIErrorSetRaisedFromCStr(kind, message);
  return -1;
}

/* Writes "[1, 3, 224, 224]" and returns text. */
static inline const char* ext_shape_text(char* text, size_t size, const int64_t* shape, int ndim) {
  size_t used = (size_t)snprintf(text, size, "[");
  for (int i = 0; i < ndim && used < size; ++i) {
    used += (size_t)snprintf(text + used, size - used, i ? ", %lld" : "%lld", (long long)shape[i]);
  }
  if (used < size) snprintf(text + used, size - used, "]");
  return text;
}

/* A kernel failed: raises RuntimeError naming region and operation. */
EXT_ENTRY int ext_raise_status(const char* region, const char* operation, int status) {
  char message[512];
  snprintf(message, sizeof(message), "%s: %s failed: %s", region, operation,
           ext_status_string(status));
  return ext_raise("RuntimeError", message);
}

/* A kernel of another library failed: raises RuntimeError naming it and the composite. */
EXT_ENTRY int ext_raise_library(const char* region, const char* library, const char* composite,
                                int status, const char* text) {
  char message[640];
  snprintf(message, sizeof(message),
           "%s: library %s failed on %s: status %d (%s); choose another library for it", region,
           library, composite, status, text == NULL ? "no message" : text);
  return ext_raise("RuntimeError", message);
}

/* The inputs do not fit the network: an extent inside it would be below 0.  `sizes` would help:
 * "larger" or "smaller" ones. */
EXT_ENTRY int ext_raise_negative(const char* region, const char* extent, int64_t value,
                                 const char* sizes) {
  char message[256];
  snprintf(message, sizeof(message),
           "%s: extent %.64s inside the network would be %lld; pass %s inputs", region, extent,
           (long long)value, sizes);
  return ext_raise("ValueError", message);
}

EXT_ENTRY int ext_is_contiguous(const DLTensor* t) {
  int64_t expected = 1;
  if (t->strides == NULL) return 1;
  for (int i = 0; i < t->ndim; ++i) {
    if (t->shape[i] == 0) return 1; /* any strides reach all of its elements */
  }
  for (int i = t->ndim - 1; i >= 0; --i) {
    if (t->shape[i] != 1 && t->strides[i] != expected) return 0;
    expected *= t->shape[i];
  }
  return 1;
}

/* The elements of the shape that is the first argument; -1 with an error raised where it is none.
 */
EXT_ENTRY int ext_take_sizes(const char* region, const TVMFFIAny* args, int32_t n, int count,
                             int64_t* sizes) {
  const TVMFFIShapeCell* cell = NULL;
  if (n > 0 && args[0].type_index == kTVMFFIShape)
    cell = (const TVMFFIShapeCell*)((const char*)args[0].v_obj + sizeof(TVMFFIObject));
  if (cell == NULL || cell->size != (size_t)count) {
    char message[256];
    snprintf(message, sizeof(message), "%s: argument 0 is no shape of %d sizes; pass one", region,
             count);
    return ext_raise("TypeError", message);
  }
  for (int i = 0; i < count; ++i) sizes[i] = cell->data[i];
  return 0;
}

/* Checks one argument and gives its data pointer; -1 with an error raised on a mismatch. */
EXT_ENTRY int ext_check_tensor(const char* region, const TVMFFIAny* arg,
                               const ext_tensor_spec* spec, void** data) {
  char message[768], expected[192], found[192];
  const DLTensor* t = ext_tensor_of(arg);
  if (t == NULL) {
    snprintf(message, sizeof(message), "%s: %s is not a tensor (FFI type %d); pass a tensor",
             region, spec->name, (int)arg->type_index);
    return ext_raise("TypeError", message);
  }
  if (t->device.device_type != kDLCPU) {
    snprintf(message, sizeof(message), "%s: %s is on device type %d; pass a CPU tensor", region,
             spec->name, (int)t->device.device_type);
    return ext_raise("ValueError", message);
  }
  if (t->dtype.code != spec->code || t->dtype.bits != spec->bits || t->dtype.lanes != 1) {
    snprintf(message, sizeof(message), "%s: %s has dtype code %d with %d bits x %d; expected %s",
             region, spec->name, (int)t->dtype.code, (int)t->dtype.bits, (int)t->dtype.lanes,
             spec->dtype);
    return ext_raise("TypeError", message);
  }
  for (int i = 0; i < spec->ndim; ++i) {
    if (spec->shape[i] < 0) return ext_raise_negative(region, spec->name, spec->shape[i], "larger");
  }
  int same = t->ndim == spec->ndim;
  for (int i = 0; same && i < spec->ndim; ++i) same = t->shape[i] == spec->shape[i];
  if (!same) {
    snprintf(message, sizeof(message), "%s: %s has shape %s; expected %s", region, spec->name,
             ext_shape_text(found, sizeof(found), t->shape, t->ndim),
             ext_shape_text(expected, sizeof(expected), spec->shape, spec->ndim));
    return ext_raise("ValueError", message);
  }
  if (!ext_is_contiguous(t)) {
    snprintf(message, sizeof(message), "%s: %s is not contiguous; pass a contiguous copy", region,
             spec->name);
    return ext_raise("ValueError", message);
  }
  *data = (char*)t->data + t->byte_offset;
  if (((uintptr_t)*data & (spec->bits / 8 - 1)) != 0) {
    snprintf(message, sizeof(message), "%s: %s is not aligned to %d bytes; pass an aligned copy",
             region, spec->name, spec->bits / 8);
    return ext_raise("ValueError", message);
  }
  return 0;
}

/* Checks every argument of a call. */
EXT_ENTRY int ext_check_call(const char* region, const TVMFFIAny* args, int32_t n,
                             const ext_tensor_spec* specs, int32_t expected, void** data) {
  char message[256];
  if (ext_isa_error() != NULL) return ext_raise("RuntimeError", ext_isa_error());
  if (n != expected) {
    snprintf(message, sizeof(message), "%s: got %d arguments; expected %d (inputs, then outputs)",
             region, (int)n, (int)expected);
    return ext_raise("TypeError", message);
  }
  for (int i = 0; i < n; ++i) {
    if (ext_check_tensor(region, &args[i], &specs[i], &data[i]) != 0) return -1;
  }
  return 0;
}

#endif /* EXT_TVM_ENTRY_FUNCTIONS_H_ */
