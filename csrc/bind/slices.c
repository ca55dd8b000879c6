// SPDX-License-Identifier: MIT
// mtx.core.short_slices: an event loop beside threads that compute.
#include <lauxlib.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bind/core.h"

enum {
  SLICE_NS = 100000,   // the least there is
  RESET_ON_FORK = 1,   // threads it starts are scheduled as usual
};

// The kernel's struct sched_attr, as of its first version.
typedef struct {
  uint32_t size, policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime, deadline, period;
} attributes;

// short_slices() -> are the calling thread's time slices short now? It then gets a core soon after it wakes, even when busy
// threads have all of them, and no larger share. Linux has this since 6.12; before that nothing changes.
static int l_short_slices(lua_State *L) {
  attributes a = {0};
  bool done = false;
#if defined(SYS_sched_getattr) && defined(SYS_sched_setattr)
  // A policy that the user has chosen stays, and so does a raised priority: RESET_ON_FORK would take it from every thread to come.
  if (!syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) && a.policy == SCHED_OTHER && a.nice >= 0) {
    a.size = sizeof a;
    a.flags = RESET_ON_FORK;
    a.runtime = SLICE_NS;
    done = !syscall(SYS_sched_setattr, 0, &a, 0) && !syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) && a.runtime == SLICE_NS;
  }
#endif
  lua_pushboolean(L, done);
  return 1;
}

int mtx_bind_short_slices(lua_State *L) {
  lua_pushcfunction(L, l_short_slices);
  return 1;
}
