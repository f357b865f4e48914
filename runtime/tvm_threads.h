/*
 * How many threads TVM is told to use.
 *
 * Each thread that calls into TVM has a pool of its own, which TVM makes when it is first asked for
 * anything, and whose size byoc.load, the environment and TVM's own functions set.
 */
#ifndef EXT_TVM_THREADS_H_
#define EXT_TVM_THREADS_H_

/* Threads that the calling thread's pool may use; 1 where TVM cannot start them, and in a process
 * without TVM. */
int ext_tvm_threads(void);

#endif /* EXT_TVM_THREADS_H_ */
