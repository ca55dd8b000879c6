// SPDX-License-Identifier: MIT
// Cores and memory: see sysinfo.h. Containers show the host's /proc, so cgroup v2
// (and v1) limits are read as well.
#include "base/sysinfo.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

static int read_line(const char *path, char *dst, int cap) {
  FILE *f = fopen(path, "r");
  if (!f) return 0;
  int ok = fgets(dst, cap, f) != NULL;
  fclose(f);
  return ok;
}

int mtx_usable_cores(void) {
  cpu_set_t set;
  int n = 1;
  if (sched_getaffinity(0, sizeof set, &set) == 0) n = CPU_COUNT(&set);
  char line[64];
  long quota = -1, period = 0;
  if (read_line("/sys/fs/cgroup/cpu.max", line, sizeof line)) {
    if (sscanf(line, "%ld %ld", &quota, &period) != 2) quota = -1;
  } else if (read_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", line, sizeof line) && sscanf(line, "%ld", &quota) == 1 &&
             read_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us", line, sizeof line)) {
    if (sscanf(line, "%ld", &period) != 1) quota = -1;
  }
  if (quota > 0 && period > 0) {
    long cap = (quota + period - 1) / period;
    if (cap < n) n = (int)cap;
  }
  return n < 1 ? 1 : n;
}

int mtx_threads_for(int wanted) {
  int cores = mtx_usable_cores();
  return wanted > 0 && wanted < cores ? wanted : cores;
}

static uint64_t field_kb(const char *path, const char *name) {
  FILE *f = fopen(path, "r");
  if (!f) return 0;
  char line[256];
  uint64_t kb = 0;
  size_t n = strlen(name);
  while (fgets(line, sizeof line, f))
    if (strncmp(line, name, n) == 0 && sscanf(line + n, ": %" SCNu64, &kb) == 1) break;
  fclose(f);
  return kb * 1024;
}

static uint64_t number(const char *path, uint64_t none) {
  char line[64];
  uint64_t v;
  return read_line(path, line, sizeof line) && sscanf(line, "%" SCNu64, &v) == 1 ? v : none;
}

uint64_t mtx_free_memory(void) {
  uint64_t n = field_kb("/proc/meminfo", "MemAvailable");
  uint64_t max = number("/sys/fs/cgroup/memory.max", UINT64_MAX), used = number("/sys/fs/cgroup/memory.current", 0);
  if (max == UINT64_MAX) {
    max = number("/sys/fs/cgroup/memory/memory.limit_in_bytes", UINT64_MAX);
    used = number("/sys/fs/cgroup/memory/memory.usage_in_bytes", 0);
  }
  if (max != UINT64_MAX && max > used && max - used < n) n = max - used;
  return n;
}

uint64_t mtx_resident_memory(void) { return field_kb("/proc/self/status", "VmRSS"); }
