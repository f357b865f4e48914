/* One network in its standalone form: ./run THREADS RUNS INPUT... - built with -DMODEL=name and
 * -DHEADER="name.h".  An input is a file with the elements of a tensor.  Prints one JSON object:
 * load_ms (creating the instance), first_ms, later_ms, the times of the runs behind the first, and
 * peak_mb, the most memory that the process had. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include HEADER

#define JOINED(a, b) a##b
#define EXPANDED(a, b) JOINED(a, b)
#define OF_MODEL(name) EXPANDED(MODEL, name)

static double milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

static void* room(size_t bytes) {
  const size_t unit = BYOC_BEST_ALIGNMENT;
  return aligned_alloc(unit, (bytes + unit - 1) / unit * unit);
}

/* VmHWM of /proc/self/status, in kB there. */
static double peak_megabytes(void) {
  FILE* status = fopen("/proc/self/status", "r");
  char line[128];
  long kilobytes = 0;
  while (status != NULL && fgets(line, sizeof line, status) != NULL)
    if (sscanf(line, "VmHWM: %ld", &kilobytes) == 1) break;
  if (status != NULL) fclose(status);
  return 1024e-6 * (double)kilobytes;
}

int main(int argc, char** argv) {
  enum { MOST = 16 };
  const void* inputs[MOST];
  void* outputs[MOST];
  int32_t taken, given;
  const byoc_tensor* in = OF_MODEL(_inputs)(&taken);
  const byoc_tensor* out = OF_MODEL(_outputs)(&given);
  if (argc != 3 + taken || taken > MOST || given > MOST) return 2;
  for (int32_t i = 0; i < taken; i++) {
    void* memory = room(in[i].bytes);
    FILE* file = fopen(argv[3 + i], "rb");
    if (memory == NULL || file == NULL || fread(memory, 1, in[i].bytes, file) != in[i].bytes)
      return 2;
    fclose(file);
    inputs[i] = memory;
  }
  for (int32_t i = 0; i < given; i++) outputs[i] = room(out[i].bytes);

  byoc_options options = BYOC_OPTIONS;
  options.threads = atoi(argv[1]);
  OF_MODEL(_model) * model;
  double before = milliseconds();
  if (OF_MODEL(_create)(&options, &model) != BYOC_OK) return 1;
  double after = milliseconds();
  printf("{\"load_ms\": %.4f, ", after - before);
  const int runs = atoi(argv[2]);
  for (int i = 0; i <= runs; i++) {
    before = milliseconds();
    if (OF_MODEL(_run)(model, inputs, outputs) != BYOC_OK) return 1;
    after = milliseconds();
    printf(i == 0   ? "\"first_ms\": %.4f, \"later_ms\": ["
           : i == 1 ? "%.4f"
                    : ", %.4f",
           after - before);
  }
  printf("], \"peak_mb\": %.1f}\n", peak_megabytes());
  return 0;
}
