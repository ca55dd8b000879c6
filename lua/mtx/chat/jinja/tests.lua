-- SPDX-License-Identifier: MIT
-- The tests behind `is`: specs as in call.lua, giving true or false.
local json = require("mtx.json")
local text = require("mtx.chat.jinja.text")
local strings = require("mtx.chat.jinja.strings")
local values = require("mtx.chat.jinja.values")
local call = require("mtx.chat.jinja.call")
local S = require("mtx.chat.jinja.state")

local tests = {}
local kind, raw = values.kind, text.raw

local function test(names, f, ...)
  for name in names:gmatch("%S+") do tests[name] = call.spec(f, ...) end
end

test("defined", function(v) return kind(v) ~= "undef" end)
test("undefined", function(v) return kind(v) == "undef" end)
test("none", function(v) return v == json.null end)
test("boolean", function(v) return type(v) == "boolean" end)
test("true", function(v) return v == true end)
test("false", function(v) return v == false end)
test("string", function(v) return type(v) == "string" or kind(v) == "str" end)
test("integer", function(v) return math.type(v) == "integer" or kind(v) == "bigint" end)
test("float", function(v) return math.type(v) == "float" end)
test("number", function(v) return type(v) == "number" or type(v) == "boolean" or kind(v) == "bigint" end)
test("mapping", function(v) return kind(v) == "dict" end)
-- An undefined value can be walked and has a length: it passes for both, as in Jinja.
test("iterable", function(v)
  local k = kind(v)
  return k == "str" or k == "dict" or k == "undef" or k == "loop" or values.is_sequence(k)
end)
test("sequence", function(v)
  local k = kind(v)
  return k == "str" or k == "dict" or k == "undef" or k == "list" or k == "tuple" or k == "range"
end)
test("callable", function(v)
  local k = kind(v)
  return k == "macro" or k == "builtin" or k == "method" or k == "function" or k == "loop" or k == "undef"
end)
test("escaped", text.is_markup)
test("lower", function(v)
  local s = raw(values.str(v))
  return strings.lower(s) == s and strings.upper(s) ~= s
end)
test("upper", function(v)
  local s = raw(values.str(v))
  return strings.upper(s) == s and strings.lower(s) ~= s
end)
test("filter", function(v) return require("mtx.chat.jinja.filters")[values.hashed(v)] ~= nil end)
test("test", function(v) return tests[values.hashed(v)] ~= nil end)

local function remainder(v, by)
  local n = values.number(v)
  if not n then
    values.check_defined(v)
    S.fail("a number is needed, not " .. values.type_name(v))
  end
  if by == 0 then S.fail("division by zero") end
  return n % (values.number(by) or S.fail("divisibleby needs a number"))
end
test("odd", function(v) return remainder(v, 2) == 1 end)
test("even", function(v) return remainder(v, 2) == 0 end)
test("divisibleby", function(v, by) return remainder(v, by) == 0 end, "num!")

test("sameas", function(v, other)
  if rawequal(v, other) then return math.type(v) == math.type(other) end
  return raw(v) ~= nil and raw(v) == raw(other)
end, "other!")
test("in", function(v, seq) return values.contains(seq, v) end, "seq!")
test("== eq equalto", function(v, other) return values.equal(v, other) end, "other!")
test("!= ne", function(v, other) return not values.equal(v, other) end, "other!")
test("< lt lessthan", function(v, other) return values.less(v, other, "<") end, "other!")
test("> gt greaterthan", function(v, other) return values.less(other, v, ">") end, "other!")
test("<= le", function(v, other) return values.equal(v, other) or values.less(v, other, "<=") end, "other!")
test(">= ge", function(v, other) return values.equal(v, other) or values.less(other, v, ">=") end, "other!")

return tests
