// SPDX-License-Identifier: MIT
// For bindings that take an opened GGUF as an argument.
#ifndef MTX_BIND_GGUF_H
#define MTX_BIND_GGUF_H

#include <lua.h>

#include "gguf/gguf.h"
#include "gguf/write.h"

// The handle at stack index `idx`; raises when it is none or closed. Borrowed:
// a userdata that keeps pointers into it pins it by a user value.
mtx_gguf *mtx_bind_check_gguf(lua_State *L, int idx);
// The same when the value is such a handle; NULL for anything else.
mtx_gguf *mtx_bind_test_gguf(lua_State *L, int idx);
// Pushes an empty handle; what the caller stores through the result is the handle's own.
mtx_gguf **mtx_bind_push_gguf(lua_State *L);
// Pushes a handle to a file that the value at `owner` owns and closes; the handle is to be closed before.
void mtx_bind_lend_gguf(lua_State *L, mtx_gguf *g, int owner);
// Closes the handle at `idx` without closing the file, which is the caller's now.
mtx_gguf *mtx_bind_take_gguf(lua_State *L, int idx);

// gguf.write, in gguf_write.c.
int mtx_bind_gguf_write(lua_State *L);

// In gguf_convert.c: gguf.types, and an entry of gguf.write (the table at index `entry`) that has a type as well as a file. Pushes what has to
// live until the file is written (or nil).
int mtx_bind_gguf_types(lua_State *L);
mtx_code mtx_bind_add_as(lua_State *L, mtx_gguf_writer *w, int entry, const mtx_gguf *g, const mtx_gguf_tensor *t, int n_threads, mtx_err *err);

#endif
