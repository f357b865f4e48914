#include "kernels/public.h"

const char* ext_status_string(int status) {
  switch (status) {
    case EXT_OK: return "done";
    case EXT_ERR_MEMORY: return "scratch memory could not be allocated";
    case EXT_ERR_ARGUMENT: return "a parameter block that this kernel does not support";
    case EXT_ERR_THREADS: return "the thread pool reported a failure";
    case EXT_ERR_INDEX: return "an index lies outside of the axis that it indexes";
    default: return "unknown status";
  }
}
