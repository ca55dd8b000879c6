-- SPDX-License-Identifier: MIT
-- What reading an answer costs while it streams: microseconds a token (4 bytes) for every tool-call
-- format, in a plain text, in a thought and in the arguments of a call. Slowest first.
--
--   mtx tests/bench/bench_parse.lua
package.path = "tests/lua/?.lua;" .. package.path
local json = require("mtx.json")
local parse = require("mtx.parse")
local turns = require("template_turns")

local REPEATS, TOKEN_BYTES = 5, 4
local PROSE = ("The train to the coast leaves at nine, and the ferry an hour later; is x < y? "):rep(40)

local function pieces(text)
  local list = {}
  for i = 1, #text, TOKEN_BYTES do list[#list + 1] = text:sub(i, i + TOKEN_BYTES - 1) end
  return list
end

local function cost(options, text)
  local list, best = pieces(text), math.huge
  for _ = 1, REPEATS do
    local p, start = parse.new(options), os.clock()
    for i = 1, #list do p:feed(list[i]) end
    p:finish()
    best = math.min(best, os.clock() - start)
  end
  return best * 1e6 / #list
end

-- A template of each format, and a turn of it with long parts.
local rows, seen = {}, {}
for _, name in ipairs(turns.templates()) do
  local source, show, can = turns.renderer(name)
  local format, thoughts = parse.detect(source), parse.thoughts(source)
  if can.tool_calls and not seen[format.name] then
    seen[format.name] = true
    local call = turns.call("abcdefgh1", "get_weather", json.encode(json.object("city", PROSE)))
    local output, prompt = turns.written(name, show, { role = "assistant", content = "", reasoning_content = thoughts and PROSE or nil, tool_calls = json.array{ call } }, thoughts)
    local options = { template = source, tools = turns.TOOLS, opened = output ~= nil and parse.opened(source, prompt) }
    rows[#rows + 1] = { format.name, cost(options, output or prompt), cost({ template = source, tools = turns.TOOLS }, PROSE) }
  end
end
table.sort(rows, function(a, b) return math.max(a[2], a[3]) > math.max(b[2], b[3]) end)
for _, row in ipairs(rows) do print(("%-14s %6.2f us in a turn with a call   %6.2f us in plain text"):format(row[1], row[2], row[3])) end
