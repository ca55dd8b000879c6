// SPDX-License-Identifier: MIT
// Threads of a step that share a core while another core is idle.
//
// The kernel's balancing takes tens of milliseconds to part two threads that a passing neighbour has pushed onto one
// core, and a guest of KVM does not see by itself that the other core is free: a halted virtual core counts as taken
// away. Threads that wait for each other at barriers then take turns for several steps' time. So a thread that had to
// sleep at a barrier looks whether another of its step was last seen on the same core, and moves itself away.
#ifndef MTX_BACKEND_APART_H
#define MTX_BACKEND_APART_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

// where[i]: the core on which thread i of the step was last seen, -1 = not yet.
static inline void mtx_apart_note(_Atomic int *where, int ith) {
  int cpu = sched_getcpu();
  if (atomic_load_explicit(&where[ith], memory_order_relaxed) != cpu) atomic_store_explicit(&where[ith], cpu, memory_order_relaxed);
}

// Was another of the n threads last seen on this core?
static inline bool mtx_apart_shared(_Atomic int *where, int ith, int n, int cpu) {
  bool shared = false;
  for (int i = 0; i < n; i++) shared |= i != ith && atomic_load_explicit(&where[i], memory_order_relaxed) == cpu;
  return shared;
}

// The cores of `mine` on which none of the others was seen; false: there is none.
static inline bool mtx_apart_room(_Atomic int *where, int ith, int n, const cpu_set_t *mine, cpu_set_t *room) {
  *room = *mine;
  for (int i = 0; i < n; i++) {
    int other = atomic_load_explicit(&where[i], memory_order_relaxed);
    if (i != ith && other >= 0 && other < CPU_SETSIZE) CPU_CLR(other, room);
  }
  return CPU_COUNT(room) > 0;
}

// Moves the calling thread to a core of `room`, where it is noted; its mask is then `mine`.
static inline bool mtx_apart_go(_Atomic int *where, int ith, const cpu_set_t *room, const cpu_set_t *mine) {
  if (sched_setaffinity(0, sizeof *room, room)) return false;
  mtx_apart_note(where, ith);
  (void)sched_setaffinity(0, sizeof *mine, mine);
  return true;
}

// Moves the calling thread, the ith of n, to a core of its own mask on which none of the others was seen. False: it stays,
// because it has its core for itself or there is no such core. Its mask is afterwards as it was.
static inline bool mtx_apart_move(_Atomic int *where, int ith, int n) {
  cpu_set_t mine, room;
  return mtx_apart_shared(where, ith, n, sched_getcpu()) && !sched_getaffinity(0, sizeof mine, &mine) &&
         mtx_apart_room(where, ith, n, &mine, &room) && mtx_apart_go(where, ith, &room, &mine);
}

#endif
