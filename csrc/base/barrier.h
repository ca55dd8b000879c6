// SPDX-License-Identifier: MIT
// A barrier between the dependent steps of one parallel region.
//
// A step lasts microseconds, so waiting spins first. A thread that waits longer
// sleeps in the kernel (futex) instead of yielding: it wakes with credit, so a
// machine with busy neighbours loses some speed and not a whole time slice per op.
#ifndef MTX_BASE_BARRIER_H
#define MTX_BASE_BARRIER_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct mtx_barrier {
  _Alignas(64) _Atomic uint32_t n_arrived;
  _Alignas(64) _Atomic uint32_t round;
  _Atomic uint32_t n_asleep;
} mtx_barrier;

enum { MTX_BARRIER_SPINS = 2000 };

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
  uint32_t round = atomic_load_explicit(&b->round, memory_order_relaxed);
  if (atomic_fetch_add_explicit(&b->n_arrived, 1, memory_order_acq_rel) == n - 1) {
    atomic_store_explicit(&b->n_arrived, 0, memory_order_relaxed);
    atomic_store(&b->round, round + 1);
    if (atomic_load(&b->n_asleep)) syscall(SYS_futex, &b->round, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
    return;
  }
  for (int i = 0; i < MTX_BARRIER_SPINS; i++) {
    if (atomic_load_explicit(&b->round, memory_order_acquire) != round) return;
    mtx_cpu_relax();
  }
  atomic_fetch_add(&b->n_asleep, 1);
  while (atomic_load(&b->round) == round) syscall(SYS_futex, &b->round, FUTEX_WAIT_PRIVATE, round, NULL, NULL, 0);
  atomic_fetch_sub(&b->n_asleep, 1);
}

#endif
