// SPDX-License-Identifier: MIT
// For bindings that take an opened GGUF as an argument.
#ifndef MTX_BIND_GGUF_H
#define MTX_BIND_GGUF_H

#include <lua.h>

#include "gguf/gguf.h"

// The handle at stack index `idx`; raises when it is none or closed. Borrowed:
// a userdata that keeps pointers into it pins it by a user value.
mtx_gguf *mtx_bind_check_gguf(lua_State *L, int idx);

// gguf.write, in gguf_write.c.
int mtx_bind_gguf_write(lua_State *L);

#endif
