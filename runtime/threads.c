/*
 * ext_parallel_for on TVM's thread pool.
 *
 * Items are claimed in chunks of `grain`.  Each worker of a launch first takes those of its own
 * share, then what is left of the others', so that a worker whose core is busy elsewhere takes
 * fewer.  As shares are ranges, and the same in every launch, a worker mostly finds in its own L2
 * the rows of an image that it computed in the launch before.
 *
 * TVM's pool refuses a launch from inside a launch; a nested call runs on its own thread.
 */
#include <stdatomic.h>
#include <sys/types.h>
#include <unistd.h>

#include "kernels/public.h"

/* The head of TVMParallelGroupEnv in tvm/runtime/c_backend_api.h. */
typedef struct {
  void* sync_handle;
  int32_t num_task;
} group_env;

extern int TVMBackendParallelLaunch(int (*body)(int task, void* env, void* context), void* context,
                                    int num_task) __attribute__((weak, visibility("default")));

enum { MOST_SHARES = 16, LINE = 64 };

typedef struct {
  _Alignas(LINE) _Atomic int64_t taken; /* chunks of the share */
} share;

typedef struct {
  share shares[MOST_SHARES];
  _Atomic int status;
  _Atomic int workers;
  int64_t n, grain;
  ext_range_body body;
  void* context;
} loop;

static _Thread_local int inside;    /* the thread runs a part of a launch */
static _Thread_local int pool_size; /* workers of this thread's last launch; 0 = not known yet */

/* A forked child has the memory of its parent's pool, but not the pool's threads: a launch there
 * would wait for ever, so a child runs serially what the parent had loaded. */
static pid_t loaded_in;

__attribute__((constructor)) static void remember_process(void) {
  loaded_in = getpid();
}

static int pool_is_usable(void) {
  return !inside && TVMBackendParallelLaunch != NULL && getpid() == loaded_in;
}

/* Runs what is left of share `index` of `count`. */
static void run_share(loop* l, int index, int count) {
  int64_t chunks = (l->n + l->grain - 1) / l->grain;
  int64_t first = index * chunks / count, past = (index + 1) * chunks / count;
  for (;;) {
    if (atomic_load_explicit(&l->status, memory_order_relaxed)) return;
    int64_t chunk =
        first + atomic_fetch_add_explicit(&l->shares[index].taken, 1, memory_order_relaxed);
    if (chunk >= past) return;
    int64_t begin = chunk * l->grain;
    int64_t end = l->n - begin < l->grain ? l->n : begin + l->grain;
    int status = l->body(l->context, begin, end), none = EXT_OK;
    if (status) atomic_compare_exchange_strong(&l->status, &none, status);
  }
}

static int run_worker(int task, void* env, void* context) {
  loop* l = context;
  int workers = ((const group_env*)env)->num_task;
  if (task == 0) atomic_store(&l->workers, workers);
  int count = workers < MOST_SHARES ? workers : MOST_SHARES, was_inside = inside;
  inside = 1;
  for (int i = 0; i < count; i++) run_share(l, (task + i) % count, count);
  inside = was_inside;
  return 0; /* a body's status travels in the loop: the pool knows only success and failure */
}

static int launch(loop* l) {
  int failed = TVMBackendParallelLaunch(run_worker, l, 0);
  int workers = atomic_load(&l->workers);
  if (workers > 0) pool_size = workers;
  int status = atomic_load(&l->status);
  return status ? status : failed ? EXT_ERR_THREADS : EXT_OK;
}

int ext_parallel_for(int64_t n, int64_t grain, ext_range_body body, void* context) {
  if (n <= 0) return EXT_OK;
  if (grain < 1) grain = 1;
  if (n <= grain || !pool_is_usable()) return body(context, 0, n);
  loop l = {.n = n, .grain = grain, .body = body, .context = context};
  return launch(&l);
}

/* The pool's size is not part of TVM's C interface, but every launch tells it.  An empty launch
 * finds it the first time; later launches keep it current when the pool is reconfigured. */
int ext_num_threads(void) {
  if (!pool_is_usable()) return 1;
  if (pool_size == 0) {
    loop empty = {.n = 0, .grain = 1};
    if (launch(&empty) != EXT_OK) return 1;
  }
  return pool_size > 0 ? pool_size : 1;
}
