/*
 * ext_parallel_for in a process with TVM: as many threads as TVM is told to use, but the library's.
 *
 * A launch on TVM's own pool ends when each of its workers has run, and where another process has a
 * core, that takes as long as the system lets it: a network of 40 launches took nine times as long
 * beside one busy process on two cores.  The pool of workers.h waits for no worker that has not
 * begun.
 *
 * A launch takes one of the library's pools, and the first serves a lone caller.  Of callers at
 * once the second finds the second pool, with half as many threads, the third a third: together
 * they take few more than there are.  A pool is made by the first launch that takes it.
 *
 * A launch inside of a launch runs on its own thread.  A forked child has the records of its
 * parent's pools without their threads, and makes its own.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shares.h"
#include "tvm_threads.h"
#include "workers.h"

enum { POOLS = 16 };

typedef struct {
  _Alignas(SHARE_LINE) _Atomic pid_t taken_in; /* the process of a launch under way, or 0 */
  pid_t made_in;                               /* the process that has its threads */
  int32_t wanted;                              /* threads that it was last made for */
  ext_pool pool;
} shared_pool;

static shared_pool pools[POOLS];

static _Thread_local int inside; /* the thread runs a part of a launch */
static _Thread_local int known;  /* threads that TVM was told to use, when last asked; 0: not yet */

typedef struct {
  ext_loop items;
  int tasks;
} launch;

static void run_task(void* context, int32_t index) {
  launch* l = context;
  inside = 1;
  ext_run_shares(&l->items, index, l->tasks);
  inside = 0;
}

/* ------------------------------------------------------------------ pools */

static void stop(shared_pool* p) {
  ext_worker* workers = p->pool.workers;
  if (p->pool.started > 0) ext_pool_stop(&p->pool);
  free(workers);
  memset(&p->pool, 0, sizeof p->pool);
}

/* When the library is unloaded, or the process ends: threads must not run code that is gone. */
static void stop_all(void) {
  const pid_t process = getpid();
  for (int i = 0; i < POOLS; i++) {
    pid_t nobody = 0;
    if (pools[i].made_in != process) continue;
    if (!atomic_compare_exchange_strong(&pools[i].taken_in, &nobody, process)) continue;
    stop(&pools[i]); /* stays taken */
  }
}

/* Gives the pool `count` threads at least, or as many as it has where the system has no more. */
static void grow(shared_pool* p, pid_t process, int32_t count) {
  static _Atomic int is_registered;
  if (p->made_in != process) {
    memset(&p->pool, 0, sizeof p->pool); /* its threads are the parent's */
    p->made_in = process;
    p->wanted = 0;
  }
  if (count <= p->wanted) return;
  if (!atomic_exchange(&is_registered, 1)) atexit(stop_all);
  stop(p);
  p->wanted = count;
  ext_worker* workers = malloc((size_t)count * sizeof *workers);
  if (!workers) return;
  if (ext_pool_start(&p->pool, workers, count) == 0) return;
  free(workers);
  memset(&p->pool, 0, sizeof p->pool);
}

/* A pool that no launch has, for the calling one of this process; NULL if there is none.  A launch
 * of the parent's, which fork has cut off, holds nothing. */
static shared_pool* take(pid_t process, int* place) {
  for (*place = 0; *place < POOLS; ++*place) {
    shared_pool* p = &pools[*place];
    pid_t holder = atomic_load_explicit(&p->taken_in, memory_order_relaxed);
    if (holder == process) continue;
    if (atomic_compare_exchange_strong(&p->taken_in, &holder, process)) return p;
  }
  return NULL;
}

/* ------------------------------------------------------------------ launches */

static int run(shared_pool* p, launch* l) {
  if (l->tasks < 2) {
    run_task(l, 0);
  } else {
    ext_pool_run(&p->pool, l->tasks, run_task, l);
  }
  return atomic_load(&l->items.status);
}

int ext_parallel_for(int64_t n, int64_t grain, ext_range_body body, void* context) {
  if (n <= 0) return EXT_OK;
  if (grain < 1) grain = 1;
  if (n <= grain || inside) return body(context, 0, n);
  launch l = {.items = {.n = n, .grain = grain, .body = body, .context = context}, .tasks = 1};
  const int threads = known = ext_tvm_threads();
  if (threads < 2) return run(NULL, &l);
  const pid_t process = getpid();
  int place;
  shared_pool* p = take(process, &place);
  if (!p) return run(NULL, &l);
  const int32_t others = threads / (place + 1) - 1;
  if (others > 0) {
    grow(p, process, others);
    l.tasks = 1 + (others < p->pool.started ? others : p->pool.started);
  }
  const int status = run(p, &l);
  atomic_store_explicit(&p->taken_in, 0, memory_order_release);
  return status;
}

int ext_threads_of_library(void) {
  static _Atomic pid_t begun_in;
  const pid_t process = getpid();
  pid_t before = 0;
  if (inside) return 1;
  known = ext_tvm_threads();
  if (known > 1) atomic_compare_exchange_strong(&begun_in, &before, process);
  return before == 0 || before == process ? known : 1;
}

int ext_num_threads(void) {
  if (inside) return 1;
  if (known == 0) known = ext_tvm_threads();
  return known;
}
