// SPDX-License-Identifier: MIT
// The one C module that Lua sees: require "mtx.core".
#ifndef MTX_BIND_CORE_H
#define MTX_BIND_CORE_H

#include <lua.h>

__attribute__((visibility("default"))) int luaopen_mtx_core(lua_State *L);

#endif
