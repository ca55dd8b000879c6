// SPDX-License-Identifier: MIT
// The engine's handle, and its methods that stand in files of their own.
#ifndef MTX_BIND_ENGINE_H
#define MTX_BIND_ENGINE_H

#include <lua.h>

#include "engine/engine.h"

// User value 1 pins the model.
typedef struct mtx_bind_engine {
  mtx_engine *engine;     // NULL once closed
  struct mtx_bind_model *model;
  int n_out;              // floats of an output row
  int n_users;            // sessions and tasks: it is not closed before them
} mtx_bind_engine;

mtx_bind_engine *mtx_bind_check_engine(lua_State *L, int idx);
// Empties the handle at idx and gives its engine, NULL when it is closed; raises while it has users.
mtx_engine *mtx_bind_take_engine(lua_State *L, int idx);
// request.c
int mtx_bind_engine_submit(lua_State *L);
// events.c, with the type that holds events while they become tables.
int mtx_bind_engine_drain(lua_State *L);
void mtx_bind_events_type(lua_State *L);
// embed.c
int mtx_bind_engine_embed(lua_State *L);
int mtx_bind_engine_embed_submit(lua_State *L);
void mtx_bind_push_vectors(lua_State *L, const float *v, int64_t n, int64_t width);  // a list of n vectors of `width` numbers each
// session.c: engine:session(), engine:eval() and the type they work on.
int mtx_bind_engine_session(lua_State *L);
int mtx_bind_engine_eval(lua_State *L);
void mtx_bind_session_type(lua_State *L);
// store.c: methods of the engine.
int mtx_bind_engine_save_prefix(lua_State *L);
int mtx_bind_engine_load_prefix(lua_State *L);
int mtx_bind_engine_forget_prefix(lua_State *L);
int mtx_bind_engine_set_disk(lua_State *L);
int mtx_bind_engine_store_disk(lua_State *L);
int mtx_bind_engine_start(lua_State *L);

#endif
