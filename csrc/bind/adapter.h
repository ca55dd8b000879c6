// SPDX-License-Identifier: MIT
// For bindings that take adapters: requests, sessions, embeddings.
#ifndef MTX_BIND_ADAPTER_H
#define MTX_BIND_ADAPTER_H

#include <lua.h>

#include "engine/engine.h"

// The set in field `name` of the table at idx, borrowed; NULL = none, or a set of none.
mtx_lora *mtx_bind_opt_lora(lua_State *L, int idx, const char *name);
// Methods of the model, and the types they make.
int mtx_bind_model_adapter(lua_State *L);
int mtx_bind_model_start_adapter(lua_State *L);
int mtx_bind_model_lora(lua_State *L);
void mtx_bind_adapter_types(lua_State *L);

#endif
