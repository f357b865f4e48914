/* Runs a standalone model many times and counts what is allocated meanwhile: probe THREADS RUNS
 *
 * NAME is the model's name, and <NAME.h> is included from the command line.  Every instance runs in
 * a thread of its own, all at the same time.  Prints "allocations N, different answers N". */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define CALL(what) JOIN(NAME, what)

enum { INSTANCES = 3, MOST = 8 };

/* ------------------------------------------------------------------ counting */

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

static atomic_int counting, allocations;

static void count(void) {
  if (atomic_load(&counting)) atomic_fetch_add(&allocations, 1);
}

void* malloc(size_t n) {
  count();
  return __libc_malloc(n);
}

void* calloc(size_t n, size_t size) {
  count();
  return __libc_calloc(n, size);
}

void* realloc(void* p, size_t n) {
  count();
  return __libc_realloc(p, n);
}

void* memalign(size_t a, size_t n) {
  count();
  return __libc_memalign(a, n);
}

void* aligned_alloc(size_t a, size_t n) {
  count();
  return __libc_memalign(a, n);
}

int posix_memalign(void** p, size_t a, size_t n) {
  count();
  *p = __libc_memalign(a, n);
  return *p ? 0 : 12;
}

/* ------------------------------------------------------------------ running */

static int runs;
static pthread_barrier_t ready, go, done;
static atomic_int different, failed;

static char* zeros(size_t bytes) {
  char* memory = aligned_alloc(64, (bytes + 64) / 64 * 64);
  if (!memory) exit(3);
  return memset(memory, 0, bytes);
}

static void* use(void* argument) {
  JOIN(NAME, model)* model = argument;
  const void* inputs[MOST];
  void *outputs[MOST], *first[MOST];
  int32_t n_in = 0, n_out = 0;
  const byoc_tensor* in = CALL(inputs)(&n_in);
  const byoc_tensor* out = CALL(outputs)(&n_out);
  for (int32_t i = 0; i < n_in; i++) {
    char* data = zeros(in[i].bytes);
    if (in[i].dtype == BYOC_FLOAT32)
      for (size_t k = 0; k < in[i].bytes / 4; k++) ((float*)(void*)data)[k] = (float)(k % 7) - 3;
    inputs[i] = data;
  }
  for (int32_t i = 0; i < n_out; i++) {
    outputs[i] = zeros(out[i].bytes);
    first[i] = zeros(out[i].bytes);
  }
  pthread_barrier_wait(&ready);
  pthread_barrier_wait(&go);
  for (int run = 0; run < runs; run++) {
    if (CALL(run)(model, inputs, outputs) != BYOC_OK) atomic_fetch_add(&failed, 1);
    for (int32_t i = 0; i < n_out; i++) {
      if (run == 0) memcpy(first[i], outputs[i], out[i].bytes);
      if (memcmp(first[i], outputs[i], out[i].bytes) != 0) atomic_fetch_add(&different, 1);
    }
  }
  pthread_barrier_wait(&done);
  for (int32_t i = 0; i < n_in; i++) free((void*)(uintptr_t)inputs[i]);
  for (int32_t i = 0; i < n_out; i++) free(outputs[i]);
  for (int32_t i = 0; i < n_out; i++) free(first[i]);
  return NULL;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  byoc_options options = BYOC_OPTIONS;
  options.threads = atoi(argv[1]);
  runs = atoi(argv[2]);
  JOIN(NAME, model) * models[INSTANCES];
  pthread_t threads[INSTANCES];
  pthread_barrier_init(&ready, NULL, INSTANCES + 1);
  pthread_barrier_init(&go, NULL, INSTANCES + 1);
  pthread_barrier_init(&done, NULL, INSTANCES + 1);
  for (int i = 0; i < INSTANCES; i++) {
    if (CALL(create)(&options, &models[i]) != BYOC_OK) return 4;
    if (pthread_create(&threads[i], NULL, use, models[i]) != 0) return 5;
  }
  pthread_barrier_wait(&ready); /* all buffers have been allocated */
  atomic_store(&counting, 1);
  pthread_barrier_wait(&go);
  pthread_barrier_wait(&done);
  atomic_store(&counting, 0);
  for (int i = 0; i < INSTANCES; i++) {
    pthread_join(threads[i], NULL);
    CALL(destroy)(models[i]);
  }
  printf("allocations %d, different answers %d, failed %d\n", atomic_load(&allocations),
         atomic_load(&different), atomic_load(&failed));
  return 0;
}
