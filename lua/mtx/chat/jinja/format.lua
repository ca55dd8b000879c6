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

-- Groups of the digits before the point: three, of other bases than ten four.
local function group_digits(s, mark, size)
  local sign, head, rest = s:match("^([ +-]?)(" .. (size == 4 and "%x+" or "%d+") .. ")(.*)$")
  if not head then return s end
  head = head:reverse():gsub(("%x"):rep(size), "%0" .. mark):reverse()
  if head:sub(1, 1) == mark then head = head:sub(2) end
  return sign .. head .. rest
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
    if n - n ~= 0 then S.fail("an infinite number, or none, has no integer") end
    if math.type(n) == "float" then n = n < 0 and math.ceil(n) or math.floor(n) end
    body = (math.type(n) == "integer" and "%d" or "%.0f"):format(n)
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

local function zero_fill(body, width, fill)
  local sign, digits = body:match("^([ +-]?0[xXob])(.*)$")
  if not sign then sign, digits = body:match("^([ +-]?)(.*)$") end
  if #body >= width then return body end
  return sign .. (fill or "0"):rep(width - #body) .. digits
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
    if conversion == "a" then body = strings.ascii(body) end
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
  local args_kind = kind(args)
  local is_tuple = args_kind == "tuple"
  -- what has items need not be used
  local optional = args_kind == "dict" or args_kind == "list" or args_kind == "range" or args_kind == "undef"
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
    local flags, width, precision, conversion, after = p:match("^([-#0 +]*)(%*?%d*)%.?(%*?%d*)[hlL]?([%a%%])()", rest or at + 1)
    if not conversion then S.fail("an incomplete format at the end of a string, or '%' needs to be written '%%'") end
    if conversion == "%" then
      out[#out + 1] = text.sub(pattern, at, at)
    else
      local has_precision = p:find("^[-#0 +]*%*?%d*%.", rest or at + 1)
      if width == "*" then
        local n = values.integer(next_arg(), nil, "the * of a format string")
        if n < 0 then flags = flags .. "-" end
        width = tostring(math.abs(n))
      end
      if precision == "*" then precision = math.max(0, values.integer(next_arg(), nil, "the * of a format string")) end
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
  if is_tuple and used < #args or not is_tuple and used == 0 and not optional then
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
  local value_kind = kind(value)
  if value_kind ~= "str" and not values.number(value) and value_kind ~= "bigint" then
    S.fail("a format specification does not work on " .. values.type_name(value))
  end
  local fill, align, rest = spec:match("^(" .. utf8.charpattern .. ")([<>=^])(.*)$")
  if not fill then
    fill, align, rest = " ", spec:match("^([<>=^]?)(.*)$")
  end
  local sign, alternate, zero, width, comma, precision, conversion = rest:match("^([-+ ]?)(#?)(0?)(%d*)([,_]?)%.?(%d*)([%a%%]?)$")
  if not sign or rest:find("%.[^%d]") or rest:find("%.$") then S.fail("unsupported format specification '" .. spec .. "'") end
  local body, is_number = nil, values.number(value) ~= nil
  if is_number or conversion:find("[dxXobeEfFgGnc%%]") then
    local n = values.number(value) or value
    if conversion == "n" then conversion = math.type(n) == "float" and "g" or "d" end
    if not ("dxXobeEfFgGc%"):find(conversion, 1, true) then S.fail("unknown format '" .. conversion .. "' for a number") end
    if conversion == "" then
      local shown = precision ~= "" and number_text(n, "g", tonumber(precision), sign) or raw(values.str(n))
      body = (sign == "+" or sign == " ") and n >= 0 and precision == "" and sign .. shown or shown
    elseif conversion == "c" then
      body = utf8.char(values.integer(n, nil, "a character"))
    elseif conversion == "%" then
      body = number_text(values.number(n) * 100, "f", tonumber(precision), sign) .. "%"
    else
      if conversion == "d" and math.type(values.number(n)) == "float" then S.fail("format 'd' needs an integer") end
      body = number_text(n, conversion == "F" and "f" or conversion, tonumber(precision), sign, alternate == "#")
    end
    if comma ~= "" then body = group_digits(body, comma, conversion:find("[xXob]") and 4 or 3) end
    if zero == "0" and align == "" or align == "=" then body = zero_fill(body, to_width(width), align == "=" and zero == "" and fill) end
  else
    if conversion ~= "" and conversion ~= "s" then S.fail("unknown format '" .. conversion .. "'") end
    if align == "=" then S.fail("'=' does not work on a string") end
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
  end
  return value
end

--- pattern.format(args..., kwargs): getattr(value, key) reads attributes and items.
function format.braces(pattern, args, kwargs, getattr)
  local p, out, pos, n_auto, manual = raw(pattern), {}, 1, 0, false
  local function auto()
    n_auto = n_auto + 1
    if manual then S.fail("a format string counts its fields or has them counted, not both") end
    return n_auto
  end
  local function field(name)
    if name:find("^%d") then
      manual = true
      if n_auto > 0 then auto() end
    end
    return field_value(name, args, kwargs, auto, getattr)
  end
  while true do
    local at = p:find("[{}]", pos)
    if not at then break end
    out[#out + 1] = text.sub(pattern, pos, at - 1)
    if p:sub(at, at + 1) == "{{" or p:sub(at, at + 1) == "}}" then
      out[#out + 1] = text.sub(pattern, at, at)
      pos = at + 2
    else
      local name, conversion, after = p:match("^{([^{}!:]*)(!?[rsa]?)()", at)
      local spec = name and p:match("^:?(%b{})}()", after)
      spec, after = p:match("^()}", after or #p + 1) and "" or nil, after
      local value = name and field(name)
      if not spec and name then -- a specification can have fields of its own
        local from = p:match("^:()", after)
        local to = from
        while to and p:find("^[{}]", to) == nil or to and p:sub(to, to) == "{" do
          to = p:sub(to, to) == "{" and p:match("^%b{}()", to) or p:find("[{}]", to + 1)
        end
        spec = to and p:sub(from, to - 1):gsub("{([^{}!:]*)}", function(inner) return raw(values.str(field(inner))) end)
        after = to
      end
      if not spec then S.fail("a single brace in a format string, or one nested too deeply") end
      if conversion == "!r" or conversion == "!a" then value = values.repr(value) elseif conversion == "!s" then value = values.str(value) end
      if conversion == "!a" then value = strings.ascii(value) end
      out[#out + 1] = apply_spec(value, spec)
      after = after + 1
      pos = after
    end
  end
  out[#out + 1] = text.sub(pattern, pos, #p)
  local result = text.join(out, 1, #out)
  S.charge(#raw(result))
  return result
end

return format
