/*
 * instance.h - one instance of a model: the memory of one run, and who runs its tasks.
 *
 * Kernels ask for scratch memory and for tasks without naming an instance.  A thread-local pointer
 * tells which one the calling thread runs a part of: either the run's own calls of kernels, or one
 * task of a launch.  Each of these parts has a stack of scratch memory of its own.
 */
#ifndef EXT_INSTANCE_H_
#define EXT_INSTANCE_H_

#include <stdatomic.h>
#include <sys/types.h>

#include "../include/ext_standalone.h"
#include "heap.h"
#include "pool.h"

/* Scratch memory, last allocated, first freed.  While create measures how deep it gets, `base` is
 * NULL and every piece is allocated by itself. */
typedef struct {
  char* base;
  size_t size, used, deepest;
} ext_stack;

/* What runs: the calls of kernels (`inside` 0), or a task of a launch (1). */
typedef struct {
  _Alignas(64) ext_instance* instance;
  ext_stack stack;
  int inside;
} ext_part;

struct ext_instance {
  const ext_model* model;
  ext_heap heap;
  char* arena;
  char* scratch; /* of all stacks */
  int32_t tasks; /* of a launch */
  byoc_parallel_for parallel_for;
  void* pool;    /* for parallel_for */
  pid_t process; /* that has the threads of `threads` */
  int serial;    /* tasks run one after another, on the calling thread */
  _Atomic int running;
  char message[512];
  ext_part calls;    /* of the run itself */
  ext_part* parts;   /* [tasks] */
  ext_pool* threads; /* of the instance's own, or NULL */
};

/* Runs the model on checked buffers as a part of the calling thread. */
int ext_run_here(ext_instance* instance, const void* const* inputs, void* const* outputs);

#endif /* EXT_INSTANCE_H_ */
