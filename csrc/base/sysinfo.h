// SPDX-License-Identifier: MIT
// What the machine grants this process: usable cores and free memory.
#ifndef MTX_BASE_SYSINFO_H
#define MTX_BASE_SYSINFO_H

#include <stdint.h>

// Cores this process may run on: affinity mask, cut by the cgroup's CPU quota. At least 1.
int mtx_usable_cores(void);
// How many threads to use when WANTED are asked for (0 or less: none in particular). More than cores only wait for
// each other, and OpenMP keeps its list of them on the stack.
int mtx_threads_for(int wanted);
// Bytes that can be allocated without swapping: MemAvailable, cut by the cgroup's memory limit.
uint64_t mtx_free_memory(void);
// Resident bytes of this process (VmRSS).
uint64_t mtx_resident_memory(void);

#endif
