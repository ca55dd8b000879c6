// SPDX-License-Identifier: MIT
// A budget of instructions and processor time for user scripts.
#ifndef MTX_BIND_LIMIT_H
#define MTX_BIND_LIMIT_H

#include <lua.h>
#include <stdint.h>

// Counted on one coroutine (or main thread) of a Lua state. Beyond it every
// instruction raises, so that a script's own pcall cannot go on.
typedef struct mtx_limit {
  int64_t instructions;  // left
  int64_t until_ns;      // of this thread's processor time
} mtx_limit;

// From now on L runs under *l, which must outlive L or the next call; NULL lifts it.
void mtx_limit_set(lua_State *L, mtx_limit *l);
// Processor time that l's coroutine may use from now on, in seconds.
void mtx_limit_time(mtx_limit *l, double seconds);

#endif
