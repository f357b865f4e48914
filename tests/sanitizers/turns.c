/*
 * runtime/turns.h for ThreadSanitizer: each step reads what all parts of the step before wrote,
 * as the steps of a recurrent layer do; threads that come at once, late or never.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "../turns.h" /* from runtime/include */

enum { PARTS = 4, STEPS = 500, ROUNDS = 24 };

typedef struct {
  int64_t values[2][PARTS]; /* of even steps and of odd ones */
  int64_t computed[PARTS];  /* steps of a part */
} state;

typedef struct {
  ext_turns turns;
  state state;
} layer;

typedef struct {
  layer* layer;
  int64_t own, naps;
} visitor;

/* values[step + 1][part] = sum of values[step] + part */
static void run_step(const void* context, int64_t step, int64_t part) {
  state* s = (state*)context;
  int64_t sum = part;
  for (int64_t i = 0; i < PARTS; i++) sum += s->values[step % 2][i];
  s->values[(step + 1) % 2][part] = sum % 1000003;
  s->computed[part]++;
}

static void* caller(void* argument) {
  const visitor* v = argument;
  for (int64_t i = 0; i < v->naps; i++) sched_yield();
  ext_take_turns(&v->layer->turns, v->own, STEPS, run_step, &v->layer->state);
  return NULL;
}

static void check(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "turns: %s\n", what);
  exit(1);
}

/* `count` threads for PARTS parts; thread i comes i * naps naps later than the first. */
static void run(int64_t count, int64_t naps, const state* expected) {
  layer* l = aligned_alloc(TURN_LINE, sizeof *l);
  *l = (layer){.turns.count = PARTS};
  pthread_t threads[PARTS];
  visitor visitors[PARTS];
  for (int64_t i = 0; i < count; i++) {
    visitors[i] = (visitor){l, i, i * naps};
    pthread_create(&threads[i], NULL, caller, &visitors[i]);
  }
  for (int64_t i = 0; i < count; i++) pthread_join(threads[i], NULL);
  for (int64_t i = 0; i < PARTS; i++) {
    check(l->state.computed[i] == STEPS, "a part was not computed once at each step");
    check(l->state.values[STEPS % 2][i] == expected->values[STEPS % 2][i], "wrong");
  }
  free(l);
}

int main(void) {
  state expected = {0};
  for (int64_t step = 0; step < STEPS; step++)
    for (int64_t part = 0; part < PARTS; part++) run_step(&expected, step, part);
  for (int64_t round = 0; round < ROUNDS; round++) run(1 + round % PARTS, round / 4, &expected);
  puts("turns: ok");
  return 0;
}
