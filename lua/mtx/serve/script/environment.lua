-- SPDX-License-Identifier: MIT
-- What a user's Lua may touch: an environment without files, network, processes,
-- bytecode or debug, in which no single call takes much memory or time.
-- Instruction limits (core.limit) reach only between calls, so every function
-- that loops in C is bounded here or replaced.
--
-- A chunk that gets mtx.core.pattern: the server loads it with require (then from
-- mtx.core), a sampler's own state (sampler_state.lua) from its text.
local pattern = ...
if type(pattern) ~= "table" then pattern = require("mtx.core").pattern end

local environment = {}

-- Bytes that string.rep or table.concat may make; entries that a table function may walk.
local MAX_STRING, MAX_ENTRIES = 8 << 20, 1 << 20

local string_meta = getmetatable("")
local find, rep, concat, insert, move, remove, sort, unpack = string.find, string.rep, table.concat, table.insert, table.move, table.remove, table.sort, table.unpack

local function copy(t, names)
  local out = {}
  for _, n in ipairs(names) do out[n] = t[n] end
  return out
end

-- Metatables that scripts made. Those of the server are not shown to scripts, and
-- theirs are taken off what the server is given (plain).
local own_metatables = setmetatable({}, { __mode = "k" })
local raw_metatable, set_raw_metatable = debug.getmetatable, debug.setmetatable

-- ---- string ---------------------------------------------------------------------

local function text_of(v, who)
  if type(v) == "number" then return tostring(v) end
  if type(v) ~= "string" then error(who .. ": a string is needed, not " .. type(v), 3) end
  return v
end

local function start(text, init)
  init = init or 1
  if init < 0 then init = #text + init + 1 end
  return init < 1 and 1 or init
end

-- Searching needle in text costs their product at worst.
local function plain_find(text, needle, init)
  if #needle > 1 and (#text - init + 1) * #needle > 1 << 28 then error("string.find: these texts are too long for a plain search here", 3) end
  return find(text, needle, init, true)
end

local function whole_or_captures(text, first, last, ...)
  if not first then return nil end
  if select("#", ...) == 0 then return text:sub(first, last) end
  return ...
end

-- Calls f(first, last, captures...) for each match, as gmatch and gsub count them:
-- an empty match directly behind the last one is none.
local function next_match(text, p, from, behind)
  local r = table.pack(pattern.find(text, p, from, true))
  if r[1] == from and r[2] == behind then r = table.pack(pattern.find(text, p, from + 1, true)) end
  return r
end

