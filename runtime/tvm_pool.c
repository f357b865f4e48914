/* tvm_pool.h: TVM's FFI in C, and the process's own entry in /proc. */
#define _GNU_SOURCE
#include "tvm_pool.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ------------------------------------------------------------------ TVM's FFI */

/* TVMFFIByteArray and TVMFFIAny of tvm/ffi/c_api.h. */
typedef struct {
  const char* data;
  size_t size;
} ffi_bytes;

typedef struct {
  int32_t type_index;
  uint32_t padding;
  int64_t value;
} ffi_any;

enum { FFI_INT = 1 };

#define WEAK __attribute__((weak, visibility("default")))
extern int TVMFFIFunctionGetGlobal(const ffi_bytes* name, void** function) WEAK;
extern int TVMFFIFunctionCall(void* function, ffi_any* args, int32_t count, ffi_any* result) WEAK;
extern void TVMFFIErrorMoveFromRaised(void** error) WEAK;
extern int TVMFFIObjectDecRef(void* object) WEAK;

static int have_ffi(void) {
  return TVMFFIFunctionGetGlobal && TVMFFIFunctionCall && TVMFFIErrorMoveFromRaised &&
         TVMFFIObjectDecRef;
}

static void forget_error(void) {
  void* error = NULL;
  TVMFFIErrorMoveFromRaised(&error);
  if (error) (void)TVMFFIObjectDecRef(error);
}

enum { NO_FUNCTION = -2 };

/* What a global function without arguments returns, an integer from 0 on. */
static int64_t ask(const char* function_name) {
  const ffi_bytes name = {function_name, strlen(function_name)};
  ffi_any result = {0, 0, 0};
  void* function = NULL;
  int failed = TVMFFIFunctionGetGlobal(&name, &function);
  if (failed) forget_error();
  if (!function) return NO_FUNCTION;
  failed = TVMFFIFunctionCall(function, NULL, 0, &result);
  if (failed) forget_error();
  (void)TVMFFIObjectDecRef(function);
  return failed || result.type_index != FFI_INT || result.value < 0 ? EXT_POOL_FAILED
                                                                    : result.value;
}

int ext_tvm_pool_size(void) {
  if (!have_ffi()) return EXT_POOL_UNKNOWN;
  const int64_t size = ask("runtime.NumThreads");
  return size == NO_FUNCTION ? EXT_POOL_UNKNOWN : (int)size;
}

/* ------------------------------------------------------------------ the process */

typedef struct {
  int is_forked; /* from a process that it has not left by exec */
  long threads;
} process_state;

/* proc(5): `flags` is the 9th field of stat, `num_threads` the 20th.  All 0 without /proc. */
static process_state state_of_process(void) {
  enum { FLAGS = 9, THREADS = 20, FORKED_NO_EXEC = 0x40 };
  process_state state = {0, 0};
  char text[1024];
  int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return state;
  ssize_t length = read(file, text, sizeof(text) - 1);
  close(file);
  if (length <= 0) return state;
  text[length] = '\0';
  char* at = strrchr(text, ')'); /* ends the 2nd field, which may hold anything */
  for (int field = 2; at && field < THREADS; ++field) {
    at = strchr(at + 1, ' ');
    if (!at) break;
    if (field + 1 == FLAGS) state.is_forked = (strtoul(at, NULL, 10) & FORKED_NO_EXEC) != 0;
    if (field + 1 == THREADS) state.threads = strtol(at, NULL, 10);
  }
  return state;
}

int ext_tvm_pool_is_alive(pid_t process, pid_t used_in) {
  if (!have_ffi()) return used_in == 0;
  const process_state before = state_of_process();
  if (!before.is_forked || syscall(SYS_gettid) != process) return 1;
  const int64_t sized_in = ask("byoc.pool_sized_in"); /* the thread's pool, by byoc.load */
  if (sized_in == process) return 1;
  if (sized_in > 0 || used_in != 0) return 0;
  const int workers = ext_tvm_pool_size();
  if (workers <= 1 || state_of_process().threads > before.threads) return 1;
  /* Someone else's, of this process if it has as many threads. */
  return before.threads >= workers;
}
