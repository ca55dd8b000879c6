// SPDX-License-Identifier: MIT
// Sampler functions written in Lua, run on the engine's thread.
#ifndef MTX_BIND_SCRIPT_H
#define MTX_BIND_SCRIPT_H

#include <lua.h>

#include "engine/engine.h"

// From field `sampler_script` of the request at `idx`: {code = text of a Lua chunk, args = {strings}}; raises when
// it is malformed. Pushes a userdata that owns the hook (pick is NULL when the field is absent) until the caller
// has moved it out and cleared it.
mtx_token_hook *mtx_bind_script_hook(lua_State *L, int idx);

#endif
