/* The public header as the runtime's own sources include it.  The shared library exports the public
 * functions.  Of those in the archive, whoever links it makes them local
 * (codegen_cc/link/toolchain.py), so that two model libraries in one process never bind to each
 * other's kernels. */
#ifndef EXT_PUBLIC_H_
#define EXT_PUBLIC_H_

#pragma GCC visibility push(default)
#include "../include/ext_kernels.h"
#pragma GCC visibility pop

#endif /* EXT_PUBLIC_H_ */
