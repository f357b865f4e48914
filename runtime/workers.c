/*
 * A thread pool for one launch after another.
 *
 * Workers that have nothing to do look for the next launch for a while, as launches of one run
 * follow each other within microseconds, and then sleep.  A launch is a gate: it opens, workers
 * that come in time go through and share the work, the launching thread works as well, closes the
 * gate and waits for those inside.  A worker whose core is busy elsewhere is so never waited for.
 */
#define _POSIX_C_SOURCE 200809L
#include "workers.h"

#include <sched.h>
#include <signal.h>
#include <time.h>

/* Libraries for TVM's runtime call these by the versions that glibc has had from the beginning: by
 * those of 2.34, into which it moved them from libpthread, no older system could load what a newer
 * one compiled. */
#if defined(EXT_FIRST_GLIBC) && defined(__GLIBC__)
#if defined(__x86_64__)
#define FIRST "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define FIRST "GLIBC_2.17"
#endif
#ifdef FIRST
__asm__(".symver pthread_create, pthread_create@" FIRST);
__asm__(".symver pthread_join, pthread_join@" FIRST);
__asm__(".symver pthread_sigmask, pthread_sigmask@" FIRST);
#endif
#endif

static const uint64_t GATE_OPEN = UINT64_C(1) << 31, GATE_INSIDE = (UINT64_C(1) << 31) - 1;

/* Looks between two readings of the clock, about a microsecond. */
enum { LOOKS = 32 };
/* Nanoseconds of looking that take a thread's own time alone, longer than parts of a launch mostly
 * differ by and launches lie apart.  Then it lets others have the core between looks: beside busy
 * processes a yield costs milliseconds, and where threads of the pool share a core it saves them.
 */
static const int64_t KEEP_FOR = 30000;
/* Nanoseconds of looking before a thread sleeps: longer than the serial parts of a run. */
static const int64_t LOOK_FOR = 200000;

static uint32_t launch_of(uint64_t gate) {
  return (uint32_t)(gate >> 32);
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory"); /* some ten cycles; `yield` takes none on most cores */
#endif
}

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A moment between two looks, which `look` counts; 1 when it has been long enough. */
static int is_tired(int64_t* since, int* look) {
  relax();
  if (++*look % LOOKS) return 0;
  const int64_t at = now();
  if (*look == LOOKS) *since = at;
  if (at - *since > KEEP_FOR) sched_yield();
  return at - *since > LOOK_FOR;
}

/* Returns when there is a launch other than `seen`, or the pool stops. */
static void await_launch(ext_pool* p, uint32_t seen) {
  int64_t since = 0;
  int look = 0;
  while (launch_of(atomic_load_explicit(&p->gate, memory_order_acquire)) == seen) {
    if (!is_tired(&since, &look)) continue;
    pthread_mutex_lock(&p->mutex);
    /* Either the launching thread sees the sleeper, or this one sees the launch: both are
     * sequentially consistent. */
    atomic_fetch_add(&p->sleepers, 1);
    while (launch_of(atomic_load(&p->gate)) == seen) pthread_cond_wait(&p->wake, &p->mutex);
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->mutex);
  }
}

static void leave(ext_pool* p) {
  uint64_t before = atomic_fetch_sub(&p->gate, 1);
  if ((before & (GATE_OPEN | GATE_INSIDE)) != 1 || !atomic_load(&p->waiting)) return;
  pthread_mutex_lock(&p->mutex);
  pthread_cond_signal(&p->done);
  pthread_mutex_unlock(&p->mutex);
}

static void* work(void* argument) {
  const ext_worker* w = argument;
  ext_pool* p = w->pool;
  uint32_t seen = 0;
  for (;;) {
    await_launch(p, seen);
    if (atomic_load(&p->stop)) return NULL;
    uint64_t gate = atomic_load(&p->gate);
    seen = launch_of(gate);
    while ((gate & GATE_OPEN) && launch_of(gate) == seen) {
      if (!atomic_compare_exchange_weak(&p->gate, &gate, gate + 1)) continue;
      if (w->index < p->tasks) p->task(p->context, w->index);
      leave(p);
      break;
    }
  }
}

/* Begins a launch, or an end that looks like one. */
static void turn(ext_pool* p, uint64_t open) {
  uint64_t next = (uint64_t)(launch_of(atomic_load(&p->gate)) + 1) << 32;
  atomic_store(&p->gate, next | open);
  if (atomic_load(&p->sleepers) == 0) return;
  pthread_mutex_lock(&p->mutex);
  pthread_cond_broadcast(&p->wake);
  pthread_mutex_unlock(&p->mutex);
}

static void await_workers(ext_pool* p) {
  int64_t since = 0;
  int look = 0;
  while (atomic_load_explicit(&p->gate, memory_order_acquire) & GATE_INSIDE) {
    if (!is_tired(&since, &look)) continue;
    pthread_mutex_lock(&p->mutex);
    atomic_store(&p->waiting, 1);
    while (atomic_load(&p->gate) & GATE_INSIDE) pthread_cond_wait(&p->done, &p->mutex);
    atomic_store(&p->waiting, 0);
    pthread_mutex_unlock(&p->mutex);
  }
}

int ext_pool_run(void* pool, int32_t tasks, byoc_task task, void* context) {
  ext_pool* p = pool;
  p->task = task;
  p->context = context;
  p->tasks = tasks;
  turn(p, GATE_OPEN);
  task(context, 0);
  atomic_fetch_and(&p->gate, ~GATE_OPEN);
  await_workers(p);
  return 0;
}

int ext_pool_start(ext_pool* p, ext_worker* workers, int32_t count) {
  p->workers = workers;
  pthread_mutex_init(&p->mutex, NULL);
  pthread_cond_init(&p->wake, NULL);
  pthread_cond_init(&p->done, NULL);
  /* The program's signals are for its own threads. */
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int problem = 0;
  for (; p->started < count && !problem; p->started += !problem) {
    workers[p->started] = (ext_worker){.pool = p, .index = p->started + 1};
    problem = pthread_create(&workers[p->started].thread, NULL, work, &workers[p->started]);
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (problem) ext_pool_stop(p);
  return problem;
}

void ext_pool_stop(ext_pool* p) {
  atomic_store(&p->stop, 1);
  turn(p, 0);
  for (int32_t i = 0; i < p->started; i++) pthread_join(p->workers[i].thread, NULL);
  pthread_cond_destroy(&p->done);
  pthread_cond_destroy(&p->wake);
  pthread_mutex_destroy(&p->mutex);
}
