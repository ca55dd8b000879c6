-- SPDX-License-Identifier: MIT
-- `luarocks --lua-version 5.4 make mtx-scm-1.rockspec` installs mtx as a Lua module. lua-cjson and
-- luv are needed by the server and some commands only, so they are not required here.
package = "mtx"
version = "scm-1"
source = { url = "git+file://." }
description = {
  summary = "A runtime for large language models that you can own and script",
  license = "MIT",
}
supported_platforms = { "linux" }
dependencies = { "lua >= 5.4, < 5.5" }
build = {
  type = "make",
  build_target = "module",
  install_target = "install-module",
  install_variables = { LUADIR = "$(LUADIR)", LIBDIR = "$(LIBDIR)" },
}
