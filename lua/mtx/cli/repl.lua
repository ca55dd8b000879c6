-- SPDX-License-Identifier: MIT
-- `mtx repl [MODEL]`: a Lua prompt with mtx, and the model, at hand.
local args = require("mtx.cli.args")
local editor = require("mtx.cli.editor")
local open = require("mtx.cli.open")
local term = require("mtx.cli.term")
local uv = require("luv")

local repl = { name = "repl", summary = "a Lua prompt with mtx and a model loaded" }

local options = open.with({})

repl.help = [==[
usage: mtx repl [MODEL] [options]

Globals: mtx, model when MODEL is given, and help (first steps). An expression's value is printed;
tables and tensors are shown with their contents. Tab completes names, the up
arrow recalls lines, Ctrl-C ends what runs, Ctrl-D leaves.

]==] .. args.help(options)

-- What `help` shows.
local FIRST_STEPS = [==[
model = assert(mtx.load("FILE.gguf"))                      a model (`mtx repl FILE.gguf` has it loaded)
model:generate{ prompt = "...", max_tokens = 20 }          an answer; model:stream{...} gives it piece by piece
s = model:session(); l = s:eval(model:tokenize("..."))     the logits behind a text: l:argmax(), l:topk(5), l:softmax()
mtx.quantize{ from = "A.gguf", to = "B.gguf", type = "Q4_K_M" }
Tab completes names (mtx., model:). Every function is described in lua/mtx/meta, programs are in examples/.]==]

local MAX_ITEMS, MAX_DEPTH = 24, 3

local show

local function show_table(t, indent, depth)
  local parts, n = {}, 0
  for i = 1, math.min(#t, MAX_ITEMS) do parts[#parts + 1] = show(t[i], indent .. "  ", depth + 1) end
  if #t > MAX_ITEMS then parts[#parts + 1] = ("... %d items"):format(#t) end
  local names = {}
  for k in pairs(t) do
    if not (math.type(k) == "integer" and k >= 1 and k <= #t) then names[#names + 1] = k end
  end
  table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
  for _, k in ipairs(names) do
    n = n + 1
    if n > MAX_ITEMS then
      parts[#parts + 1] = ("... %d keys"):format(#names)
      break
    end
    local key = type(k) == "string" and k:match("^[%a_][%w_]*$") and k or ("[" .. show(k, "", MAX_DEPTH) .. "]")
    parts[#parts + 1] = key .. " = " .. show(t[k], indent .. "  ", depth + 1)
  end
  local flat = "{ " .. table.concat(parts, ", ") .. " }"
  if #parts == 0 then return "{}" end
  if #flat <= 100 and not flat:find("\n") then return flat end
  return "{\n" .. indent .. "  " .. table.concat(parts, ",\n" .. indent .. "  ") .. "\n" .. indent .. "}"
end

function show(v, indent, depth)
  if type(v) == "string" then return ("%q"):format(v):gsub("\\\n", "\\n") end
  if type(v) == "table" and not (getmetatable(v) or {}).__tostring then
    return depth >= MAX_DEPTH and "{...}" or show_table(v, indent, depth)
  end
  return tostring(v)
end

-- The printed form of any value.
function repl.show(v) return (show(v, "", 0)) end

-- Names that may stand where `word` is being typed.
local function candidates(word)
  local path, last = word:match("^(.-)([%w_]*)$")
  local at = _G
  for name in path:gmatch("[%w_]+") do
    local ok, value = pcall(function() return at[name] end)
    at = ok and value
    if at == nil then return {} end
  end
  local meta = getmetatable(at)
  local index = type(at) == "table" and at or (type(meta) == "table" and type(meta.__index) == "table" and meta.__index)
  local found = {}
  for name in pairs(type(index) == "table" and index or {}) do
    if type(name) == "string" and name:sub(1, #last) == last then found[#found + 1] = path .. name end
  end
  table.sort(found)
  return found
end

local INTERRUPTED = "interrupted"

-- Calls `chunk` so that Ctrl-C ends it and not the program: a hook looks for the signal
-- now and then. -> as xpcall
local function interruptible(chunk)
  local hit, inside = false, false
  local signal = uv.new_signal()
  signal:start("sigint", function() hit = true end)
  debug.sethook(function()
    if inside then return end -- the input runs the event loop itself, which sees to the signal
    inside = true
    uv.run("nowait")
    inside = false
    if hit then
      hit = false
      error(INTERRUPTED, 0)
    end
  end, "", 1000)
  local results = table.pack(xpcall(chunk, function(message)
    if message == INTERRUPTED then return INTERRUPTED end
    local trace = debug.traceback(message, 2)
    return trace:match("^(.*)\n%s*%[C%]: in function 'xpcall'") or trace -- what lies below the input is the prompt's own
  end))
  debug.sethook()
  signal:stop()
  signal:close()
  uv.run("nowait")
  return table.unpack(results, 1, results.n)
end

-- Runs one input. -> true; false when more lines are needed; else nil after printing the error.
local function evaluate(text)
  local chunk, message = load("return " .. text, "=repl", "t")
  if not chunk then chunk, message = load(text, "=repl", "t") end
  if not chunk then
    if message:match("<eof>$") or message:match("near <eof>") then return false end
    io.stderr:write(term.paint(message, "red", 2), "\n")
    return nil
  end
  local results = table.pack(interruptible(chunk))
  if not results[1] then
    io.stderr:write(term.paint(tostring(results[2]), "red", 2), "\n")
    return nil
  end
  for i = 2, results.n do io.stdout:write(repl.show(results[i]), "\n") end
  return true
end

function repl.run(list)
  local values, code = args.start(repl, options, list, 1)
  if not values then return code end
  _G.mtx = require("mtx")
  _G.help = setmetatable({}, { __tostring = function() return FIRST_STEPS end })
  if values.rest[1] then
    _G.model, code = open.model(values.rest[1], values)
    if not _G.model then return code end
  end
  local home = os.getenv("XDG_STATE_HOME") or os.getenv("HOME")
  local input = editor.new({ history = home and (home .. "/.mtx_lua_history"), complete = candidates })
  if input.tty then io.stdout:write(term.paint("Lua 5.4, mtx" .. (_G.model and ", model" or "") .. ". help shows first steps, Ctrl-D leaves.", "dim"), "\n") end
  local pending
  while true do
    local text, why = input:line(pending and "... " or "mtx> ")
    if why == "end" then break end
    if why == "interrupt" then
      pending = nil
    elseif text:match("%S") or pending then
      local whole = pending and (pending .. "\n" .. text) or text
      pending = evaluate(whole) == false and whole or nil
    end
  end
  if _G.model then _G.model:close() end
  return 0
end

return repl