local function expand(repl, whole, r)
  local out, at = {}, 1
  while true do
    local i = find(repl, "%", at, true)
    if not i then break end
    local c = repl:sub(i + 1, i + 1)
    out[#out + 1] = repl:sub(at, i - 1)
    local d = tonumber(c)
    if c == "%" then out[#out + 1] = "%"
    elseif d == 0 or (d == 1 and r.n == 2) then out[#out + 1] = whole
    elseif d and r[2 + d] ~= nil and d <= r.n - 2 then out[#out + 1] = tostring(r[2 + d])
    elseif d then error("invalid capture index %" .. c .. " in replacement string", 3)
    else error("invalid use of '%' in replacement string", 3) end
    at = i + 2
  end
  return concat(out) .. repl:sub(at)
end

local function replacement(repl, whole, r)
  local v
  if type(repl) == "string" then return expand(repl, whole, r) end
  local key = r.n > 2 and r[3] or whole
  if type(repl) == "table" then v = repl[key]
  elseif r.n > 2 then v = repl(unpack(r, 3, r.n))
  else v = repl(whole) end
  if not v then return whole end
  if type(v) ~= "string" and type(v) ~= "number" then error("invalid replacement value (a " .. type(v) .. ")", 3) end
  return tostring(v)
end

local function bounded_string()
  local s = copy(string, { "byte", "char", "format", "len", "lower", "pack", "packsize", "reverse", "sub", "unpack", "upper" })
  function s.rep(text, n, sep)
    text = text_of(text, "string.rep")
    local size = #text + #(sep or "")
    if size * math.max(n, 0) > MAX_STRING then error("string.rep: result too large", 2) end
    if size == 0 then return "" end -- Lua's own would count to n
    return rep(text, n, sep)
  end
  function s.find(text, p, init, plain)
    text, p = text_of(text, "string.find"), text_of(p, "string.find")
    init = start(text, init)
    if init > #text + 1 then return nil end
    if plain or not find(p, "[%^%$%*%+%?%.%(%[%%%-]") then return plain_find(text, p, init) end
    return pattern.find(text, p, init, false)
  end
  function s.match(text, p, init)
    text = text_of(text, "string.match")
    return whole_or_captures(text, pattern.find(text, p, start(text, init), false))
  end
  function s.gmatch(text, p, init)
    text = text_of(text, "string.gmatch")
    local at, behind = start(text, init), nil
    return function()
      local r = next_match(text, p, at, behind)
      if not r[1] then
        at = #text + 2
        return nil
      end
      at, behind = r[2] + 1, r[2]
      return whole_or_captures(text, unpack(r, 1, r.n))
    end
  end
  function s.gsub(text, p, repl, max)
    text, p = text_of(text, "string.gsub"), text_of(p, "string.gsub")
    if type(repl) == "number" then repl = tostring(repl) end
    local t = type(repl)
    if t ~= "string" and t ~= "table" and t ~= "function" then error("string.gsub: a string, table or function is needed, not " .. t, 2) end
    local anchored = p:sub(1, 1) == "^"
    local out, at, from, behind, n, bytes = {}, 1, 1, nil, 0, 0
    while n < (max or math.huge) do
      local r = anchored and table.pack(pattern.find(text, p, 1, false)) or next_match(text, p, from, behind)
      if not r[1] then break end
      n = n + 1
      local new = replacement(repl, text:sub(r[1], r[2]), r)
      bytes = bytes + r[1] - at + #new
      if bytes > MAX_STRING then error("string.gsub: result too large", 2) end
      out[#out + 1] = text:sub(at, r[1] - 1)
      out[#out + 1] = new
      at, from, behind = r[2] + 1, r[2] + 1, r[2]
      if anchored then break end
    end
    out[#out + 1] = text:sub(at)
    return concat(out), n
  end
  return s
end

-- ---- table ----------------------------------------------------------------------

-- The raw length: a metatable must not make a function walk entries that are not there.
local function entries(t, who)
  if type(t) ~= "table" then error(who .. ": a table is needed, not " .. type(t), 3) end
  local mt = raw_metatable(t)
  if mt and rawget(mt, "__len") then error(who .. ": not on a table with __len here", 3) end
  local n = rawlen(t)
  if n > MAX_ENTRIES then error(who .. ": more than " .. MAX_ENTRIES .. " entries", 3) end
  return n
end

local function bounded_table()
  local t = { pack = table.pack }
  function t.insert(list, ...)
    entries(list, "table.insert")
    return insert(list, ...)
  end
  function t.remove(list, ...)
    entries(list, "table.remove")
    return remove(list, ...)
  end
  function t.sort(list, ...)
    entries(list, "table.sort")
    return sort(list, ...)
  end
  function t.move(from, first, last, at, to)
    if type(first) == "number" and type(last) == "number" and last - first >= MAX_ENTRIES then error("table.move: more than " .. MAX_ENTRIES .. " entries", 2) end
    return move(from, first, last, at, to)
  end
  function t.unpack(list, first, last)
    if type(first) == "number" and type(last) == "number" and last - first >= MAX_ENTRIES then error("too many results to unpack", 2) end
    return unpack(list, first, last)
  end
  function t.concat(list, sep, i, j)
    local total = 0
    for k = i or 1, j or #list do
      total = total + #tostring(list[k]) + #(sep or "")
      if total > MAX_STRING then error("table.concat: result too large", 2) end
    end
    return concat(list, sep, i, j)
  end
  return t
end

-- ---- the whole ------------------------------------------------------------------

-- What methods of strings reach while a script runs.
environment.methods = bounded_string()

-- extra: names added to it.
function environment.new(extra)
  local env = copy(_G, { "assert", "error", "ipairs", "next", "pairs", "select", "tonumber", "tostring", "type", "rawequal", "rawlen", "rawget", "rawset" })
  env.math, env.utf8 = copy(math, { "abs", "ceil", "cos", "deg", "exp", "floor", "fmod", "huge", "log", "max", "maxinteger", "min", "mininteger",
    "modf", "pi", "rad", "random", "sin", "sqrt", "tan", "tointeger", "type", "ult" }), copy(utf8, { "char", "charpattern", "codepoint", "codes", "len", "offset" })
  env.string, env.table = bounded_string(), bounded_table()
  env.os = { time = os.time, clock = os.clock, date = os.date }
  -- An error may have left a function of the server, which runs with its own string methods.
  env.pcall = function(f, ...)
    local r = table.pack(pcall(f, ...))
    string_meta.__index = environment.methods
    return unpack(r, 1, r.n)
  end
  env.setmetatable = function(t, mt)
    if mt and rawget(mt, "__gc") then error("__gc is not allowed here", 2) end
    if mt then own_metatables[mt] = true end
    return setmetatable(t, mt)
  end
  env.getmetatable = function(t)
    local mt = type(t) == "table" and raw_metatable(t)
    return mt and own_metatables[mt] and getmetatable(t) or nil
  end
  for k, v in pairs(extra or {}) do env[k] = v end
  env._G = env
  return env
end

-- plain: takes metatables of scripts off a value and everything in it: the server reads it
-- outside the limits and must not run their methods. Depth is bounded like JSON's.
local function strip(v, seen, depth)
  if type(v) ~= "table" or seen[v] then return v end
  if depth > 256 then error("a table is nested too deeply", 0) end
  seen[v] = true
  local mt = raw_metatable(v)
  if mt and own_metatables[mt] then set_raw_metatable(v, nil) end
  for k, x in next, v do
    strip(k, seen, depth + 1)
    strip(x, seen, depth + 1)
  end
  return v
end

-- Is this a table of the server's (an error value it raised)?
function environment.foreign(t)
  local mt = raw_metatable(t)
  return mt ~= nil and not own_metatables[mt]
end

function environment.plain(v) return strip(v, {}, 0) end

return environment
