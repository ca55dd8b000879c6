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
#include <time.h>
#include <unistd.h>

typedef struct mtx_barrier {
  _Alignas(64) _Atomic uint32_t n_arrived;
  _Alignas(64) _Atomic uint32_t round;
  _Atomic uint32_t n_asleep;
  uint64_t opened_ns;          // when the last round ended, if anybody slept
} mtx_barrier;

enum { MTX_BARRIER_SPINS = 2000 };

static inline void mtx_cpu_relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static inline uint64_t mtx_clock_ns(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// Every one of n threads calls this; none leaves before all have come. Returns the nanoseconds that
// the caller slept while others were missing (what it then waits for a core is not counted).
static inline uint64_t mtx_barrier_wait(mtx_barrier *b, unsigned n) {
  if (n == 1) return 0;
  uint32_t round = atomic_load_explicit(&b->round, memory_order_relaxed);
  if (atomic_fetch_add_explicit(&b->n_arrived, 1, memory_order_acq_rel) == n - 1) {
    atomic_store_explicit(&b->n_arrived, 0, memory_order_relaxed);
    b->opened_ns = atomic_load(&b->n_asleep) ? mtx_clock_ns(CLOCK_MONOTONIC) : 0;
    atomic_store(&b->round, round + 1);
    if (atomic_load(&b->n_asleep)) syscall(SYS_futex, &b->round, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
    return 0;
  }
  for (int i = 0; i < MTX_BARRIER_SPINS; i++) {
    if (atomic_load_explicit(&b->round, memory_order_acquire) != round) return 0;
    mtx_cpu_relax();
  }
  uint64_t asleep_ns = mtx_clock_ns(CLOCK_MONOTONIC);
  atomic_fetch_add(&b->n_asleep, 1);
  while (atomic_load(&b->round) == round) syscall(SYS_futex, &b->round, FUTEX_WAIT_PRIVATE, round, NULL, NULL, 0);
  atomic_fetch_sub(&b->n_asleep, 1);
  uint64_t opened_ns = b->opened_ns;  // the next round cannot end before this thread has come to it
  return opened_ns > asleep_ns ? opened_ns - asleep_ns : 0;
}

#endif
