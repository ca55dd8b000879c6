// SPDX-License-Identifier: MIT
// A Lua chunk with its arguments as bytes: what one Lua state gives another one
// that works for it on another thread.
#ifndef MTX_BIND_CHUNK_H
#define MTX_BIND_CHUNK_H

#include <lua.h>
#include <stddef.h>

enum { MTX_CHUNK_MAX_ARGS = 16 };

typedef struct {
  char *text[MTX_CHUNK_MAX_ARGS + 1];  // code, then the arguments; owned
  size_t len[MTX_CHUNK_MAX_ARGS + 1];
  int n_args;
} mtx_chunk;

// Copies {code = text, args = {texts}} at `idx` into *c, which the caller owns and has emptied. Raises when the table
// is malformed, naming `what`.
void mtx_chunk_read(lua_State *L, int idx, const char *what, mtx_chunk *c);
// Pushes the compiled chunk; raises when it is no Lua.
void mtx_chunk_push_code(lua_State *L, const mtx_chunk *c, const char *name);
void mtx_chunk_push_args(lua_State *L, const mtx_chunk *c);
void mtx_chunk_fini(mtx_chunk *c);

#endif
