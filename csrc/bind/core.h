// SPDX-License-Identifier: MIT
// The one C module that Lua sees: require "mtx.core".
#ifndef MTX_BIND_CORE_H
#define MTX_BIND_CORE_H

#include <lauxlib.h>
#include <lua.h>
#include <stdint.h>

#include "base/err.h"

__attribute__((visibility("default"))) int luaopen_mtx_core(lua_State *L);

// Pushes nil, "file: key: message", "code"; returns 3: `return mtx_bind_fail(L, &err);`
int mtx_bind_fail(lua_State *L, const mtx_err *err);

// Makes the metatable `name` with `meta` and, as its __index, a table of `methods` (either may be NULL).
void mtx_bind_new_type(lua_State *L, const char *name, const luaL_Reg *meta, const luaL_Reg *methods);

// t[name] = v for the table on top of the stack.
void mtx_bind_set_integer(lua_State *L, const char *name, int64_t v);
void mtx_bind_set_number(lua_State *L, const char *name, double v);

// Openers, one per file of this folder, listed in core.c.
int mtx_bind_gguf(lua_State *L);
int mtx_bind_safetensors(lua_State *L);
int mtx_bind_json(lua_State *L);
int mtx_bind_memory_cap(lua_State *L);
int mtx_bind_limit(lua_State *L);
int mtx_bind_pattern(lua_State *L);
int mtx_bind_join_marked(lua_State *L);
int mtx_bind_notify(lua_State *L);
int mtx_bind_short_slices(lua_State *L);
int mtx_bind_sha256(lua_State *L);
int mtx_bind_tok(lua_State *L);
int mtx_bind_grammar(lua_State *L);
int mtx_bind_tensor(lua_State *L);
int mtx_bind_sampler(lua_State *L);
int mtx_bind_model_open(lua_State *L);
int mtx_bind_engine_open(lua_State *L);
int mtx_bind_trim_prompts(lua_State *L);
int mtx_bind_forget_prompts(lua_State *L);

#endif
