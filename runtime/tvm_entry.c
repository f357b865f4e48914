/* The functions of ext_tvm_entry.h, compiled once: regions that TVM calls are linked with them. */
#include "tvm_types.h"
#define EXT_ENTRY_APART
#include "include/ext_tvm_entry.h"
#include "include/ext_tvm_entry_functions.h"
