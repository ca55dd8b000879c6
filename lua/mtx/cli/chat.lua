-- SPDX-License-Identifier: MIT
-- The interactive chat of `mtx run MODEL`.
local editor = require("mtx.cli.editor")
local infile = require("mtx.infile")
local json = require("mtx.json")
local sampling = require("mtx.cli.sampling")
local sorted_keys = require("mtx.sorted_keys")
local term = require("mtx.cli.term")
local whole_file = require("mtx.whole_file")

local chat = {}

local HELP = [[
/set NAME VALUE   change a number: temperature, top_k, top_p, min_p, seed, ... (the
                  options of `mtx run --help`), or n, the tokens of an answer
/show             the options in use
/system TEXT      set the system message (and keep the conversation)
/clear            forget the conversation
/save FILE        write the conversation as JSON
/load FILE        read one back
/help, /?         this list
/bye              leave (or Ctrl-D)
A line ending in \ goes on; """ starts and ends a block; a pasted text is one
message. Ctrl-C stops an answer.]]

local function say(text) io.stdout:write(term.paint(text, "dim"), "\n") end

local function messages_of(state)
  local list = {}
  if state.system then list[1] = { role = "system", content = state.system } end
  return table.move(state.turns, 1, #state.turns, #list + 1, list)
end

local COMMANDS = {}

function COMMANDS.help() say(HELP) end
COMMANDS["?"] = COMMANDS.help

function COMMANDS.clear(state)
  state.turns = {}
  say("forgotten")
end

function COMMANDS.system(state, text)
  state.system = text ~= "" and text or nil
  say(state.system and "system message set" or "no system message")
end

function COMMANDS.show(state)
  for _, name in ipairs(sorted_keys(state.base)) do say(name .. " " .. tostring(state.base[name])) end
  if state.values.n then say("n " .. state.values.n) end
end

function COMMANDS.set(state, text)
  local name, value = text:match("^(%S+)%s+(%S+)$")
  local number = tonumber(value)
  if not name or not number then return say("usage: /set NAME NUMBER, for example /set temperature 0.2") end
  number = math.tointeger(number) or number
  if name == "n" or name == "max_tokens" then
    if math.type(number) ~= "integer" or number < 0 then return say("n must be a whole number from 0") end
    state.values.n = number
  else
    local field, message = sampling.set(state.base, name, number)
    if not field then return say(message) end
    name = field
  end
  say(name .. " " .. number)
end

function COMMANDS.save(state, path)
  if path == "" then return say("usage: /save FILE") end
  local ok, message = whole_file.write(path, json.encode({ system = state.system, messages = json.array(table.move(state.turns, 1, #state.turns, 1, {})) }) .. "\n")
  if not ok then return say("cannot write " .. path .. ": " .. message) end
  say("saved " .. #state.turns .. " messages")
end

function COMMANDS.load(state, path)
  if path == "" then return say("usage: /load FILE") end
  local text, message = infile.read(path)
  if not text then return say(message) end
  local saved
  saved, message = json.decode(text)
  if type(saved) ~= "table" or type(saved.messages) ~= "table" then return say(path .. ": not a saved conversation" .. (message and (": " .. message) or "")) end
  local turns = {}
  for _, m in ipairs(saved.messages) do
    if type(m) == "table" and type(m.role) == "string" and type(m.content) == "string" then turns[#turns + 1] = { role = m.role, content = m.content } end
  end
  state.turns, state.system = turns, type(saved.system) == "string" and saved.system or nil
  say("loaded " .. #turns .. " messages")
end

local function turn(state, tools, text)
  state.turns[#state.turns + 1] = { role = "user", content = text }
  local request = tools.request_of(tools.values, state.base, messages_of(state))
  request.cache_key = "chat" -- without a key nothing is kept for the next turn
  local result, message, code = tools.answer(state.model, request)
  if not result then
    table.remove(state.turns)
    io.stderr:write("mtx: ", message, code == "limit" and "; /clear forgets the conversation" or "", "\n")
    return
  end
  state.turns[#state.turns + 1] = { role = "assistant", content = result.text }
  if tools.values.stats then tools.print_stats(state.model, result) end
end

-- tools: what run.lua lends: values, base, answer, request_of, print_stats.
function chat.run(model, tools)
  local state = { model = model, values = tools.values, base = tools.base, turns = {}, system = tools.values.system }
  for _, m in ipairs(tools.values.first_turns or {}) do state.turns[#state.turns + 1] = m end
  local home = os.getenv("XDG_STATE_HOME") or os.getenv("HOME")
  local input = editor.new({
    history = home and (home .. "/.mtx_history"),
    complete = function(word)
      local found = {}
      for name in pairs(COMMANDS) do
        if ("/" .. name):sub(1, #word) == word and word:sub(1, 1) == "/" then found[#found + 1] = "/" .. name end
      end
      table.sort(found)
      return found
    end,
  })
  say("Chat with " .. (model:info().name or "the model") .. ". /help lists commands, Ctrl-D leaves.")
  while true do
    local text, why = input:paragraph(term.paint("> ", "bold"))
    if why == "end" then return 0 end
    if text and text:match("%S") then
      local name, rest = text:match("^/([%a?]+)%s*(.-)%s*$")
      if name == "bye" or name == "exit" or name == "quit" then return 0 end
      if name and COMMANDS[name] then COMMANDS[name](state, rest)
      elseif name then say("no command /" .. name .. "; /help lists them")
      else turn(state, tools, text) end
    end
  end
end

return chat
