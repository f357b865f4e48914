/*
 * runtime/threads.c for ThreadSanitizer, on a stand-in for TVM's pool: callers at once, whose
 * launches share the workers, launches inside of launches, bodies that fail, threads that end.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "ext_kernels.h"

enum { N = 4096, CALLERS = 4, TURNS = 100, WORKERS = 3 };

typedef struct {
  void* sync_handle;
  int32_t num_task;
} group_env;

typedef int (*task_body)(int task, void* env, void* context);

typedef struct {
  task_body body;
  void* context;
  group_env* env;
  int task, status;
} one_task;

static void* run_task(void* argument) {
  one_task* t = argument;
  t->status = t->body(t->task, t->env, t->context);
  return NULL;
}

/* As TVM's: `count` tasks, all workers for 0; task 0 on the calling thread. */
__attribute__((visibility("default"))) int TVMBackendParallelLaunch(task_body body, void* context,
                                                                    int count) {
  one_task tasks[WORKERS];
  pthread_t threads[WORKERS];
  int n = count == 0 || count > WORKERS ? WORKERS : count, status = 0;
  group_env env = {NULL, n};
  for (int i = 0; i < n; i++) tasks[i] = (one_task){body, context, &env, i, 0};
  for (int i = 1; i < n; i++) pthread_create(&threads[i], NULL, run_task, &tasks[i]);
  run_task(&tasks[0]);
  for (int i = 1; i < n; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < n; i++) status |= tasks[i].status;
  return status;
}

typedef struct {
  float values[N];
  int fails;
  _Atomic int inner;
} job;

static int nothing(void* context, int64_t begin, int64_t end) {
  atomic_fetch_add(&((job*)context)->inner, (int)(end - begin));
  return 0;
}

static int add(void* context, int64_t begin, int64_t end) {
  job* j = context;
  for (int64_t i = begin; i < end; i++) j->values[i] += (float)i;
  int status = ext_parallel_for(end - begin, 8, nothing, j);
  return status ? status : j->fails && end > N / 2 ? EXT_ERR_INDEX : 0;
}

static void check(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "tvm_pool: %s\n", what);
  exit(1);
}

static void* caller(void* argument) {
  (void)argument;
  job* j = malloc(sizeof *j);
  for (int turn = 0; turn < TURNS; turn++) {
    for (int i = 0; i < N; i++) j->values[i] = 1;
    j->fails = turn % 10 == 9;
    atomic_store(&j->inner, 0);
    int status = ext_parallel_for(N, 64, add, j);
    check(status == (j->fails ? EXT_ERR_INDEX : EXT_OK), "a launch has another status");
    if (j->fails) continue;
    check(atomic_load(&j->inner) == N, "launches inside missed items");
    for (int i = 0; i < N; i++) check(j->values[i] == 1 + (float)i, "wrong");
    check(ext_num_threads() == WORKERS, "another number of threads");
  }
  free(j);
  return NULL;
}

int main(void) {
  pthread_t threads[CALLERS];
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < CALLERS; i++) pthread_create(&threads[i], NULL, caller, NULL);
    for (int i = 0; i < CALLERS; i++) pthread_join(threads[i], NULL);
  }
  puts("tvm_pool: ok");
  return 0;
}
