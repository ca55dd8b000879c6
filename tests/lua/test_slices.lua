-- SPDX-License-Identifier: MIT
-- core.short_slices: what it must not change.
local lu = require("luaunit")
local temp = require("temp")

local MTX = (os.getenv("BUILD") or "build") .. "/mtx"

-- A program's own nice value, whether it was given short slices, and the nice value of a program that it starts.
local SCRIPT = [[
local stat = io.open("/proc/self/stat"):read("a"):match("%) (.*)")
local fields = {}
for f in stat:gmatch("%S+") do fields[#fields + 1] = f end
local short = require("mtx.core").short_slices()
print(fields[17], short, io.popen("nice"):read("n"))
]]

TestShortSlices = {}

-- Threads and programs that come after it keep the priority that a user gave to all (a negative one only root can give).
function TestShortSlices.test_the_nice_value_is_handed_on()
  local script = temp.file(SCRIPT, ".lua")
  for _, nice in ipairs({ -5, 0, 5 }) do
    local pipe = assert(io.popen(("nice -n %d %s %s 2>&1"):format(nice, MTX, script)))
    local text = pipe:read("a")
    pipe:close()
    local own, short, child = text:match("(%-?%d+)%s+(%a+)%s+(%-?%d+)%s*$")
    lu.assertNotNil(own, text)
    lu.assertEquals(child, own)
    if tonumber(own) < 0 then lu.assertEquals(short, "false") end
  end
end
