-- SPDX-License-Identifier: MIT
-- Python's arithmetic and subscripts on the values of values.lua.
local null = require("mtx.json").null
local text = require("mtx.chat.jinja.text")
local strings = require("mtx.chat.jinja.strings")
local values = require("mtx.chat.jinja.values")
local format = require("mtx.chat.jinja.format")
local S = require("mtx.chat.jinja.state")

local ops = {}
local kind, raw, number = values.kind, text.raw, values.number
local math_type = math.type

local function unsupported(op, a, b)
  values.check_defined(a)
  values.check_defined(b)
  S.fail(("operator %s does not work on %s and %s"):format(op, values.type_name(a), values.type_name(b)))
end

local function overflow() S.fail("integers beyond 64 bits are not supported in arithmetic") end

local function join_lists(a, b, mt)
  local list, n = {}, #a
  S.step((n + #b) // 4)
  table.move(a, 1, n, 1, list)
  table.move(b, 1, #b, n + 1, list)
  return setmetatable(list, mt)
end

function ops.add(a, b)
  if type(a) == "string" and type(b) == "string" then return text.add(a, b) end
  local x, y = number(a), number(b)
  if x and y then
    local sum = x + y
    if math_type(sum) == "integer" and ((x ~ sum) & (y ~ sum)) < 0 then overflow() end
    return sum
  end
  if raw(a) and raw(b) then return text.add(a, b) end
  local ka, kb = kind(a), kind(b)
  if ka == "list" and kb == "list" then return join_lists(a, b, values.LIST) end
  if ka == "tuple" and kb == "tuple" then return join_lists(a, b, values.TUPLE) end
  return unsupported("+", a, b)
end

function ops.sub(a, b)
  local x, y = number(a), number(b)
  if not (x and y) then return unsupported("-", a, b) end
  local difference = x - y
  if math_type(difference) == "integer" and ((x ~ y) & (x ~ difference)) < 0 then overflow() end
  return difference
end

local function repeated(v, n)
  local s = raw(v)
  if s then
    if n <= 0 or s == "" then return "" end
    if n > 0x7FFFFFFF then S.charge(math.huge) end
    S.charge(#s * n)
    S.step(type(v) == "table" and n or 0)
    if type(v) == "string" then return s:rep(n) end
    local list = {}
    for i = 1, n do list[i] = v end
    return text.join(list, 1, n)
  end
  local list = {}
  if n > 0 then S.step(n > 0x7FFFFFFF and math.huge or #v * n) end
  for i = 0, n - 1 do table.move(v, 1, #v, i * #v + 1, list) end
  return setmetatable(list, kind(v) == "tuple" and values.TUPLE or values.LIST)
end

function ops.mul(a, b)
  local x, y = number(a), number(b)
  if x and y then
    local product = x * y
    if math_type(product) == "integer" and math.abs((x + 0.0) * (y + 0.0)) >= 2.0 ^ 63 then overflow() end
    return product
  end
  local ka, kb = kind(a), kind(b)
  if (ka == "str" or ka == "list" or ka == "tuple") and y and math_type(y) == "integer" then return repeated(a, y) end
  if (kb == "str" or kb == "list" or kb == "tuple") and x and math_type(x) == "integer" then return repeated(b, x) end
  return unsupported("*", a, b)
end

local function divisor(op, a, b)
  local x, y = number(a), number(b)
  if not (x and y) then return unsupported(op, a, b) end
  if y == 0 then S.fail("division by zero") end
  return x, y
end

function ops.div(a, b)
  local x, y = divisor("/", a, b)
  return x / y
end

function ops.floordiv(a, b)
  local x, y = divisor("//", a, b)
  return x // y
end

function ops.mod(a, b)
  if kind(a) == "str" then return format.percent(a, b) end
  local x, y = divisor("%", a, b)
  return x % y
end

function ops.pow(a, b)
  local x, y = number(a), number(b)
  if not (x and y) then return unsupported("**", a, b) end
  if math_type(x) ~= "integer" or math_type(y) ~= "integer" or y < 0 then
    if x == 0 and y < 0 then S.fail("0 cannot be raised to a negative power") end
    local result = (x + 0.0) ^ y
    if result ~= result then S.fail("the power of a negative number to a fraction is no real number") end
    return result
  end
  if (math.abs(x + 0.0)) ^ y >= 2.0 ^ 63 then overflow() end
  local result = 1
  if x == 1 or x == 0 or x == -1 then y = (x == -1) and y % 2 or math.min(y, 1) end
  for _ = 1, y do result = result * x end
  return result
end

function ops.neg(a)
  local x = number(a)
  if not x then
    values.check_defined(a)
    S.fail("a value of type " .. values.type_name(a) .. " has no negative")
  end
  if x == math.mininteger and math_type(x) == "integer" then overflow() end
  return -x
end

function ops.pos(a)
  local x = number(a)
  if not x then
    values.check_defined(a)
    S.fail("unary + does not work on " .. values.type_name(a))
  end
  return x
end

-- Slices ----------------------------------------------------------------------

local function bound(v, what)
  if v == nil or v == null then return nil end
  local n = number(v)
  if math_type(n) ~= "integer" then
    values.check_defined(v)
    S.fail("a slice's " .. what .. " must be an integer or none, not " .. values.type_name(v))
  end
  return n
end

-- First and last index (0-based, exclusive end in the direction of step), as Python clamps them.
local function clamp(n, start, stop, step)
  local low, high = 0, n
  if step < 0 then low, high = -1, n - 1 end
  local function fix(i, default)
    if i == nil then return default end
    if i < 0 then
      i = i + n
      return i < low and low or i
    end
    return i > high and high or i
  end
  if step > 0 then return fix(start, 0), fix(stop, n) end
  return fix(start, n - 1), fix(stop, -1)
end

local SLICE_MT = { list = values.LIST, tuple = values.TUPLE, range = values.RANGE }

--- v[start:stop:step]; nil or none for a part left out.
function ops.slice(v, start, stop, step)
  start, stop, step = bound(start, "start"), bound(stop, "stop"), bound(step, "step") or 1
  if step == 0 then S.fail("a slice's step cannot be zero") end
  local k = kind(v)
  if k == "str" then
    local s = raw(v)
    local n = strings.len(s)
    local first, last = clamp(n, start, stop, step)
    S.charge(#s // 16)
    if step == 1 then
      if first >= last then return "" end
      local i, j = strings.range(s, first + 1, last)
      return text.sub(v, i, j)
    end
    local starts, out = strings.starts(s), {}
    S.step(n)
    for i = first, last + (step > 0 and -1 or 1), step do
      out[#out + 1] = text.sub(v, starts[i + 1], starts[i + 2] - 1)
    end
    return text.join(out, 1, #out)
  end
  if not SLICE_MT[k] then
    values.check_defined(v)
    S.fail("a value of type " .. values.type_name(v) .. " has no slices")
  end
  local first, last = clamp(#v, start, stop, step)
  local out = {}
  if step == 1 then
    if last > first then table.move(v, first + 1, last, 1, out) end
  else
    for i = first, last + (step > 0 and -1 or 1), step do out[#out + 1] = v[i + 1] end
  end
  S.step(#out // 4)
  if k == "range" then
    local r = v[0]
    out[0] = { r[1] + first * r[3], r[1] + last * r[3], r[3] * step }
  end
  return setmetatable(out, SLICE_MT[k])
end

return ops
