// SPDX-License-Identifier: MIT
// What the machine grants this process: usable cores and free memory.
#ifndef MTX_BASE_SYSINFO_H
#define MTX_BASE_SYSINFO_H

#include <stdint.h>

// Cores this process may run on: affinity mask, cut by the cgroup's CPU quota. At least 1.
int mtx_usable_cores(void);
// Bytes that can be allocated without swapping: MemAvailable, cut by the cgroup's memory limit.
uint64_t mtx_free_memory(void);
// Resident bytes of this process (VmRSS).
uint64_t mtx_resident_memory(void);

#endif
