// SPDX-License-Identifier: MIT
// Collects the bindings of every type into the module table `mtx.core`.
#include "bind/core.h"

#include <lauxlib.h>

int luaopen_mtx_core(lua_State *L) {
  lua_newtable(L);
  return 1;
}
