/*
 * ext_machine.h - which of several machines, by their names in a tuning database, this one is.
 *
 * Included by generated code only, of libraries that hold the choices of several machines.  A name
 * is "CPU, level": the CPU as /proc/cpuinfo calls it, or "CPU <implementer> <part>+<part>" where it
 * has no name, and the level of the kernels in use.  byoc/machine.py makes the same names.
 */
#ifndef EXT_MACHINE_H_
#define EXT_MACHINE_H_

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ext_common.h"

#define EXT_MACHINE_LINE 512
#ifndef EXT_CPUINFO
#define EXT_CPUINFO "/proc/cpuinfo"
#endif

/* The value of a line of /proc/cpuinfo if its name is this one, else NULL. */
static inline const char* ext_machine_value(char* line, const char* name) {
  char* colon = strchr(line, ':');
  size_t length = strlen(name);
  if (colon == NULL || strncmp(line, name, length) != 0) return NULL;
  if (strspn(line + length, " \t") != (size_t)(colon - line) - length) return NULL;
  char* begin = colon + 1 + strspn(colon + 1, " \t");
  size_t end = strlen(begin);
  while (end > 0 && strchr(" \t\r\n", begin[end - 1]) != NULL) --end;
  begin[end] = 0;
  return begin;
}

/* This machine's CPU into text[size]. */
static inline void ext_machine_cpu(char* text, size_t size) {
  char line[EXT_MACHINE_LINE], maker[32] = "", parts[160] = "+";
  const char* value;
  FILE* file = fopen(EXT_CPUINFO, "r");
  text[0] = 0;
  while (file != NULL && text[0] == 0 && fgets(line, sizeof line, file) != NULL) {
    if ((value = ext_machine_value(line, "model name")) != NULL) {
      snprintf(text, size, "%s", value);
    } else if ((value = ext_machine_value(line, "CPU implementer")) != NULL) {
      if (maker[0] == 0) snprintf(maker, sizeof maker, "%s", value);
    } else if ((value = ext_machine_value(line, "CPU part")) != NULL) {
      char part[34];
      snprintf(part, sizeof part, "+%.30s+", value);
      if (strstr(parts, part) == NULL && strlen(parts) + strlen(part) < sizeof parts) {
        strcat(parts, part + 1);
      }
    }
  }
  if (file != NULL) fclose(file);
  size_t length = strlen(parts);
  if (text[0] == 0 && maker[0] != 0 && length > 1) {
    parts[length - 1] = 0;
    snprintf(text, size, "CPU %s %s", maker, parts + 1);
  }
}

/* Which of names[count] this machine is: that of its name, or of what BYOC_MACHINE says instead;
 * else the first of its level; else the first. */
static inline int ext_machine(const char* const* names, int count) {
  char own[EXT_MACHINE_LINE + 40];
  const char* said = getenv("BYOC_MACHINE");
  if (said != NULL && said[0] != 0) {
    snprintf(own, sizeof own, "%s", said);
  } else {
    ext_machine_cpu(own, EXT_MACHINE_LINE);
    size_t length = strlen(own);
    snprintf(own + length, sizeof own - length, ", %s", ext_isa_name());
  }
  for (int i = 0; i < count; ++i) {
    if (strcmp(names[i], own) == 0) return i;
  }
  const char* level = strrchr(own, ',');
  for (int i = 0; i < count && level != NULL; ++i) {
    const char* other = strrchr(names[i], ',');
    if (other != NULL && strcmp(other, level) == 0) return i;
  }
  return 0;
}

#endif
