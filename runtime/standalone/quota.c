/*
 * How many cores the control groups of the process give it time for, as containers are limited.
 *
 * A group's quota is so many microseconds of all cores together in each period (cgroups(7): cpu.max
 * of version 2, cpu.cfs_quota_us and cpu.cfs_period_us of version 1).  It holds for the groups
 * inside, so that of all groups from the process's own up to the root the least counts.  More
 * threads than that would use the time up early, and all stand still for the rest of a period.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "instance.h"

enum { LONGEST = 4096 };

/* Reads a file that begins with two numbers, or "max" for the first one: -1.  0 if it does not. */
static int read_numbers(const char* path, long long* first, long long* second) {
  char text[64] = "";
  FILE* file = fopen(path, "r");
  if (!file) return 0;
  const char* got = fgets(text, sizeof text, file);
  fclose(file);
  if (!got) return 0;
  char* end = text;
  *first = strncmp(text, "max", 3) == 0 ? -1 : strtoll(text, &end, 10);
  if (*first == -1) end = text + strcspn(text, " \n");
  *second = strtoll(end, NULL, 10);
  return 1;
}

/* The quota of one group, whose files are in `folder`; `most` where it has none. */
static int32_t of_group(const char* folder, int is_second, int32_t most) {
  char path[2 * LONGEST + 64];
  long long quota = -1, period = 0, nothing;
  if (is_second) {
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (!read_numbers(path, &quota, &period)) return most;
  } else {
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    if (!read_numbers(path, &quota, &nothing)) return most;
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    if (!read_numbers(path, &period, &nothing)) return most;
  }
  if (quota <= 0 || period <= 0) return most;
  const long long cores = quota / period;
  return cores < 1 ? 1 : cores < most ? (int32_t)cores : most;
}

/* Whether a list of controllers, separated by commas, has that of CPU time. */
static int has_cpu(const char* list) {
  for (; *list; list += *list == ',') {
    const size_t length = strcspn(list, ",");
    if (length == 3 && strncmp(list, "cpu", 3) == 0) return 1;
    list += length;
  }
  return 0;
}

int32_t ext_quota_of_cores(const char* root, int32_t most) {
  char path[LONGEST], line[LONGEST];
  snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
  FILE* file = fopen(path, "r");
  if (!file) return most;
  while (fgets(line, sizeof line, file)) { /* number:controllers:group */
    line[strcspn(line, "\n")] = '\0';
    char* controllers = strchr(line, ':');
    char* group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) continue;
    *controllers++ = '\0';
    *group++ = '\0';
    const int is_second = *controllers == '\0';
    if (!is_second && !has_cpu(controllers)) continue;
    for (;;) { /* the group, then those around it: a container may not see its own by this name */
      char folder[2 * LONGEST];
      snprintf(folder, sizeof folder, "%s/sys/fs/cgroup%s%s", root, is_second ? "" : "/cpu", group);
      most = of_group(folder, is_second, most);
      char* last = strrchr(group, '/');
      if (!last) break;
      *last = '\0';
    }
  }
  fclose(file);
  return most;
}
