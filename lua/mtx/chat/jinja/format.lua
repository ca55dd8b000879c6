-- SPDX-License-Identifier: MIT
-- Python's two ways to fill in a string: "%s" % x and "{}".format(x).
--
-- The text of the pattern keeps its marks, what is filled in keeps its own.
local text = require("mtx.chat.jinja.text")
local strings = require("mtx.chat.jinja.strings")
local values = require("mtx.chat.jinja.values")
local S = require("mtx.chat.jinja.state")

local format = {}
local raw, kind = text.raw, values.kind

-- Fields wider than this are refused: a template must not fill memory by a width.
local MAX_WIDTH = 10000

local function pad(s, fill, align, width)
  local missing = width - strings.len(raw(s))
  if missing <= 0 then return s end
  S.charge(missing)
  local left = align == ">" and missing or align == "^" and missing // 2 or 0
  return text.join({ fill:rep(left), s, fill:rep(missing - left) }, 1, 3)
end

local function group_thousands(digits)
  local head, rest = digits:match("^([+-]?%d+)(.*)$")
  if not head then return digits end
  head = head:reverse():gsub("(%d%d%d)", "%1,"):reverse():gsub("^([+-]?),", "%1")
  return head .. rest
end

-- One number by a conversion letter, without width: sign, precision, base.
local function number_text(v, conversion, precision, sign, alternate)
  local n = values.number(v)
  if not n then
    values.check_defined(v)
    S.fail("a number is needed for '" .. conversion .. "', not " .. values.type_name(v))
  end
  local body
  if conversion == "d" then
    if math.type(n) == "float" then n = math.tointeger(n < 0 and math.ceil(n) or math.floor(n)) or n end
    body = ("%d"):format(n)
  elseif conversion == "x" or conversion == "X" or conversion == "o" or conversion == "b" then
    if math.type(n) ~= "integer" then S.fail("an integer is needed for '" .. conversion .. "'") end
    local magnitude = n < 0 and -n or n
    if conversion == "b" then
      body = ""
      repeat
        body = (magnitude & 1) .. body
        magnitude = magnitude >> 1
      until magnitude == 0
    else
      body = ("%" .. conversion):format(magnitude)
    end
    body = (n < 0 and "-" or "") .. (alternate and "0" .. conversion or "") .. body
  else
    if precision and precision > 99 then S.fail("a precision above 99 is not supported") end
    body = ("%" .. (alternate and "#" or "") .. "." .. (precision or 6) .. conversion):format(n)
  end
  if n >= 0 and (sign == "+" or sign == " ") then body = sign .. body end
  return body
end

