/*
 * runtime/threads.c for ThreadSanitizer, without TVM: callers at once, whose launches take pools of
 * different sizes, launches inside of launches, bodies that fail, threads that end, a pool that
 * grows.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "ext_kernels.h"
#include "tvm_stand_in.h"

enum { N = 4096, CALLERS = 4, TURNS = 100, THREADS = 4, MORE = 7 };

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
  fprintf(stderr, "tvm_threads: %s\n", what);
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
    check(ext_num_threads() == tvm_threads, "another number of threads");
  }
  free(j);
  return NULL;
}

int main(void) {
  pthread_t threads[CALLERS];
  for (int round = 0; round < 2; round++) {
    tvm_threads = round ? MORE : THREADS;
    for (int i = 0; i < CALLERS; i++) pthread_create(&threads[i], NULL, caller, NULL);
    for (int i = 0; i < CALLERS; i++) pthread_join(threads[i], NULL);
  }
  puts("tvm_threads: ok");
  return 0;
}
