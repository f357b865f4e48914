/*
 * ext_open.h - opens the shared libraries of a kernel library when a region needs them first.
 *
 * Included by generated code only.  A library is looked for beside the file that holds this code
 * (the compiled model, where it was when it was loaded), in the folders of the environment variable
 * BYOC_LIBRARY_PATH, where it was when the model was compiled, and where the system looks.
 */
#ifndef EXT_OPEN_H_
#define EXT_OPEN_H_

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const char* library;      /* the kernel library's name, for messages */
  const char* file;         /* name of the shared library */
  const char* path;         /* where it was at compile time */
  const char* const* names; /* functions to find */
  void** table;             /* where their addresses go */
  int count;
} ext_import;

typedef struct {
  int opened; /* set once, after the tables are filled */
  char problem[768];
} ext_open_state;

/* The folder of the file that holds this code, or "".  It is found while that file is loaded: later
 * the name that it was loaded by may lead elsewhere, as the current folder may be another, and a
 * link may be gone and its place another user's. */
static char ext_own_folder[PATH_MAX];

__attribute__((constructor)) static void ext_remember_folder(void) {
  Dl_info own;
  if (dladdr((const void*)ext_own_folder, &own) == 0 || own.dli_fname == NULL) return;
  if (strchr(own.dli_fname, '/') == NULL) return; /* a program that was found in PATH */
  if (realpath(own.dli_fname, ext_own_folder) == NULL) ext_own_folder[0] = '\0';
  char* slash = strrchr(ext_own_folder, '/');
  if (slash != NULL) *slash = '\0';
}

static inline void* ext_open_in(const char* folder, size_t length, const char* file) {
  char path[4096];
  if (length + strlen(file) + 2 > sizeof(path)) return NULL;
  memcpy(path, folder, length);
  snprintf(path + length, sizeof(path) - length, "/%s", file);
  return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

/* The handle, or NULL with what the dynamic linker says of the file at its first place. */
static inline void* ext_open_file(const ext_import* import, char said[256]) {
  void* handle = NULL;
  if (ext_own_folder[0] != '\0')
    handle = ext_open_in(ext_own_folder, strlen(ext_own_folder), import->file);
  const char* folders = getenv("BYOC_LIBRARY_PATH");
  while (handle == NULL && folders != NULL && *folders != '\0') {
    const size_t length = strcspn(folders, ":");
    if (length > 0) handle = ext_open_in(folders, length, import->file);
    folders += length + (folders[length] == ':');
  }
  if (handle == NULL) handle = dlopen(import->path, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) {
    const char* message = dlerror();
    snprintf(said, 256, "%s", message == NULL ? "no message" : message);
  }
  if (handle == NULL) handle = dlopen(import->file, RTLD_NOW | RTLD_LOCAL);
  return handle;
}

/* Opens the libraries and fills their tables, once; NULL, or what is missing. */
static inline const char* ext_open(ext_open_state* state, const ext_import* imports, int count) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  if (__atomic_load_n(&state->opened, __ATOMIC_ACQUIRE)) return NULL;
  pthread_mutex_lock(&mutex);
  const char* problem = NULL;
  for (int i = 0; i < count && problem == NULL && !state->opened; ++i) {
    const ext_import* import = &imports[i];
    char said[256];
    void* handle = ext_open_file(import, said);
    if (handle == NULL) {
      snprintf(state->problem, sizeof(state->problem),
               "library %s: cannot open %s; put it beside the model or into a folder of "
               "BYOC_LIBRARY_PATH (%s)",
               import->library, import->file, said);
      problem = state->problem;
    }
    for (int k = 0; k < import->count && problem == NULL; ++k) {
      import->table[k] = dlsym(handle, import->names[k]);
      if (import->table[k] == NULL) {
        snprintf(state->problem, sizeof(state->problem),
                 "library %s: %s has no function %s; need the version that the model was compiled "
                 "with",
                 import->library, import->file, import->names[k]);
        problem = state->problem;
      }
    }
  }
  if (problem == NULL) __atomic_store_n(&state->opened, 1, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&mutex);
  return problem;
}

#endif /* EXT_OPEN_H_ */
