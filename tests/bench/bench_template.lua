-- SPDX-License-Identifier: MIT
-- How long every golden chat template takes for a chat of 50 messages with tools, as
-- the server renders it (folding and spans included): milliseconds, slowest first.
--
--   mtx tests/bench/bench_template.lua [NAME...]     the named templates only
local infile = require("mtx.infile")
local json = require("mtx.json")
local render = require("mtx.chat.render")

local GOLDEN = "tests/golden/chat/"
local REPEATS = 25

local function read(path) return assert(infile.read(path)) end

local function tool(name, ...)
  local properties = json.object()
  for _, key in ipairs({ ... }) do properties[key] = json.object("type", "string", "description", "the " .. key .. " of the call") end
  return json.object("type", "function", "function", json.object("name", name, "description", "Does " .. name .. " and says what came of it.",
    "parameters", json.object("type", "object", "properties", properties, "required", json.array({ (...) }))))
end

-- 50 messages: a system turn, then a question, a call, its result, an answer, and so on; the last is a question.
local function conversation()
  local messages = json.array({ json.object("role", "system", "content", "You help with travel. Be short and exact.") })
  local words = ("The train to the coast leaves at nine and the ferry an hour later. "):rep(4)
  local i = 0
  while #messages < 49 do
    i = i + 1
    local call = json.object("id", ("call%05d"):format(i), "type", "function", "function",
      json.object("name", "get_weather", "arguments", json.object("city", "Porto " .. i, "day", "tomorrow")))
    messages[#messages + 1] = json.object("role", "user", "content", words .. "Question " .. i)
    messages[#messages + 1] = json.object("role", "assistant", "content", "", "tool_calls", json.array({ call }))
    messages[#messages + 1] = json.object("role", "tool", "tool_call_id", ("call%05d"):format(i), "name", "get_weather", "content", '{"temperature": 21, "sky": "clear"}')
    messages[#messages + 1] = json.object("role", "assistant", "content", words .. "Answer " .. i)
  end
  messages[#messages + 1] = json.object("role", "user", "content", "And now?")
  return { messages = messages, tools = json.array({ tool("get_weather", "city", "day"), tool("find_train", "from", "to", "time"), tool("book", "what") }) }
end

local chosen = {}
for _, name in ipairs(arg) do chosen[name] = true end

local rows, request = {}, conversation()
local tokens = assert(json.decode(read(GOLDEN .. "tokens.json")))
for name, special in pairs(tokens) do
  if #arg == 0 or chosen[name] then
    local r = assert(render.new({ template = read(GOLDEN .. "templates/" .. name .. ".jinja"), name = name,
      bos_token = special.bos_token, eos_token = special.eos_token, now = "2026-03-14 15:09:26" }))
    local best, text, message = math.huge, nil, nil
    for _ = 1, REPEATS do
      local start = os.clock()
      text, message = r:render(request)
      best = math.min(best, os.clock() - start)
    end
    rows[#rows + 1] = { name = name, ms = best * 1e3, note = text and ("%d bytes"):format(#text) or "refuses: " .. message:sub(1, 50) }
  end
end
table.sort(rows, function(a, b) return a.ms > b.ms end)
for _, row in ipairs(rows) do print(("%-56s %8.3f ms   %s"):format(row.name, row.ms, row.note)) end
