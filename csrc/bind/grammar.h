// SPDX-License-Identifier: MIT
// For bindings that take a grammar (engines).
#ifndef MTX_BIND_GRAMMAR_H
#define MTX_BIND_GRAMMAR_H

#include <lua.h>

#include "grammar/grammar.h"

// The grammar at stack index idx; raises when it is none or closed. Borrowed.
mtx_grammar *mtx_bind_check_grammar(lua_State *L, int idx);

#endif
