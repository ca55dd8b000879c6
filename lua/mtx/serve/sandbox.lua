-- SPDX-License-Identifier: MIT
-- Running a user's Lua inside the server: an environment without files, network,
-- processes, bytecode or debug; an instruction limit on every call; string and
-- table functions that could eat memory or time in one C call are bounded.
local memory_cap = require("mtx.core").memory_cap

local sandbox = {}

-- Bytes one string.rep or table.concat may make; instructions of one call by default.
local MAX_STRING, DEFAULT_INSTRUCTIONS = 8 << 20, 50000000
-- Growth of the Lua heap allowed within one call.
local MAX_GROWTH = 128 << 20

local function copy(t, names)
  local out = {}
  for _, n in ipairs(names) do out[n] = t[n] end
  return out
end

local function bounded_string()
  local s = copy(string, { "byte", "char", "format", "len", "lower", "pack", "packsize", "reverse", "sub", "unpack", "upper" })
  function s.rep(text, n, sep)
    if (#text + #(sep or "")) * math.max(n, 0) > MAX_STRING then error("string.rep: result too large", 2) end
    return string.rep(text, n, sep)
  end
  -- Patterns can take exponential time inside one C call: bound text and wildcards.
  local function guard(text, pattern)
    if #text > 1 << 20 then error("pattern functions take at most 1 MiB of text here", 3) end
    local _, wild = string.gsub(pattern, "[%*%+%-]", "")
    if wild > 8 or #pattern > 500 then error("pattern too complex here", 3) end
    if wild > 2 and #text > 16384 then error("pattern too complex for a long text", 3) end
  end
  function s.find(text, pattern, init, plain)
    if not plain then guard(text, pattern) end
    return string.find(text, pattern, init, plain)
  end
  function s.match(text, pattern, init) guard(text, pattern) return string.match(text, pattern, init) end
  function s.gmatch(text, pattern, init) guard(text, pattern) return string.gmatch(text, pattern, init) end
  function s.gsub(text, pattern, repl, n) guard(text, pattern) return string.gsub(text, pattern, repl, n) end
  return s
end

local function bounded_table()
  local t = copy(table, { "insert", "move", "pack", "remove", "sort", "unpack" })
  function t.concat(list, sep, i, j)
    local total = 0
    for k = i or 1, j or #list do
      total = total + #tostring(list[k]) + #(sep or "")
      if total > MAX_STRING then error("table.concat: result too large", 2) end
    end
    return table.concat(list, sep, i, j)
  end
  return t
end

local string_meta, host_string = getmetatable(""), string
local safe_string

-- Wraps a function of the server that scripts may call: it runs with the
-- server's own string functions.
function sandbox.host(f)
  return function(...)
    string_meta.__index = host_string
    local r = table.pack(f(...))
    string_meta.__index = safe_string
    return table.unpack(r, 1, r.n)
  end
end

-- A fresh environment. extra: names added to it.
function sandbox.environment(extra)
  local env = copy(_G, { "assert", "error", "ipairs", "next", "pairs", "select", "tonumber", "tostring", "type", "rawequal", "rawlen", "rawget", "rawset" })
  env.math, env.utf8 = copy(math, { "abs", "ceil", "cos", "deg", "exp", "floor", "fmod", "huge", "log", "max", "maxinteger", "min", "mininteger",
    "modf", "pi", "rad", "random", "sin", "sqrt", "tan", "tointeger", "type", "ult" }), copy(utf8, { "char", "charpattern", "codepoint", "codes", "len", "offset" })
  env.string, env.table = bounded_string(), bounded_table()
  env.os = { time = os.time, clock = os.clock, date = os.date }
  -- pcall must not swallow the limit: the marker error goes through.
  env.pcall = function(f, ...)
    local r = table.pack(pcall(f, ...))
    string_meta.__index = safe_string
    if not r[1] and r[2] == sandbox.LIMIT then error(sandbox.LIMIT, 0) end
    return table.unpack(r, 1, r.n)
  end
  env.setmetatable = function(t, mt)
    if mt and rawget(mt, "__gc") then error("__gc is not allowed here", 2) end
    return setmetatable(t, mt)
  end
  env.getmetatable = function(t) return type(t) == "table" and getmetatable(t) or nil end
  for k, v in pairs(extra or {}) do env[k] = v end
  env._G = env
  return env
end

-- Error value of a call that ran too long or took too much memory.
sandbox.LIMIT = setmetatable({}, { __tostring = function() return "the script took too many instructions or too much memory" end })

local Task = {}
Task.__index = Task

-- f as a coroutine with a budget of instructions over all its turns.
function sandbox.task(f, instructions)
  local task = setmetatable({ left = instructions or DEFAULT_INSTRUCTIONS, co = coroutine.create(f) }, Task)
  local step = 10000
  debug.sethook(task.co, function()
    task.left = task.left - step
    if task.left <= 0 then error(sandbox.LIMIT, 0) end
  end, "", step)
  return task
end

-- Runs until the end or the next yield: true, values... or false, error. While it
-- runs the heap may grow only so far, and methods of strings ("x"):rep(n) reach
-- the bounded functions too.
function Task:resume(...)
  safe_string = safe_string or bounded_string()
  local outer = string_meta.__index
  string_meta.__index = safe_string
  memory_cap(MAX_GROWTH)
  local r = table.pack(coroutine.resume(self.co, ...))
  memory_cap(nil)
  string_meta.__index = outer
  return table.unpack(r, 1, r.n)
end

function Task:dead() return coroutine.status(self.co) == "dead" end

-- Calls f(...) under the limit: true, results... or false, error (any value).
function sandbox.call(f, instructions, ...)
  local task = sandbox.task(f, instructions)
  local r = table.pack(task:resume(...))
  if r[1] and not task:dead() then
    coroutine.close(task.co)
    return false, "a script must not wait here"
  end
  if not r[1] and r[2] == sandbox.LIMIT then r[2] = tostring(r[2]) end
  return table.unpack(r, 1, r.n)
end

-- Compiles a text file (never bytecode) into the sandbox. -> function | nil, message.
function sandbox.load_file(path, extra)
  local f, message = io.open(path, "rb")
  if not f then return nil, "cannot read " .. message end
  local text = f:read("a")
  f:close()
  return load(text, "@" .. path, "t", sandbox.environment(extra))
end

return sandbox
