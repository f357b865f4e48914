#include "kernels/public.h"

const char* ext_status_string(int status) {
  switch (status) {
    case EXT_OK: return "done";
    case EXT_ERR_MEMORY: return "scratch memory could not be allocated";
    case EXT_ERR_ARGUMENT: return "a parameter block that this kernel does not support";
    case EXT_ERR_THREADS: return "the thread pool reported a failure";
    default: return "unknown status";
  }
}
