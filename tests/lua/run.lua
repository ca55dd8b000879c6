-- SPDX-License-Identifier: MIT
-- Runs one LuaUnit file: `mtx tests/lua/run.lua tests/lua/test_X.lua`
-- (or plain lua5.4 for modules that need no C). The file defines global
-- tables named Test*; the last line printed is "N passed, N failed".
local root = arg[0]:match("^(.*)tests/lua/run%.lua$") or "./"
package.path = root .. "lua/?.lua;" .. root .. "lua/?/init.lua;" .. root .. "tests/lua/?.lua;" .. package.path
local lu = require("luaunit")
dofile(arg[1])
local runner = lu.LuaUnit.new()
runner:setOutputType("text")
local n_failed = runner:runSuite("-v")
if package.loaded.temp then package.loaded.temp.remove() end
local r = runner.result
if r.skippedCount and r.skippedCount > 0 then n_failed = n_failed + r.skippedCount end
print(string.format("%d passed, %d failed", r.successCount, n_failed))
os.exit(n_failed == 0)
