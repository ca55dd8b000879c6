// SPDX-License-Identifier: MIT
// For bindings that own a tokenizer (a model).
#ifndef MTX_BIND_TOK_H
#define MTX_BIND_TOK_H

#include <lua.h>

#include "tok/tok.h"

// Pushes a tokenizer that belongs to the userdata at `owner`, which it keeps alive.
// Closing it only closes the Lua handle.
void mtx_bind_push_tok(lua_State *L, mtx_tok *t, int owner);

#endif
