/* Runs a standalone model on files: files THREADS INPUT... OUTPUT...
 *
 * NAME is the model's name, and <NAME.h> is included from the command line.  Each file holds the
 * bytes of one tensor. */
#include <stdio.h>
#include <stdlib.h>

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define CALL(what) JOIN(NAME, what)

enum { MOST = 8 };

static void* transfer(const char* path, void* data, const byoc_tensor* tensor) {
  const int reads = data == NULL;
  FILE* file = fopen(path, reads ? "rb" : "wb");
  if (reads) data = malloc(tensor->bytes);
  if (file == NULL || data == NULL) exit(3);
  const size_t count =
      reads ? fread(data, 1, tensor->bytes, file) : fwrite(data, 1, tensor->bytes, file);
  if (fclose(file) != 0 || count != tensor->bytes) exit(4);
  return data;
}

int main(int argc, char** argv) {
  const void* inputs[MOST];
  void* outputs[MOST];
  int32_t n_in = 0, n_out = 0;
  const byoc_tensor* in = CALL(inputs)(&n_in);
  const byoc_tensor* out = CALL(outputs)(&n_out);
  if (argc != 2 + n_in + n_out || n_in > MOST || n_out > MOST) return 2;
  char message[256] = "";
  byoc_options options = BYOC_OPTIONS;
  options.threads = atoi(argv[1]);
  options.message = message;
  options.message_size = sizeof message;
  JOIN(NAME, model)* model = NULL;
  byoc_status status = CALL(create)(&options, &model);
  for (int32_t i = 0; i < n_in; i++) inputs[i] = transfer(argv[2 + i], NULL, &in[i]);
  for (int32_t i = 0; i < n_out; i++) outputs[i] = malloc(out[i].bytes);
  if (status == BYOC_OK) status = CALL(run)(model, inputs, outputs);
  if (status != BYOC_OK) {
    fprintf(stderr, "%s: %s %s\n", CALL(status_text)(status), message, CALL(error)(model));
    return 1;
  }
  for (int32_t i = 0; i < n_out; i++) transfer(argv[2 + n_in + i], outputs[i], &out[i]);
  CALL(destroy)(model);
  return 0;
}
