/* Runs a standalone model that keeps states step by step: steps THREADS STEPS INPUT OUTPUT
 *
 * NAME is the model's name, and <NAME.h> is included from the command line; the model has one input
 * and one output.  INPUT has three times STEPS steps: the model takes the first third, is cloned,
 * and takes the second, while its clone takes the third instead.  OUTPUT gets what they gave, in
 * that order.  Then the model starts again from zeros, and from saved states, which must give the
 * same bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define CALL(what) JOIN(NAME, what)

typedef JOIN(NAME, model) network;

enum { MOST_STATES = 8 };

static size_t in_bytes, out_bytes;

static void check(int holds, const char* what, const network* model) {
  if (holds) return;
  fprintf(stderr, "%s: %s\n", what, CALL(error)(model));
  exit(1);
}

static void take(network* model, int steps, const char* x, char* y) {
  for (int i = 0; i < steps; i++) {
    const void* inputs[] = {x + (size_t)i * in_bytes};
    void* outputs[] = {y + (size_t)i * out_bytes};
    check(CALL(run)(model, inputs, outputs) == BYOC_OK, "run", model);
  }
}

/* From zeros, then from what was saved before the second third. */
static void take_again(network* model, void* const* saved, int steps, const char* x,
                       const char* y) {
  const size_t third = (size_t)steps * out_bytes;
  char* again = malloc(third);
  check(again != NULL, "no memory", model);
  check(CALL(reset)(model) == BYOC_OK, "reset", model);
  take(model, steps, x, again);
  check(memcmp(again, y, third) == 0, "other results after a reset", model);
  check(CALL(restore)(model, (const void* const*)saved) == BYOC_OK, "restore", model);
  take(model, steps, x + (size_t)steps * in_bytes, again);
  check(memcmp(again, y + third, third) == 0, "other results after a restore", model);
  free(again);
}

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const int steps = atoi(argv[2]);
  byoc_options options = BYOC_OPTIONS;
  options.threads = atoi(argv[1]);
  in_bytes = CALL(inputs)(NULL)[0].bytes;
  out_bytes = CALL(outputs)(NULL)[0].bytes;
  const size_t count = 3 * (size_t)steps, x_third = (size_t)steps * in_bytes;
  const size_t y_third = (size_t)steps * out_bytes;
  char *x = malloc(count * in_bytes), *y = malloc(count * out_bytes);
  FILE* file = fopen(argv[3], "rb");
  if (!x || !y || !file || fread(x, in_bytes, count, file) != count) return 3;
  fclose(file);
  network *model = NULL, *clone = NULL;
  check(CALL(create)(&options, &model) == BYOC_OK, "create", model);
  int32_t states = 0;
  const byoc_tensor* state = CALL(states)(&states);
  void* saved[MOST_STATES] = {NULL};
  for (int32_t i = 0; i < states; i++) saved[i] = malloc(state[i].bytes);
  take(model, steps, x, y);
  check(CALL(save)(model, saved) == BYOC_OK, "save", model);
  check(CALL(clone)(model, &clone) == BYOC_OK, "clone", model);
  for (int i = 0; i < steps; i++) { /* in turns: neither may see the other's states */
    take(model, 1, x + x_third + (size_t)i * in_bytes, y + y_third + (size_t)i * out_bytes);
    take(clone, 1, x + 2 * x_third + (size_t)i * in_bytes, y + 2 * y_third + (size_t)i * out_bytes);
  }
  take_again(model, saved, steps, x, y);
  CALL(destroy)(model);
  CALL(destroy)(clone);
  file = fopen(argv[4], "wb");
  if (!file || fwrite(y, out_bytes, count, file) != count || fclose(file) != 0) return 4;
  for (int32_t i = 0; i < states; i++) free(saved[i]);
  free(x);
  free(y);
  return 0;
}
