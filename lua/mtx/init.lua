-- SPDX-License-Identifier: MIT
-- What `require "mtx"` gives: the C core plus the Lua layer above it.
local core = require("mtx.core")

local mtx = { core = core }

return mtx
