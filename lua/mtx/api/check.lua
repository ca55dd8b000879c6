-- SPDX-License-Identifier: MIT
-- Field checks for request bodies. A bad field raises a Fault, which the caller
-- of a dialect catches with check.try: decoding stays free of error plumbing and
-- everything that can fail does so before the first byte of an answer.
local json = require("mtx.json")
local null = json.null

local check = {}

local Fault = {}
Fault.__index = Fault
Fault.__tostring = function(f) return f.message end

-- status: HTTP code; message: for the user; options: kind (the dialect-neutral
-- error name, see api/request.lua), param (field name), extra (fields of the error body).
function check.fault(status, message, options)
  local f = setmetatable(options or {}, Fault)
  f.status, f.message = status, message
  return f
end

function check.fail(status, message, options) error(check.fault(status, message, options), 0) end

-- Calls f(...); gives its results, or nil and the Fault it raised. Other errors go on.
function check.try(f, ...)
  local r = table.pack(pcall(f, ...))
  if r[1] then return table.unpack(r, 2, r.n) end
  if getmetatable(r[2]) == Fault then return nil, r[2] end
  error(r[2], 0)
end

function check.is_fault(v) return getmetatable(v) == Fault end

local function traced(e) return check.is_fault(e) and e or debug.traceback(tostring(e), 2) end

-- Calls f(...): true and its value, or false and a Fault. Any other error is hidden behind one, since clients see no
-- insides; its trace, for the log, is the third value then.
function check.guarded(f, ...)
  local ok, value = xpcall(f, traced, ...)
  if ok or check.is_fault(value) then return ok, value end
  return false, check.fault(500, "internal error; the server's log has the details"), value
end

local function want(where, what) check.fail(400, where .. " must be " .. what, { param = where }) end

-- Each reader: (table, key, where) -> value or nil when absent or null.
local function get(t, k)
  local v = t[k]
  if v == null then return nil end
  return v
end
check.get = get

function check.string(t, k, where)
  local v = get(t, k)
  if v ~= nil and type(v) ~= "string" then want(where or k, "a string") end
  return v
end

function check.boolean(t, k, where)
  local v = get(t, k)
  if v ~= nil and type(v) ~= "boolean" then want(where or k, "a boolean") end
  return v
end

local function ranged(v, k, low, high)
  if (low and v < low) or (high and v > high) then
    local range = low and high and ("between " .. low .. " and " .. high) or low and ("at least " .. low) or ("at most " .. high)
    check.fail(400, k .. " must be " .. range, { param = k })
  end
  return v
end

function check.number(t, k, low, high, where)
  local v = get(t, k)
  if v == nil then return nil end
  if type(v) ~= "number" or v ~= v then want(where or k, "a number") end
  return ranged(v, where or k, low, high)
end

function check.integer(t, k, low, high, where)
  local v = get(t, k)
  if v == nil then return nil end
  local i = type(v) == "number" and math.tointeger(v)
  if not i then want(where or k, "an integer") end
  return ranged(i, where or k, low, high)
end

-- Decoded JSON knows its kind (mtx/json.lua); plain Lua tables are judged by content.
function check.is_array(v)
  if type(v) ~= "table" then return false end
  local mt = getmetatable(v)
  if mt and mt.kind then return mt.kind == "array" end
  return next(v) == nil or #v > 0
end

function check.is_object(v)
  if type(v) ~= "table" then return false end
  local mt = getmetatable(v)
  if mt and mt.kind then return mt.kind == "object" end
  return next(v) == nil or #v == 0
end

function check.array(t, k, where, max)
  local v = get(t, k)
  if v == nil then return nil end
  if not check.is_array(v) then want(where or k, "an array") end
  if max and #v > max then check.fail(400, (where or k) .. " has " .. #v .. " entries, at most " .. max .. " are allowed", { param = k }) end
  return v
end

function check.object(t, k, where)
  local v = get(t, k)
  if v == nil then return nil end
  if not check.is_object(v) then want(where or k, "an object") end
  return v
end

-- One string or a list of strings -> list of strings.
function check.strings(t, k, where, max, max_bytes)
  where = where or k
  local v = get(t, k)
  if v == nil then return nil end
  if type(v) == "string" then v = { v } end
  if not check.is_array(v) then want(where, "a string or an array of strings") end
  if max and #v > max then check.fail(400, where .. " has " .. #v .. " entries, at most " .. max .. " are allowed", { param = where }) end
  for i, s in ipairs(v) do
    if type(s) ~= "string" then want(where .. "[" .. (i - 1) .. "]", "a string") end
    if max_bytes and #s > max_bytes then check.fail(400, where .. "[" .. (i - 1) .. "] is longer than " .. max_bytes .. " bytes", { param = where }) end
  end
  return v
end

function check.one_of(t, k, allowed, where)
  local v = check.string(t, k, where)
  if v == nil then return nil end
  for _, a in ipairs(allowed) do
    if a == v then return v end
  end
  check.fail(400, (where or k) .. " must be one of " .. table.concat(allowed, ", "), { param = where or k })
end

return check
