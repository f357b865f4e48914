/* Two networks in one program, each in a thread of its own: ./two_models
 *
 * Each instance brings its memory and, here, no threads beside the one that runs it. */
#include <pthread.h>
#include <stdio.h>

#include "bert_small.h"
#include "squeezenet.h"

enum { TOKENS = bert_small_INPUT_0_ELEMENTS };

static float image[squeezenet_INPUT_0_ELEMENTS], scores[squeezenet_OUTPUT_0_ELEMENTS];
static int64_t ids[TOKENS], mask[bert_small_INPUT_1_ELEMENTS];
static float states[bert_small_OUTPUT_0_ELEMENTS], pooled[bert_small_OUTPUT_1_ELEMENTS];

static void* look_at(void* status) {
  const void* inputs[] = {image};
  void* outputs[] = {scores};
  byoc_options options = BYOC_OPTIONS;
  squeezenet_model* model = NULL;
  options.threads = 1;
  byoc_status* result = (byoc_status*)status;
  *result = squeezenet_create(&options, &model);
  for (int i = 0; i < 10 && *result == BYOC_OK; i++)
    *result = squeezenet_run(model, inputs, outputs);
  squeezenet_destroy(model);
  return NULL;
}

static void* read_text(void* status) {
  const void* inputs[] = {ids, mask};
  void* outputs[] = {states, pooled};
  byoc_options options = BYOC_OPTIONS;
  bert_small_model* model = NULL;
  options.threads = 1;
  byoc_status* result = (byoc_status*)status;
  *result = bert_small_create(&options, &model);
  for (int i = 0; i < 10 && *result == BYOC_OK; i++)
    *result = bert_small_run(model, inputs, outputs);
  bert_small_destroy(model);
  return NULL;
}

int main(void) {
  pthread_t looking, reading;
  byoc_status looked = BYOC_OK, was_read = BYOC_OK;
  for (int i = 0; i < squeezenet_INPUT_0_ELEMENTS; i++) image[i] = (float)(i % 7) - 3.0f;
  for (int i = 0; i < TOKENS; i++) ids[i] = 17 * i % 1000;
  for (int i = 0; i < TOKENS; i++) mask[i] = i < TOKENS / 2;
  if (pthread_create(&looking, NULL, look_at, &looked) != 0) return 1;
  if (pthread_create(&reading, NULL, read_text, &was_read) != 0) return 1;
  pthread_join(looking, NULL);
  pthread_join(reading, NULL);
  printf("squeezenet: %s; class 0 has %.7f\n", squeezenet_status_text(looked), (double)scores[0]);
  printf("bert_small: %s; pooled[0] is %.7f\n", bert_small_status_text(was_read),
         (double)pooled[0]);
  return looked == BYOC_OK && was_read == BYOC_OK ? 0 : 1;
}
