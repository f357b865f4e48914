/*
 * workers.h - threads for one launch after another.
 */
#ifndef EXT_WORKERS_H_
#define EXT_WORKERS_H_

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "include/byoc_model.h"

typedef struct ext_pool ext_pool;

typedef struct {
  ext_pool* pool;
  int32_t index; /* of the task that it runs */
  pthread_t thread;
} ext_worker;

/* `gate` is the number of the launch in the upper half; below it GATE_OPEN, while workers may
 * begin, and the number of workers inside. */
struct ext_pool {
  _Alignas(64) _Atomic uint64_t gate;
  _Alignas(64) _Atomic int sleepers; /* workers that wait for `wake` */
  _Atomic int waiting;               /* the launching thread waits for `done` */
  _Atomic int stop;
  pthread_mutex_t mutex;
  pthread_cond_t wake, done;
  byoc_task task;
  void* context;
  int32_t tasks, started;
  ext_worker* workers; /* [started] */
};

/* Starts `count` threads, whose records are `workers` [count].  Returns 0, or an errno with no
 * thread left. */
int ext_pool_start(ext_pool* pool, ext_worker* workers, int32_t count);

/* A byoc_parallel_for: runs task 0 on the calling thread, and those others whose workers come
 * before it is done.  Hence tasks must share their work, as those of shares.h do. */
int ext_pool_run(void* pool, int32_t tasks, byoc_task task, void* context);

/* Ends the threads. */
void ext_pool_stop(ext_pool* pool);

#endif /* EXT_WORKERS_H_ */
