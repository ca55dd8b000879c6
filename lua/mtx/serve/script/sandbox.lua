-- SPDX-License-Identifier: MIT
-- Running a user's Lua inside the server: the environment of environment.lua, and
-- for every call a limit of instructions, processor time and memory.
local core = require("mtx.core")
local environment = require("mtx.serve.script.environment")
local infile = require("mtx.infile")

local sandbox = {}

-- Of one call by default; growth of the Lua heap allowed within one call.
local DEFAULT_INSTRUCTIONS, SECONDS, MAX_GROWTH = 50000000, 2, 128 << 20

local string_meta, host_string = getmetatable(""), string

-- Wraps a function of the server that scripts may call: it runs with the
-- server's own string functions.
function sandbox.host(f)
  return function(...)
    string_meta.__index = host_string
    local r = table.pack(f(...))
    string_meta.__index = environment.methods
    return table.unpack(r, 1, r.n)
  end
end

local Task = {}
Task.__index = Task

-- What runs in the coroutine, so under the limit: f, and everything that makes its
-- arguments, results and errors safe to look at for the server.
local function body(f, ...)
  local arguments, r = table.pack(...), table.pack(pcall(f, ...))
  string_meta.__index = environment.methods
  if not r[1] then
    local e = r[2]
    error(type(e) == "table" and environment.foreign(e) and e or tostring(e), 0)
  end
  for i = 1, arguments.n do environment.plain(arguments[i]) end
  for i = 2, r.n do environment.plain(r[i]) end
  return table.unpack(r, 2, r.n)
end

-- f as a coroutine with a budget of instructions over all its turns.
function sandbox.task(f, instructions)
  local task = setmetatable({ f = f, instructions = instructions or DEFAULT_INSTRUCTIONS, co = coroutine.create(body) }, Task)
  return task
end

-- Runs until the end or the next yield: true, values... or false, error. While it
-- runs the heap may grow only so far, and methods of strings ("x"):rep(n) reach
-- the bounded functions too.
function Task:resume(...)
  core.limit(self.co, self.instructions, SECONDS)
  local outer = string_meta.__index
  string_meta.__index = environment.methods
  core.memory_cap(MAX_GROWTH)
  local r
  if self.f then
    local f = self.f
    self.f = nil
    r = table.pack(coroutine.resume(self.co, f, ...))
  else
    r = table.pack(coroutine.resume(self.co, ...))
  end
  core.memory_cap(nil)
  string_meta.__index = outer
  return table.unpack(r, 1, r.n)
end

function Task:dead() return coroutine.status(self.co) == "dead" end

-- Calls f(...) under the limit: true, results... or false, error (text, or a table of the server's).
function sandbox.call(f, instructions, ...)
  local task = sandbox.task(f, instructions)
  local r = table.pack(task:resume(...))
  if r[1] and not task:dead() then
    coroutine.close(task.co)
    return false, "a script must not wait here"
  end
  return table.unpack(r, 1, r.n)
end

-- Compiles a text file (never bytecode) into the sandbox. -> function, its text | nil, message.
function sandbox.load_file(path, extra)
  local text, message = infile.read(path)
  if not text then return nil, "cannot read " .. message end
  local f
  f, message = load(text, "@" .. path, "t", environment.new(extra))
  if not f then return nil, message end
  return f, text
end

return sandbox
