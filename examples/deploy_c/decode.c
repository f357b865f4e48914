/* Continues tokens by a decoder that keeps its cache: ./decode COUNT TOKEN [TOKEN ...]
 *
 * The first run takes all tokens that are given, each later one the token before it. */
#include <stdio.h>
#include <stdlib.h>

#include "llama_decoder.h"

enum { MOST = 1024, WORDS = 2000 };

static int64_t tokens[MOST], seen[MOST], places[MOST];
static float logits[MOST * WORDS];

/* Runs the tokens from `past` up to `end`; gives the likeliest next one, or -1. */
static int64_t next_token(llama_decoder_model* model, int64_t past, int64_t end) {
  const int64_t sizes[] = {1, end - past}; /* llama_decoder_axes: batch, sequence */
  const void* inputs[] = {tokens + past, seen, places + past};
  void* outputs[] = {logits};
  byoc_status status = llama_decoder_resize(model, sizes);
  if (status == BYOC_OK) status = llama_decoder_run(model, inputs, outputs);
  if (status != BYOC_OK) {
    fprintf(stderr, "%s: %s\n", llama_decoder_status_text(status), llama_decoder_error(model));
    return -1;
  }
  const float* last = logits + (end - past - 1) * WORDS;
  int64_t best = 0;
  for (int64_t i = 1; i < WORDS; i++) best = last[i] > last[best] ? i : best;
  return best;
}

int main(int argc, char** argv) {
  byoc_options options = BYOC_OPTIONS;
  options.capacity = MOST; /* rows of the cache; memory is taken as they are written */
  const int64_t given = argc - 2, end = given + (argc > 2 ? atoi(argv[1]) : 0);
  if (given < 1 || end < given || end > MOST) {
    fprintf(stderr, "usage: decode COUNT TOKEN [TOKEN ...], %d in all\n", MOST);
    return 2;
  }
  if (llama_decoder_outputs(NULL)[0].shape[2] != WORDS) return 3;
  for (int64_t i = 0; i < MOST; i++) seen[i] = 1, places[i] = i;
  for (int64_t i = 0; i < given; i++) tokens[i] = atoi(argv[i + 2]);

  llama_decoder_model* model = NULL;
  const byoc_status status = llama_decoder_create(&options, &model);
  if (status != BYOC_OK) {
    fprintf(stderr, "cannot create the model: %s\n", llama_decoder_status_text(status));
    return 1;
  }
  int64_t past = 0, token = 0;
  for (int64_t count = given; count < end && token >= 0; count++) {
    token = next_token(model, past, count);
    if (token >= 0) printf("%d\n", (int)token);
    tokens[count] = token;
    past = count;
  }
  llama_decoder_destroy(model);
  return token < 0;
}
