/* Runs a network on an image and prints its best answers: ./main [THREADS [IMAGE.f32]]
 *
 * IMAGE.f32 holds the numbers of one image; without it they are random, the same in every run.
 * THREADS is 0 for all cores. */
#include <stdio.h>
#include <stdlib.h>

#include "squeezenet.h"

enum { PIXELS = squeezenet_INPUT_0_ELEMENTS, CLASSES = squeezenet_OUTPUT_0_ELEMENTS, BEST = 5 };

static float image[PIXELS], scores[CLASSES];

static void draw_image(void) {
  uint32_t state = 1;
  for (int i = 0; i < PIXELS; i++) {
    state = state * 1664525u + 1013904223u;
    image[i] = (float)(state >> 8) / (1 << 23) - 1.0f;
  }
}

static int read_image(const char* path) {
  FILE* file = fopen(path, "rb");
  const size_t count = file == NULL ? 0 : fread(image, sizeof *image, PIXELS, file);
  if (file != NULL) fclose(file);
  if (count != PIXELS) fprintf(stderr, "%s has %zu numbers; need %d\n", path, count, PIXELS);
  return count == PIXELS ? 0 : 1;
}

int main(int argc, char** argv) {
  char message[256] = "";
  byoc_options options = BYOC_OPTIONS;
  options.threads = argc > 1 ? atoi(argv[1]) : 0;
  options.message = message;
  options.message_size = sizeof message;
  if (argc <= 2) draw_image();
  if (argc > 2 && read_image(argv[2]) != 0) return 1;

  squeezenet_model* model = NULL;
  if (squeezenet_create(&options, &model) != BYOC_OK) {
    fprintf(stderr, "cannot create the model: %s\n", message);
    return 1;
  }
  const void* inputs[] = {image};
  void* outputs[] = {scores};
  const byoc_status status = squeezenet_run(model, inputs, outputs);
  if (status != BYOC_OK)
    fprintf(stderr, "%s: %s\n", squeezenet_status_text(status), squeezenet_error(model));
  squeezenet_destroy(model);

  for (int place = 0; place < BEST && status == BYOC_OK; place++) {
    int best = 0;
    for (int i = 1; i < CLASSES; i++) best = scores[i] > scores[best] ? i : best;
    printf("class %3d  %.7f\n", best, (double)scores[best]);
    scores[best] = -1.0f;
  }
  return status == BYOC_OK ? 0 : 1;
}
