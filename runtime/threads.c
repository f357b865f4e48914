/*
 * ext_parallel_for on TVM's thread pool.
 *
 * shares.h says which worker takes which items, tvm_pool.h what is known of the pool.
 *
 * TVM's pool refuses a launch from inside a launch; a nested call runs on its own thread.
 */
#include <unistd.h>

#include "shares.h"
#include "tvm_pool.h"

/* The head of TVMParallelGroupEnv in tvm/runtime/c_backend_api.h. */
typedef struct {
  void* sync_handle;
  int32_t num_task;
} group_env;

extern int TVMBackendParallelLaunch(int (*body)(int task, void* env, void* context), void* context,
                                    int num_task) __attribute__((weak, visibility("default")));

typedef struct {
  ext_loop items;
  _Atomic int workers;
} launch;

static _Thread_local int inside; /* the thread runs a part of a launch */

/* What the thread found of its pool, and in which process: a forked child has to look again. */
static _Thread_local struct {
  pid_t process;
  int is_usable;
  int size; /* workers of the last launch that had all */
} pool;

/* Threads that are in a launch of this library.  Each caller has a pool of its own: several at once
 * share the cores, where each with all workers would wait for those of the others.  A forked child
 * has none of the threads that its parent counted. */
static _Atomic int launching;
static _Atomic pid_t counted_in;

static int run_worker(int task, void* env, void* context) {
  launch* l = context;
  int workers = ((const group_env*)env)->num_task, was_inside = inside;
  if (task == 0) atomic_store(&l->workers, workers);
  inside = 1;
  ext_run_shares(&l->items, task, workers);
  inside = was_inside;
  return 0; /* a body's status travels in the loop: the pool knows only success and failure */
}

/* `tasks` workers take part; 0 stands for all, which tells how many these are. */
static int run(launch* l, int tasks) {
  int failed = TVMBackendParallelLaunch(run_worker, l, tasks);
  int workers = atomic_load(&l->workers);
  if (tasks == 0 && workers > 0) pool.size = workers;
  int status = atomic_load(&l->items.status);
  return status ? status : failed ? EXT_ERR_THREADS : EXT_OK;
}

/* The pool's size now, which others may have changed since the last launch: a launch of more tasks
 * ends in an exception.  0 if there are no threads to be had.  A pool without TVM's FFI beside it
 * is asked by an empty launch. */
static int workers_now(void) {
  int workers = ext_tvm_pool_size();
  if (workers != EXT_POOL_UNKNOWN) return workers > 0 ? workers : 0;
  launch empty = {.items = {.n = 0, .grain = 1}};
  return run(&empty, 0) == EXT_OK ? pool.size : 1;
}

static void look_at_pool(pid_t process) {
  pid_t before = atomic_exchange(&counted_in, process);
  if (before != 0 && before != process) atomic_store(&launching, 0);
  pool.is_usable = ext_tvm_pool_is_alive(process, pool.process);
  pool.process = process;
  pool.size = pool.is_usable ? workers_now() : 0;
  if (pool.size < 1) pool.is_usable = 0;
}

static int pool_is_usable(void) {
  if (inside || TVMBackendParallelLaunch == NULL) return 0;
  pid_t process = getpid();
  if (pool.process != process) look_at_pool(process);
  return pool.is_usable;
}

int ext_parallel_for(int64_t n, int64_t grain, ext_range_body body, void* context) {
  if (n <= 0) return EXT_OK;
  if (grain < 1) grain = 1;
  if (n <= grain || !pool_is_usable()) return body(context, 0, n);
  int others = atomic_fetch_add_explicit(&launching, 1, memory_order_relaxed), status;
  int tasks = others > 0 ? workers_now() / (others + 1) : 0;
  if (others > 0 && tasks < 2) {
    inside = 1;
    status = body(context, 0, n);
    inside = 0;
  } else {
    launch l = {.items = {.n = n, .grain = grain, .body = body, .context = context}};
    status = run(&l, tasks);
  }
  atomic_fetch_sub_explicit(&launching, 1, memory_order_relaxed);
  return status;
}

/* The pool's size is not part of TVM's C interface, but every launch tells it: later ones keep it
 * current when the pool is reconfigured. */
int ext_num_threads(void) {
  return pool_is_usable() ? pool.size : 1;
}
