// SPDX-License-Identifier: MIT
// The one C module that Lua sees: require "mtx.core".
#ifndef MTX_BIND_CORE_H
#define MTX_BIND_CORE_H

#include <lua.h>

#include "base/err.h"

__attribute__((visibility("default"))) int luaopen_mtx_core(lua_State *L);

// Pushes nil, "file: key: message", "code"; returns 3: `return mtx_bind_fail(L, &err);`
int mtx_bind_fail(lua_State *L, const mtx_err *err);

// Openers, one per file of this folder, listed in core.c.
int mtx_bind_gguf(lua_State *L);
int mtx_bind_memory_cap(lua_State *L);
int mtx_bind_sha256(lua_State *L);
int mtx_bind_tok(lua_State *L);
int mtx_bind_grammar(lua_State *L);
int mtx_bind_tensor(lua_State *L);
int mtx_bind_sampler(lua_State *L);
int mtx_bind_model_open(lua_State *L);
int mtx_bind_engine_open(lua_State *L);

#endif
