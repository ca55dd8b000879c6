// SPDX-License-Identifier: MIT
// The `mtx` program: a Lua 5.4 interpreter with the core preloaded. Everything
// a user sees (commands, options, help) is in lua/mtx/cli.
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bind/core.h"

// Lua sources lie in ../share/mtx of an installed program, or in the checkout
// beside the build folder (any depth: build/mtx, build/asan/mtx).
static int find_root(char *dst, size_t cap) {
  char exe[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
  if (n <= 0) return 0;
  exe[n] = 0;
  for (int up = 0; up < 4; up++) {
    char *slash = strrchr(exe, '/');
    if (!slash) return 0;
    *slash = 0;
    static const char *const tails[] = {"/share/mtx", ""};
    for (int i = 0; i < 2; i++) {
      char probe[PATH_MAX + 64];
      snprintf(probe, sizeof probe, "%s%s/lua/mtx/init.lua", exe, tails[i]);
      if (access(probe, R_OK) == 0) return snprintf(dst, cap, "%s%s", exe, tails[i]) < (int)cap;
    }
  }
  return 0;
}

static int traceback(lua_State *L) {
  const char *msg = lua_tostring(L, 1);
  if (msg) luaL_traceback(L, L, msg, 1);
  return 1;
}

// Everything that may raise runs in here, protected.
static int host(lua_State *L) {
  int argc = (int)lua_tointeger(L, 1);
  char **argv = lua_touserdata(L, 2);
  luaL_openlibs(L);
  luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
  lua_pushcfunction(L, luaopen_mtx_core);
  lua_setfield(L, -2, "mtx.core");
  lua_pop(L, 1);

  char root[PATH_MAX + 64];
  if (!find_root(root, sizeof root))
    return luaL_error(L, "mtx cannot find its Lua files (lua/mtx/init.lua) beside the program; reinstall with `make install`");
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "path");
  lua_pushfstring(L, "%s/lua/?.lua;%s/lua/?/init.lua;%s", root, root, lua_tostring(L, -1));
  lua_setfield(L, -3, "path");
  lua_pop(L, 2);

  lua_createtable(L, argc, 1);
  for (int i = 0; i < argc; i++) {
    lua_pushstring(L, argv[i]);
    lua_rawseti(L, -2, i);
  }
  lua_setglobal(L, "arg");
  lua_getglobal(L, "require");
  lua_pushliteral(L, "mtx.cli");
  lua_call(L, 1, 1);
  lua_getglobal(L, "arg");
  lua_pushstring(L, root);
  lua_call(L, 2, 1);  // mtx.cli returns main(arg, root) -> exit code
  return 1;
}

// The event loop's handles and requests must end before the state does.
static int finish(lua_State *L) {
  lua_getglobal(L, "require");
  lua_pushliteral(L, "mtx.loop");
  lua_call(L, 1, 1);
  lua_getfield(L, -1, "finish");
  lua_call(L, 0, 0);
  return 0;
}

int main(int argc, char **argv) {
  lua_State *L = luaL_newstate();
  if (!L) {
    fputs("mtx: not enough memory to start Lua\n", stderr);
    return 1;
  }
  lua_pushcfunction(L, traceback);
  lua_pushcfunction(L, host);
  lua_pushinteger(L, argc);
  lua_pushlightuserdata(L, argv);
  int rc = 1;
  if (lua_pcall(L, 2, 1, 1) == LUA_OK) {
    rc = (int)lua_tointeger(L, -1);
  } else {
    const char *msg = lua_tostring(L, -1);
    fprintf(stderr, "mtx: %s\n", msg ? msg : "error object is not a string");
  }
  lua_pushcfunction(L, finish);
  (void)lua_pcall(L, 0, 0, 0);  // fails where mtx's Lua files were not found: then there is no loop
  lua_close(L);
  if (fflush(stdout) | ferror(stdout)) {  // print() does not tell
    fputs("mtx: the output could not be written whole\n", stderr);
    if (!rc) rc = 1;
  }
  return rc;
}
