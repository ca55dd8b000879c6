// SPDX-License-Identifier: MIT
// A barrier between the dependent steps of one parallel region.
//
// A step lasts microseconds, so waiting spins first; a thread that waits longer
// gives its core away, so that more threads than cores (or a busy neighbour) cost
// some speed and not the whole of it.
#ifndef MTX_BASE_BARRIER_H
#define MTX_BASE_BARRIER_H

#include <sched.h>
#include <stdatomic.h>

typedef struct mtx_barrier {
  _Alignas(64) atomic_uint n_arrived;
  _Alignas(64) atomic_uint round;
} mtx_barrier;

enum { MTX_BARRIER_SPINS = 4000 };

static inline void mtx_cpu_relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Every one of n threads calls this; none leaves before all have come.
static inline void mtx_barrier_wait(mtx_barrier *b, unsigned n) {
  if (n == 1) return;
  unsigned round = atomic_load_explicit(&b->round, memory_order_relaxed);
  if (atomic_fetch_add_explicit(&b->n_arrived, 1, memory_order_acq_rel) == n - 1) {
    atomic_store_explicit(&b->n_arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&b->round, round + 1, memory_order_release);
    return;
  }
  for (int spins = 0; atomic_load_explicit(&b->round, memory_order_acquire) == round; spins++) {
    if (spins < MTX_BARRIER_SPINS) mtx_cpu_relax();
    else sched_yield();
  }
}

#endif
