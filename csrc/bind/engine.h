// SPDX-License-Identifier: MIT
// For bindings that live on an engine (sessions).
#ifndef MTX_BIND_ENGINE_H
#define MTX_BIND_ENGINE_H

#include <lua.h>

#include "engine/engine.h"

typedef struct mtx_bind_engine {
  mtx_engine *engine;     // NULL once closed
  int n_out;              // floats of an output row
  int n_sessions;         // sessions open on it: close waits for them
} mtx_bind_engine;

mtx_bind_engine *mtx_bind_check_engine(lua_State *L, int idx);
// Empties the handle at idx and gives its engine, NULL when it is closed; raises while sessions are open on it.
mtx_engine *mtx_bind_take_engine(lua_State *L, int idx);
// engine:session(), engine:eval() and the type they work on.
int mtx_bind_engine_session(lua_State *L);
int mtx_bind_engine_eval(lua_State *L);
void mtx_bind_session_type(lua_State *L);
// store.c: methods of the engine.
int mtx_bind_engine_save_prefix(lua_State *L);
int mtx_bind_engine_load_prefix(lua_State *L);
int mtx_bind_engine_forget_prefix(lua_State *L);
int mtx_bind_engine_set_disk(lua_State *L);

#endif
