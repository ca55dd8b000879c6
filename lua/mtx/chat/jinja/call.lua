-- SPDX-License-Identifier: MIT
-- Calling things: how arguments meet parameters.
--
-- A filter, test or method is a spec {params = {names}, f = function} whose f
-- takes the value and then one argument per parameter (nil if not given; prepare(first, second), where there is one,
-- gives a function of the value alone for two constants, or nil), required = how many of them must be given,
-- positional = how many cannot be given by name, or
-- {varargs = true, f = function(value, args, kwargs)}. args is a sequence with n,
-- kwargs nil or a
-- table {names in order, name = value}. Callables of the template are tables: a macro
-- m[1](args, kwargs) that returns its text and m[2](args, kwargs) that writes it into the output, m[3] and m[4] what compile.macro knows of it and the frame it was made in; a builtin b[1](args, kwargs), a method m[1] = object and m[2] = spec.
local text = require("mtx.chat.jinja.text")
local values = require("mtx.chat.jinja.values")
local S = require("mtx.chat.jinja.state")

local call = {}
local getmetatable, setmetatable, unpack = getmetatable, setmetatable, table.unpack

local MACRO, BUILTIN, METHOD = { kind = "macro" }, { kind = "builtin" }, { kind = "method" }
call.MACRO = MACRO

function call.builtin(f) return setmetatable({ f }, BUILTIN) end
function call.method(obj, spec, name) return setmetatable({ [0] = name, obj, spec }, METHOD) end

--- A spec of f; a parameter's name that ends in "!" must be given.
function call.spec(f, ...)
  local params, required = { ... }, nil
  for i, name in ipairs(params) do
    if name:sub(-1) == "!" then params[i], required = name:sub(1, -2), i end
  end
  return { params = params, required = required, f = f }
end

--- The message for an argument that is missing among the first n (bound[i] ~= nil where given), or nil.
function call.missing(spec, name, bound)
  for i = 1, spec.required or 0 do
    if bound[i] == nil then return ("%s needs the argument '%s'"):format(name, spec.params[i]) end
  end
end

local function complete(spec, name, bound)
  local message = spec.required and call.missing(spec, name, bound)
  if message then S.fail(message) end
  return bound, #spec.params
end

--- Puts arguments in the order of spec.params; returns the sequence, n = #params.
function call.bind(spec, name, args, kwargs)
  local params = spec.params or {}
  local n = args.n or #args
  if n > #params then S.fail(("%s takes at most %d arguments, not %d"):format(name, #params, n)) end
  if not kwargs then return complete(spec, name, args) end
  local bound = { unpack(args, 1, n) }
  for _, key in ipairs(kwargs) do
    local value, at = kwargs[key], nil
    for i = 1, #params do if params[i] == key then at = i end end
    if not at then S.fail(("%s has no argument '%s'"):format(name, key)) end
    if at <= (spec.positional or 0) then S.fail(("%s takes no argument by the name '%s'"):format(name, key)) end
    if at <= n then S.fail(("%s got the argument '%s' twice"):format(name, key)) end
    bound[at] = value
  end
  return complete(spec, name, bound)
end

--- Applies a filter, test or method to value.
function call.apply(spec, name, value, args, kwargs)
  if spec.varargs then return spec.f(value, args, kwargs) end
  local bound, n = call.bind(spec, name, args, kwargs)
  return spec.f(value, unpack(bound, 1, n))
end

--- Calls any value of the template.
function call.value(f, args, kwargs)
  local mt = type(f) == "table" and getmetatable(f)
  if mt == MACRO or mt == BUILTIN then return f[1](args, kwargs) end
  if mt == METHOD then return call.apply(f[2], f[0], f[1], args, kwargs) end
  if mt == values.LOOP then return f[1](args[1]) end
  if type(f) == "function" then
    local plain = {}
    for i = 1, args.n or #args do plain[i] = text.raw(args[i]) or args[i] end
    local result = f(unpack(plain, 1, args.n or #args))
    if result == nil then return values.undefined("a function gave nothing") end
    return result
  end
  values.check_defined(f)
  S.fail("a value of type " .. values.type_name(f) .. " cannot be called")
end

return call
