// SPDX-License-Identifier: MIT
// Model folders are understood by Lua (lua/mtx/hf), and reading a large tokenizer
// takes a second: not for the thread of an event loop. So the loading thread makes
// a Lua state of its own, which is gone before the weights are packed.
#include "bind/reader.h"

#include <lauxlib.h>
#include <lualib.h>
#include <stdatomic.h>
#include <string.h>

#include "bind/core.h"
#include "bind/gguf.h"

enum { INSTRUCTIONS_BETWEEN_LOOKS = 100000 };

static const _Atomic bool **stop_of(lua_State *L) { return lua_getextraspace(L); }

static void look(lua_State *L, lua_Debug *d) {
  if (atomic_load(*stop_of(L))) luaL_error(L, "loading was cancelled");
}

static int run(lua_State *L) {
  const mtx_chunk *c = lua_touserdata(L, 1);
  lua_settop(L, 0);
  luaL_openlibs(L);
  luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
  lua_pushcfunction(L, luaopen_mtx_core);
  lua_setfield(L, -2, "mtx.core");
  lua_settop(L, 0);
  mtx_chunk_push_code(L, c, "=reader");
  mtx_chunk_push_args(L, c);
  lua_call(L, c->n_args, 3);
  return 3;
}

static mtx_code code_named(const char *name) {
  for (mtx_code c = MTX_EINVAL; c <= MTX_EINTERNAL; c++)
    if (name && strcmp(mtx_code_name(c), name) == 0) return c;
  return MTX_EFORMAT;
}

mtx_code mtx_bind_reader_run(const mtx_chunk *c, const _Atomic bool *stop, mtx_gguf **out, mtx_err *err) {
  *out = NULL;
  lua_State *L = luaL_newstate();
  if (!L) return mtx_fail(err, MTX_ENOMEM, "no memory to read the model");
  *stop_of(L) = stop;
  if (stop) lua_sethook(L, look, LUA_MASKCOUNT, INSTRUCTIONS_BETWEEN_LOOKS);
  lua_pushcfunction(L, run);
  lua_pushlightuserdata(L, (void *)c);
  int rc = lua_pcall(L, 1, 3, 0);
  lua_sethook(L, NULL, 0, 0);
  mtx_code code = MTX_OK;
  if (rc != LUA_OK) {
    const char *msg = lua_tostring(L, -1);
    bool stopped = stop && atomic_load(stop);
    code = rc == LUA_ERRMEM ? MTX_ENOMEM : stopped ? MTX_ECANCELLED : MTX_EINTERNAL;
    mtx_fail(err, code, "%s", stopped ? "loading was cancelled" : msg ? msg : "the reader of the model failed");
  } else if (mtx_bind_test_gguf(L, -3)) {
    *out = mtx_bind_take_gguf(L, -3);
  } else {
    const char *msg = lua_tostring(L, -2);
    code = mtx_fail(err, code_named(lua_tostring(L, -1)), "%s", msg ? msg : "the reader of the model gave none");
  }
  lua_close(L);
  return code;
}
