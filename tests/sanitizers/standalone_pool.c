/*
 * The pools of standalone models, for ThreadSanitizer: instances with threads of their own that are
 * made, run and destroyed by several threads at once, runs that follow each other without a pause
 * and after one, launches inside of launches, bodies that fail, and two callers of one instance,
 * who run it, clone it and set its state back.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "ext_standalone.h"

enum { N = 4096, CALLERS = 3, INSTANCES = 3, RUNS = 60, THREADS = 3 };

static const int64_t shape[] = {N};
static const byoc_tensor tensors[] = {{.name = "x",
                                       .dtype = BYOC_FLOAT32,
                                       .ndim = 1,
                                       .shape = shape,
                                       .bytes = N * sizeof(float),
                                       .alignment = 4}};

static const byoc_tensor states[] = {
    {.name = "runs", .dtype = BYOC_FLOAT32, .ndim = 1, .shape = shape, .bytes = N * sizeof(float)},
    {.name = "rows", .dtype = BYOC_FLOAT32, .ndim = 1, .shape = shape, .bytes = N * sizeof(float)}};
static const unsigned char in_place[] = {0, 1};

typedef struct {
  const float* x;
  float* y;
  int fails;
} span;

static int square(void* context, int64_t begin, int64_t end) {
  const span* s = context;
  for (int64_t i = begin; i < end; i++) s->y[i] = s->x[i] * s->x[i];
  return 0;
}

/* Scratch memory and a launch inside of a launch, which runs on its own thread. */
static int twice(void* context, int64_t begin, int64_t end) {
  const span* s = context;
  float* part = ext_workspace_alloc((size_t)(end - begin) * sizeof(float));
  if (part == NULL) return EXT_ERR_MEMORY;
  span inner = {s->y + begin, part, 0};
  int status = ext_parallel_for(end - begin, 16, square, &inner);
  for (int64_t i = begin; i < end; i++) s->y[i] = part[i - begin];
  ext_workspace_free(part);
  return status ? status : s->fails && end > N / 2 ? EXT_ERR_INDEX : 0;
}

/* One state counts runs; the other one is written where it lies. */
static int run(const void* const* inputs, void* const* outputs, const void* const* before,
               void* const* after, char* arena) {
  (void)arena;
  *(float*)after[0] = *(const float*)before[0] + 1;
  ((float*)after[1])[1] = *(float*)after[0];
  span s = {inputs[0], outputs[0], ((const float*)inputs[0])[0] == 7};
  int status = ext_parallel_for(N, 64, square, &s);
  if (status == 0) status = ext_parallel_for(N, 128, twice, &s);
  return status == 0 ? 0 : ext_raise_status("pool", "twice", status);
}

static const ext_model model = {.name = "pool",
                                .input_count = 1,
                                .output_count = 1,
                                .state_count = 2,
                                .inputs = tensors,
                                .outputs = tensors,
                                .states = states,
                                .in_place = in_place,
                                .arena_bytes = 64,
                                .threads = THREADS,
                                .run = run};

static void check(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "standalone_pool: %s\n", what);
  exit(1);
}

static void* caller(void* argument) {
  (void)argument;
  float *x = aligned_alloc(64, N * sizeof(float)), *y = aligned_alloc(64, N * sizeof(float));
  for (int made = 0; made < INSTANCES; made++) {
    ext_instance* instance = NULL;
    check(ext_model_create(&model, NULL, &instance) == BYOC_OK, "create failed");
    for (int turn = 0; turn < RUNS; turn++) {
      for (int i = 0; i < N; i++) x[i] = (float)(i % 5 + turn % 3);
      int fails = turn % 10 == 9;
      if (fails) x[0] = 7;
      const void* inputs[] = {x};
      void* outputs[] = {y};
      byoc_status status = ext_model_run(instance, inputs, outputs);
      check(status == (fails ? BYOC_ERR_INDEX : BYOC_OK), "a run has another status");
      for (int i = 0; i < N && !fails; i++) check(y[i] == x[i] * x[i] * x[i] * x[i], "wrong");
      /* Long enough for workers to sleep. */
      if (turn % 20 == 19) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    ext_model_destroy(instance);
  }
  free(x);
  free(y);
  return NULL;
}

static ext_instance* shared;

static void* rival(void* argument) {
  static const float x[N];
  float* y = argument;
  const void* inputs[] = {x};
  void* outputs[] = {y};
  for (int turn = 0; turn < RUNS; turn++) {
    byoc_status status = ext_model_run(shared, inputs, outputs);
    check(status == BYOC_OK || status == BYOC_ERR_BUSY, "a rival run failed");
    if (turn % 20 == 9) ext_model_reset(shared);
    if (turn % 20 != 19) continue;
    ext_instance* clone = NULL;
    status = ext_model_clone(shared, &clone);
    check(status == BYOC_OK || status == BYOC_ERR_BUSY, "a rival clone failed");
    ext_model_destroy(clone);
  }
  return NULL;
}

int main(void) {
  pthread_t threads[CALLERS];
  for (int i = 0; i < CALLERS; i++) pthread_create(&threads[i], NULL, caller, NULL);
  for (int i = 0; i < CALLERS; i++) pthread_join(threads[i], NULL);
  check(ext_model_create(&model, NULL, &shared) == BYOC_OK, "create failed");
  static float results[2][N];
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, rival, results[i]);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  ext_model_destroy(shared);
  puts("standalone_pool: ok");
  return 0;
}
