/*
 * What a library can learn of TVM's thread pool before it launches anything on it.
 *
 * Each thread has a pool of its own, which TVM makes at its first use.  A launch on a pool that
 * cannot serve it does not return an error: it throws a C++ exception through C frames (more tasks
 * than workers, no thread to be had), or never returns (a forked child has the memory of the pool,
 * but not its threads).  TVM's FFI turns exceptions into return codes, so the pool is made and
 * asked through the FFI.
 *
 * Whether an inherited pool lives cannot be asked.  Only the thread that forked can have one, and
 * it is the child's main thread.  There the pool lives if looking at it made it, which the number
 * of threads of the process tells, or if `byoc.load`, which sizes pools, made it in this process
 * (byoc/deploy/tvm_runtime.py).
 */
#ifndef EXT_TVM_POOL_H_
#define EXT_TVM_POOL_H_

#include <sys/types.h>

enum { EXT_POOL_UNKNOWN = 0, EXT_POOL_FAILED = -1 };

/* Workers of the calling thread's pool, which is made if need be; EXT_POOL_FAILED where that fails,
 * and EXT_POOL_UNKNOWN in a process without TVM's FFI. */
int ext_tvm_pool_size(void);

/* Whether launches on the calling thread's pool return.  `used_in` is another process in which this
 * thread used its pool, or 0. */
int ext_tvm_pool_is_alive(pid_t process, pid_t used_in);

#endif /* EXT_TVM_POOL_H_ */
