// SPDX-License-Identifier: MIT
// mtx.core.notify: one datagram to a service manager's socket, as sd_notify(3)
// describes it. luv has no datagram Unix sockets.
#include <errno.h>
#include <lauxlib.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "bind/core.h"

// notify(path, text) -> true. path: of $NOTIFY_SOCKET; a leading @ is an abstract name.
static int l_notify(lua_State *L) {
  size_t n, len;
  const char *path = luaL_checklstring(L, 1, &n), *text = luaL_checklstring(L, 2, &len);
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  mtx_err err;
  if (n < 2 || n >= sizeof to.sun_path || (path[0] != '/' && path[0] != '@')) {
    mtx_fail_at(&err, MTX_EINVAL, path, NULL, 0, "no socket's name: an absolute path or @NAME of at most %zu bytes", sizeof to.sun_path - 1);
    return mtx_bind_fail(L, &err);
  }
  memcpy(to.sun_path, path, n);
  if (path[0] == '@') to.sun_path[0] = 0;
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ssize_t sent = fd < 0 ? -1 : sendto(fd, text, len, MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
  int why = errno;
  if (fd >= 0) close(fd);
  if (sent == (ssize_t)len) {
    lua_pushboolean(L, 1);
    return 1;
  }
  mtx_fail_at(&err, MTX_EIO, path, NULL, 0, "cannot notify: %s", sent < 0 ? strerror(why) : "cut short");
  return mtx_bind_fail(L, &err);
}

int mtx_bind_notify(lua_State *L) {
  lua_pushcfunction(L, l_notify);
  return 1;
}
