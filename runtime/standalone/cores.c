/* How many cores the process may use: those of its affinity mask, hyper-threads not counted, as far
 * as it gets time for them (quota.c). */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "instance.h"

/* The first hyper-thread of the core that `cpu` is one of; `cpu` itself where Linux does not say.
 */
static int first_of_core(int cpu) {
  char path[96];
  int first = cpu;
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
  FILE* file = fopen(path, "r");
  if (!file) return cpu;
  if (fscanf(file, "%d", &first) != 1 || first < 0 || first >= CPU_SETSIZE) first = cpu;
  fclose(file);
  return first;
}

int32_t ext_core_count(void) {
  cpu_set_t allowed, cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) { /* more CPUs than the mask has bits */
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return ext_quota_of_cores("", online > 0 ? (int32_t)online : 1);
  }
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &allowed)) CPU_SET(first_of_core(cpu), &cores);
  return ext_quota_of_cores("", CPU_COUNT(&cores) > 0 ? CPU_COUNT(&cores) : 1);
}
