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
  void** kept;   /* [2][states]: the buffers of each, of the last run and the next; or NULL */
  int turn;      /* which of the two has the states */
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

/* Runs the model on checked buffers as a part of the calling thread.  What the states become is in
 * the other buffers; those that are written in place have no other one. */
int ext_run_here(ext_instance* instance, const void* const* inputs, void* const* outputs);

/* One caller at a time: 0 where another one is at it. */
static inline int ext_instance_enter(ext_instance* instance) {
  return !atomic_exchange_explicit(&instance->running, 1, memory_order_acquire);
}

static inline void ext_instance_leave(ext_instance* instance) {
  atomic_store_explicit(&instance->running, 0, memory_order_release);
}

/* Bytes of buffers that lie one behind the other, each at a multiple of EXT_ALIGN. */
size_t ext_bytes_of(const byoc_tensor* tensors, int32_t count);

/* The first or second buffers of all states; NULL where the model has none. */
static inline void** ext_states_of(const ext_instance* instance, int turn) {
  return instance->kept ? instance->kept + turn * instance->model->state_count : NULL;
}

/* Takes memory for the states, all zeros; how much in `bytes`.  0 where the heap has too little. */
int ext_states_take(ext_instance* instance, size_t* bytes);
void ext_states_copy(ext_instance* to, const ext_instance* from);

/* Makes all states zeros. */
void ext_states_clear(ext_instance* instance);

#endif /* EXT_INSTANCE_H_ */
