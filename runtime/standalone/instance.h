/*
 * instance.h - one instance of a model: the memory of one run, and who runs its tasks.
 *
 * Kernels ask for scratch memory and for tasks without naming an instance.  A thread-local pointer
 * tells which one the calling thread runs a part of: either the run's own calls of kernels, or one
 * task of a launch.  Each of these parts has a stack of scratch memory of its own.
 */
#ifndef EXT_INSTANCE_H_
#define EXT_INSTANCE_H_

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "../include/ext_standalone.h"
#include "../workers.h"
#include "heap.h"

/* Scratch memory, last allocated, first freed.  What `base` has no room for is allocated by itself
 * (`outside`) where the instance may: while create measures how deep stacks get, and where sizes
 * change from run to run. */
typedef struct {
  char* base;
  size_t size, used, outside, deepest;
} ext_stack;

/* The memory of the states: `buffers` of the last run and the next, [2][states], which are one
 * where a state is written in place or grows; how large they are, and the extents that states had
 * when it was taken. */
typedef struct {
  void** buffers;
  size_t* bytes;
  int64_t* extents;
} ext_kept;

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
  size_t arena_bytes;
  char* scratch;        /* of all stacks */
  int grows;            /* scratch memory may be taken in a run */
  ext_kept* kept;       /* the memory of the states, or NULL */
  int turn;             /* which of the two buffers of each has it */
  int begun;            /* states are no longer those of the beginning */
  int64_t capacity;     /* rows that states can have */
  int64_t* sizes;       /* of the axes, and the rows that states have; or NULL: there are no axes */
  int sized;            /* the caller has given sizes */
  ext_needs needs;      /* of the next run */
  byoc_tensor* tensors; /* inputs, outputs and states with these sizes, or NULL: the model's */
  int32_t tasks;        /* of a launch */
  byoc_parallel_for parallel_for;
  void* pool;                 /* for parallel_for */
  pid_t process;              /* that has the threads of `threads` */
  int serial;                 /* tasks run one after another, on the calling thread */
  pthread_mutex_t heap_mutex; /* of scratch memory that parts take in a run */
  _Atomic int running;
  char message[512];
  ext_part calls;      /* of the run itself */
  ext_part* parts;     /* [tasks] */
  ext_pool* threads;   /* of the instance's own, or NULL */
  ext_worker* workers; /* for these */
};

/* Runs the model on checked buffers as a part of the calling thread.  What the states become is in
 * the other buffers; those that are written in place have no other one. */
int ext_run_here(ext_instance* instance, const void* const* inputs, void* const* outputs);

/* Finds what a run with the instance's sizes needs, as a part of the calling thread. */
int ext_measure_here(ext_instance* instance);

/* One caller at a time: 0 where another one is at it. */
static inline int ext_instance_enter(ext_instance* instance) {
  return !atomic_exchange_explicit(&instance->running, 1, memory_order_acquire);
}

static inline void ext_instance_leave(ext_instance* instance) {
  atomic_store_explicit(&instance->running, 0, memory_order_release);
}

/* Cores that the process may use, hyper-threads not counted, as far as it gets time for them: at
 * least 1. */
int32_t ext_core_count(void);
/* The same number where the process's control groups do not limit its time to fewer than `most`
 * cores.  `root` stands before the system's paths, for tests. */
int32_t ext_quota_of_cores(const char* root, int32_t most);

/* Bytes of buffers that lie one behind the other, each at a multiple of EXT_ALIGN. */
size_t ext_bytes_of(const byoc_tensor* tensors, int32_t count);

/* What a run takes, gives and keeps, with the instance's sizes. */
static inline const byoc_tensor* ext_inputs_of(const ext_instance* m) {
  return m->tensors ? m->tensors : m->model->inputs;
}

static inline const byoc_tensor* ext_outputs_of(const ext_instance* m) {
  return m->tensors ? m->tensors + m->model->input_count : m->model->outputs;
}

static inline const byoc_tensor* ext_states_of(const ext_instance* m) {
  const int32_t before = m->model->input_count + m->model->output_count;
  return m->tensors ? m->tensors + before : m->model->states;
}

/* The first or second buffers of all states; NULL where the model has none. */
static inline void** ext_buffers_of(const ext_instance* m, int turn) {
  return m->kept ? m->kept->buffers + turn * m->model->state_count : NULL;
}

/* Takes memory for the states, all zeros but for those that grow; how much in `bytes`.  0 where the
 * heap has too little. */
int ext_states_take(ext_instance* instance, size_t* bytes);

/* Makes sure that the states have memory of the instance's sizes. */
byoc_status ext_states_fit(ext_instance* instance);

/* Takes over what a run left. */
void ext_states_advance(ext_instance* instance);

/* Gives `to` the states of another instance; it has to have memory for them. */
void ext_states_copy(ext_instance* to, const ext_instance* from);

/* Makes all states zeros; those that grow have no rows. */
void ext_states_clear(ext_instance* instance);

/* Bytes of what an instance knows of its sizes, and where that begins to lie. */
size_t ext_sizes_bytes(const ext_model* model);
void ext_sizes_lay_out(ext_instance* instance, void* memory);

/* Finds what the next run needs, and how large its tensors are: an error of the sizes. */
byoc_status ext_sizes_measure(ext_instance* instance);

/* Room for the rows of the next run, in the states that grow. */
byoc_status ext_sizes_have_room(ext_instance* instance);

/* Keeps a message of an instance, and gives back the status. */
__attribute__((format(printf, 3, 4))) byoc_status ext_instance_fail(ext_instance* instance,
                                                                    byoc_status status,
                                                                    const char* format, ...);

#endif /* EXT_INSTANCE_H_ */
