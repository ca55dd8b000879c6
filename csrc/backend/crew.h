// SPDX-License-Identifier: MIT
// How many threads run a step on a machine that others use as well.
//
// A thread that shares its core with somebody's busy process is away for whole time slices, and at every barrier
// all others wait for it: two threads beside one busy process decode at a seventh of their speed, one thread at
// nearly all of its own. So threads that lose their cores are done without for a while. No result changes:
// it does not depend on the number of threads.
#ifndef MTX_BACKEND_CREW_H
#define MTX_BACKEND_CREW_H

#include <stdbool.h>
#include <stdint.h>

typedef struct mtx_crew {
  int n_max, n;                     // threads allowed; threads that run the next step
  uint64_t run_ns, lost_ns;         // since the last decision: steps' time, time that threads wanted to run and could not
  uint64_t retry_ns, pause_ns;      // when all are tried again; how long after the next disappointment
  bool warned;                      // the last window lost as much: it was no passing burst
} mtx_crew;

enum {
  MTX_CREW_WINDOW_NS = 20000000,        // time of steps that a decision looks at
  MTX_CREW_PAUSE_MIN_NS = 50000000,
  MTX_CREW_PAUSE_MAX_NS = 2000000000,
};

static inline void mtx_crew_init(mtx_crew *c, int n_max) { *c = (mtx_crew){.n_max = n_max, .n = n_max, .pause_ns = MTX_CREW_PAUSE_MIN_NS}; }

// Threads for a step that begins at now_ns.
static inline int mtx_crew_begin(mtx_crew *c, uint64_t now_ns) {
  if (c->n < c->n_max && now_ns >= c->retry_ns) c->n = c->n_max;
  return c->n;
}

// A step by several threads took run_ns; together they lost lost_ns of it.
static inline void mtx_crew_end(mtx_crew *c, uint64_t now_ns, uint64_t run_ns, uint64_t lost_ns) {
  c->run_ns += run_ns;
  c->lost_ns += lost_ns;
  if (c->run_ns < MTX_CREW_WINDOW_NS) return;
  // A core shared with one busy process is lost half of the time. All wait for what one loses, so without `shared`
  // of n threads a step would take (run - lost) n / (n - shared).
  uint64_t n = (uint64_t)c->n, shared = (2 * c->lost_ns + c->run_ns / 2) / c->run_ns;
  if (shared < 1) shared = 1;
  if (shared >= n) shared = n - 1;
  bool fine = c->lost_ns * n <= c->run_ns * shared;
  if (fine) {
    if (c->n == c->n_max) c->pause_ns = MTX_CREW_PAUSE_MIN_NS;
  } else if (c->warned || c->pause_ns > MTX_CREW_PAUSE_MIN_NS) {
    c->n -= (int)shared;
    c->retry_ns = now_ns + c->pause_ns;
    c->pause_ns = c->pause_ns < MTX_CREW_PAUSE_MAX_NS / 2 ? 2 * c->pause_ns : MTX_CREW_PAUSE_MAX_NS;
  }
  c->warned = !fine;
  c->run_ns = c->lost_ns = 0;
}

#endif
