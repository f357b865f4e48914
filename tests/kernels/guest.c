/*
 * Calls kernels for a test that runs on another architecture.
 *
 *   guest libext_kernels.so threads descriptor address bytes
 *
 * maps the file `descriptor` at `address`, where the test has it as well, so that pointers into it
 * mean the same to both; then answers requests on standard input, one call each.
 *
 * The program tells the kernels how many threads to use, in the place of TVM.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../tvm_stand_in.h"

/* Both as guest.py packs them. */
typedef struct {
  char name[48];  /* of the function, or "protect": the bytes integers[1] from integers[0] on */
  int64_t result; /* 'i', 'd', 's' */
  int64_t integers[12]; /* pointers too */
  float floats[2];
} request;

typedef struct {
  int64_t integer;
  double real;
  char text[240];
} reply;

/* ------------------------------------------------------------------ calls */

/* AArch64 passes the first eight integers and pointers in x0 .. x7, further ones on the stack, and
 * the first floats in s0 .. s7, whatever their order is; so one type fits every kernel. */
typedef int64_t (*any_function)(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                                int64_t, int64_t, int64_t, int64_t, int64_t, float, float);
typedef double (*real_function)(void);

static reply answer(void* library, const request* r) {
  reply a = {0};
  const int64_t* i = r->integers;
  if (strcmp(r->name, "protect") == 0) {
    a.integer = mprotect((void*)i[0], (size_t)i[1], PROT_NONE);
    return a;
  }
  void* symbol = dlsym(library, r->name);
  if (!symbol) {
    fprintf(stderr, "guest: the library has no function %s\n", r->name);
    exit(2);
  }
  if (r->result == 'd') {
    a.real = ((real_function)symbol)();
    return a;
  }
  a.integer = ((any_function)symbol)(i[0], i[1], i[2], i[3], i[4], i[5], i[6], i[7], i[8], i[9],
                                     i[10], i[11], r->floats[0], r->floats[1]);
  if (r->result == 's' && a.integer) snprintf(a.text, sizeof a.text, "%s", (const char*)a.integer);
  return a;
}

int main(int count, char** arguments) {
  if (count != 6) return 2;
  void* library = dlopen(arguments[1], RTLD_NOW);
  if (!library) {
    fprintf(stderr, "guest: %s\n", dlerror());
    return 2;
  }
  tvm_threads = atoi(arguments[2]);
  if (tvm_threads < 1) return 2;
  void* wanted = (void*)strtoull(arguments[4], NULL, 0);
  size_t bytes = strtoull(arguments[5], NULL, 0);
  void* got = mmap(wanted, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE,
                   atoi(arguments[3]), 0);
  if (got != wanted) {
    perror("guest: mapping the shared memory");
    return 2;
  }
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); /* tests let it crash */
  request r;
  while (fread(&r, sizeof r, 1, stdin) == 1) {
    reply a = answer(library, &r);
    if (fwrite(&a, sizeof a, 1, stdout) != 1 || fflush(stdout)) return 2;
  }
  return 0;
}
