// SPDX-License-Identifier: MIT
// For bindings that take a grammar (engines, matchers).
#ifndef MTX_BIND_GRAMMAR_H
#define MTX_BIND_GRAMMAR_H

#include <lua.h>

#include "grammar/grammar.h"

// The grammar at stack index idx; raises when it is none or closed. Borrowed.
mtx_grammar *mtx_bind_check_grammar(lua_State *L, int idx);

// grammar:matcher([model]) -> mtx.matcher
int mtx_bind_matcher(lua_State *L);
// Makes the type mtx.matcher.
void mtx_bind_matcher_type(lua_State *L);

#endif