local function zero_fill(body, width)
  local sign, digits = body:match("^([+-]?)(.*)$")
  if #body >= width then return body end
  return sign .. ("0"):rep(width - #body) .. digits
end

local function to_width(s)
  local width = s and tonumber(s) or 0
  if width > MAX_WIDTH then S.fail("a width above " .. MAX_WIDTH .. " is not supported") end
  return width
end

-- Percent --------------------------------------------------------------------

local function percent_field(value, flags, width, precision, conversion)
  local body
  if conversion == "s" or conversion == "r" or conversion == "a" then
    body = conversion == "s" and values.str(value) or values.repr(value)
    if precision then
      local n = math.min(precision, strings.len(raw(body)))
      local i, j = strings.range(raw(body), 1, n)
      body = n == 0 and "" or text.sub(body, i, j)
    end
  elseif conversion == "c" then
    body = raw(value) or utf8.char(values.number(value) or S.fail("%c needs a character or a number"))
  elseif conversion:find("[diuxXoeEfFgG]") then
    if conversion == "i" or conversion == "u" then conversion = "d" end
    if conversion == "F" then conversion = "f" end
    local sign = flags:find("+", 1, true) and "+" or flags:find(" ", 1, true) and " " or ""
    body = number_text(value, conversion, precision, sign, flags:find("#", 1, true) ~= nil)
    if flags:find("0", 1, true) and not flags:find("-", 1, true) then body = zero_fill(body, width) end
  else
    S.fail("unsupported conversion '%" .. conversion .. "'")
  end
  return pad(body, " ", flags:find("-", 1, true) and "<" or ">", width)
end

--- pattern % args: args a tuple, a dict for %(name)s, or one value.
function format.percent(pattern, args)
  local p, out, pos, used = raw(pattern), {}, 1, 0
  local is_tuple = kind(args) == "tuple"
  local function next_arg()
    used = used + 1
    if not is_tuple and used == 1 then return args end
    if not is_tuple or args[used] == nil then S.fail("not enough arguments for the format string") end
    return args[used]
  end
  while true do
    local at = p:find("%", pos, true)
    if not at then break end
    if at > pos then out[#out + 1] = text.sub(pattern, pos, at - 1) end
    local key, rest = p:match("^%%%(([^)]*)%)()", at)
    local flags, width, precision, conversion, after = p:match("^([-#0 +]*)(%*?%d*)%.?(%d*)[hlL]?([%a%%])()", rest or at + 1)
    if not conversion then S.fail("an incomplete format at the end of a string, or '%' needs to be written '%%'") end
    if conversion == "%" then
      out[#out + 1] = text.sub(pattern, at, at)
    else
      local has_precision = p:find("^[-#0 +]*%d*%.", rest or at + 1)
      if width == "*" then width = tostring(values.number(next_arg())) end
      local value
      if key then
        used = 1
        value = kind(args) == "dict" and args[key]
        if value == nil or kind(args) ~= "dict" then S.fail("the format string asks for '" .. key .. "', which is not there") end
      else
        value = next_arg()
      end
      out[#out + 1] = percent_field(value, flags, to_width(width), has_precision and (tonumber(precision) or 0), conversion)
    end
    pos = after
  end
  out[#out + 1] = text.sub(pattern, pos, #p)
  if is_tuple and used < #args or not is_tuple and used == 0 and kind(args) ~= "dict" then
    S.fail("not all arguments were used by the format string")
  end
  local result = text.join(out, 1, #out)
  S.charge(#raw(result))
  return result
end

-- str.format -----------------------------------------------------------------

-- [[fill]align][sign][#][0][width][,][.precision][type]
local function apply_spec(value, spec)
  if spec == "" then return values.str(value) end
  local fill, align, rest = spec:match("^(" .. utf8.charpattern .. ")([<>=^])(.*)$")
  if not fill then
    fill, align, rest = " ", spec:match("^([<>=^]?)(.*)$")
  end
  local sign, alternate, zero, width, comma, precision, conversion = rest:match("^([-+ ]?)(#?)(0?)(%d*)(,?)%.?(%d*)([%a%%]?)$")
  if not sign then S.fail("unsupported format specification '" .. spec .. "'") end
  local body, is_number = nil, values.number(value) ~= nil and type(value) ~= "boolean"
  if is_number or conversion:find("[dxXobeEfFgG%%]") then
    local n = value
    if conversion == "" then
      local shown = precision ~= "" and number_text(n, "g", tonumber(precision), sign) or raw(values.str(n))
      body = (sign == "+" or sign == " ") and n >= 0 and precision == "" and sign .. shown or shown
    elseif conversion == "%" then
      body = number_text(values.number(n) * 100, "f", tonumber(precision), sign) .. "%"
    else
      if conversion == "d" and math.type(values.number(n)) == "float" then S.fail("format 'd' needs an integer") end
      body = number_text(n, conversion == "F" and "f" or conversion, tonumber(precision), sign, alternate == "#")
    end
    if comma == "," then body = group_thousands(body) end
    if zero == "0" or align == "=" then body = zero_fill(body, to_width(width)) end
  else
    if conversion ~= "" and conversion ~= "s" then S.fail("unknown format '" .. conversion .. "'") end
    body = values.str(value)
    if precision ~= "" then
      local n = math.min(tonumber(precision), strings.len(raw(body)))
      local i, j = strings.range(raw(body), 1, n)
      body = n == 0 and "" or text.sub(body, i, j)
    end
  end
  if align == "" or align == "=" then align = is_number and ">" or "<" end
  return pad(body, fill, align, to_width(width))
end

-- The value a field names: "", "0", "name", "name.attr[key]".
local function field_value(name, args, kwargs, auto, getattr)
  local head, rest = name:match("^([^.%[]*)(.*)$")
  local value
  if head == "" then value = args[auto()] elseif head:find("^%d+$") then value = args[tonumber(head) + 1] else value = kwargs and kwargs[head] end
  if value == nil then S.fail("the format string asks for '{" .. name .. "}', which is not there") end
  while rest ~= "" do
    local attr, more = rest:match("^%.([^.%[]+)(.*)$")
    if not attr then attr, more = rest:match("^%[([^%]]+)%](.*)$") end
    if not attr then S.fail("bad field name '" .. name .. "' in a format string") end
    value, rest = getattr(value, math.tointeger(tonumber(attr)) or attr), more
    values.check_defined(value)
  end
  return value
end

--- pattern.format(args..., kwargs): getattr(value, key) reads attributes and items.
function format.braces(pattern, args, kwargs, getattr)
  local p, out, pos, n_auto = raw(pattern), {}, 1, 0
  local function auto()
    n_auto = n_auto + 1
    return n_auto
  end
  while true do
    local at = p:find("[{}]", pos)
    if not at then break end
    out[#out + 1] = text.sub(pattern, pos, at - 1)
    if p:sub(at, at + 1) == "{{" or p:sub(at, at + 1) == "}}" then
      out[#out + 1] = text.sub(pattern, at, at)
      pos = at + 2
    else
      local name, conversion, spec, after = p:match("^{([^{}!:]*)(!?[rsa]?):?([^{}]*)}()", at)
      if not name then S.fail("a single or nested brace in a format string is not supported") end
      local value = field_value(name, args, kwargs, auto, getattr)
      if conversion == "!r" or conversion == "!a" then value = values.repr(value) elseif conversion == "!s" then value = values.str(value) end
      out[#out + 1] = apply_spec(value, spec)
      pos = after
    end
  end
  out[#out + 1] = text.sub(pattern, pos, #p)
  local result = text.join(out, 1, #out)
  S.charge(#raw(result))
  return result
end

return format
