/*
 * The pools of standalone models, for ThreadSanitizer: instances with threads of their own that are
 * made, run and destroyed by several threads at once, runs that follow each other without a pause
 * and after one, launches inside of launches, bodies that fail, sizes that change from run to run,
 * with tasks that take scratch memory as they go, and two callers of one instance, who run it,
 * clone it and set its state back.
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
static const unsigned char state_kind[] = {EXT_STATE_REPLACED, EXT_STATE_IN_PLACE};

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
               void* const* after, const int64_t* sizes, char* arena) {
  const int64_t n = sizes ? sizes[0] : N;
  memset(arena, 0, 64);
  if (!sizes) *(float*)after[0] = *(const float*)before[0] + 1;
  if (!sizes) ((float*)after[1])[1] = *(float*)after[0];
  if (sizes) ((float*)after[0])[sizes[1]] = (float)n; /* a row behind those that are there */
  span s = {inputs[0], outputs[0], ((const float*)inputs[0])[0] == 7};
  int status = ext_parallel_for(n, 64, square, &s);
  if (status == 0) status = ext_parallel_for(n, n / 32, twice, &s);
  return status == 0 ? 0 : ext_raise_status("pool", "twice", status);
}

/* Of the second model, whose state has one row more after each run. */
static int measure(const int64_t* sizes, ext_needs* needs) {
  const int64_t extents[] = {sizes[0], sizes[0], sizes[1]};
  memcpy(needs->extents, extents, sizeof extents);
  needs->step = 1;
  needs->arena_bytes = 64 * sizes[0];
  return 0;
}

static const ext_model model = {.name = "pool",
                                .input_count = 1,
                                .output_count = 1,
                                .state_count = 2,
                                .inputs = tensors,
                                .outputs = tensors,
                                .states = states,
                                .state_kind = state_kind,
                                .arena_bytes = 64,
                                .threads = THREADS,
                                .run = run};

static const int64_t open_shape[] = {-1};
static const byoc_tensor open_tensors[] = {{.name = "x",
                                            .dtype = BYOC_FLOAT32,
                                            .ndim = 1,
                                            .shape = open_shape,
                                            .alignment = sizeof(float)}};
static const byoc_axis axes[] = {{"n", 1, N}};
static const unsigned char grows[] = {EXT_STATE_GROWS};

static const ext_model sized = {.name = "sized",
                                .input_count = 1,
                                .output_count = 1,
                                .state_count = 1,
                                .axis_count = 1,
                                .inputs = open_tensors,
                                .outputs = open_tensors,
                                .states = open_tensors,
                                .state_kind = grows,
                                .axes = axes,
                                .most_rows = N,
                                .threads = THREADS,
                                .measure = measure,
                                .run = run};

static void check(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "standalone_pool: %s\n", what);
  exit(1);
}

static void* caller(void* argument) {
  const ext_model* of = argument;
  float *x = aligned_alloc(64, N * sizeof(float)), *y = aligned_alloc(64, N * sizeof(float));
  for (int made = 0; made < INSTANCES; made++) {
    ext_instance* instance = NULL;
    check(ext_model_create(of, NULL, &instance) == BYOC_OK, "create failed");
    for (int turn = 0; turn < RUNS; turn++) {
      const int64_t n = of == &sized ? N / 8 * (turn % 7 + 1) : N;
      if (of == &sized) check(ext_model_resize(instance, &n) == BYOC_OK, "no resize");
      for (int i = 0; i < N; i++) x[i] = (float)(i % 5 + turn % 3);
      int fails = turn % 10 == 9 && of == &model;
      if (fails) x[0] = 7;
      const void* inputs[] = {x};
      void* outputs[] = {y};
      byoc_status status = ext_model_run(instance, inputs, outputs);
      check(status == (fails ? BYOC_ERR_INDEX : BYOC_OK), "a run has another status");
      for (int i = 0; i < n && !fails; i++) check(y[i] == x[i] * x[i] * x[i] * x[i], "wrong");
      /* Long enough for workers to sleep. */
      if (turn % 20 == 19) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    if (of == &sized) check(ext_model_rows(instance) == RUNS, "other rows");
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
  const ext_model* models[] = {&model, &sized};
  for (int kind = 0; kind < 2; kind++) {
    void* of = (void*)models[kind];
    for (int i = 0; i < CALLERS; i++) pthread_create(&threads[i], NULL, caller, of);
    for (int i = 0; i < CALLERS; i++) pthread_join(threads[i], NULL);
  }
  check(ext_model_create(&model, NULL, &shared) == BYOC_OK, "create failed");
  static float results[2][N];
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, rival, results[i]);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  ext_model_destroy(shared);
  puts("standalone_pool: ok");
  return 0;
}
