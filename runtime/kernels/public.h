/* The public header as the runtime's own sources include it.  The shared library (EXT_SHARED)
 * exports the public functions; in the archive they stay hidden, so that two model libraries in
 * one process never bind to each other's kernels. */
#ifndef EXT_PUBLIC_H_
#define EXT_PUBLIC_H_

#ifdef EXT_SHARED
#pragma GCC visibility push(default)
#endif
#include "../include/ext_kernels.h"
#ifdef EXT_SHARED
#pragma GCC visibility pop
#endif

#endif /* EXT_PUBLIC_H_ */
