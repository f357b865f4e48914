/*
 * ext_parallel_for on TVM's thread pool.
 *
 * shares.h says which worker takes which items.
 *
 * TVM's pool refuses a launch from inside a launch; a nested call runs on its own thread.
 */
#include <sys/types.h>
#include <unistd.h>

#include "shares.h"

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

static _Thread_local int inside;    /* the thread runs a part of a launch */
static _Thread_local int pool_size; /* workers of this thread's last launch; 0 = not known yet */

/* Threads that are in a launch of this library.  Each caller has a pool of its own: several at once
 * share the cores, where each with all workers would wait for those of the others. */
static _Atomic int launching;

/* A forked child has the memory of its parent's pool, but not the pool's threads: a launch there
 * would wait for ever, so a child runs serially what the parent had loaded. */
static pid_t loaded_in;

__attribute__((constructor)) static void remember_process(void) {
  loaded_in = getpid();
}

static int pool_is_usable(void) {
  return !inside && TVMBackendParallelLaunch != NULL && getpid() == loaded_in;
}

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
  if (tasks == 0 && workers > 0) pool_size = workers;
  int status = atomic_load(&l->items.status);
  return status ? status : failed ? EXT_ERR_THREADS : EXT_OK;
}

int ext_parallel_for(int64_t n, int64_t grain, ext_range_body body, void* context) {
  if (n <= 0) return EXT_OK;
  if (grain < 1) grain = 1;
  if (n <= grain || !pool_is_usable()) return body(context, 0, n);
  int others = atomic_fetch_add_explicit(&launching, 1, memory_order_relaxed), status;
  int tasks = others > 0 ? ext_num_threads() / (others + 1) : 0;
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

/* The pool's size is not part of TVM's C interface, but every launch tells it.  An empty launch
 * finds it the first time; later launches keep it current when the pool is reconfigured. */
int ext_num_threads(void) {
  if (!pool_is_usable()) return 1;
  if (pool_size == 0) {
    launch empty = {.items = {.n = 0, .grain = 1}};
    if (run(&empty, 0) != EXT_OK) return 1;
  }
  return pool_size > 0 ? pool_size : 1;
}
