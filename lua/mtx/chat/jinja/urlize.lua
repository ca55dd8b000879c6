-- SPDX-License-Identifier: MIT
-- The filter urlize: addresses in a text become links, by the rules of Jinja's utils.urlize.
local text = require("mtx.chat.jinja.text")
local strings = require("mtx.chat.jinja.strings")
local values = require("mtx.chat.jinja.values")
local S = require("mtx.chat.jinja.state")

local raw, null = text.raw, require("mtx.json").null
local WORD = "[%w_%%%-\128-\255]"
local COMMON = { com = true, net = true, int = true, edu = true, gov = true, org = true, info = true, mil = true }

-- The part after the host: a port, a path, a query.
local function is_rest(rest)
  rest = rest:gsub("^:%d%d?%d?%d?%d?", "", 1)
  return rest == "" or rest:find("^[/?#]") ~= nil
end

local function is_domain(host, any_end)
  local last = host:match("^.*%.([^.]+)$") or host:match("^[^.]+$") -- anchored: time grows with the host, not with its square
  if not last then return false end
  for part in host:sub(1, #host - #last):gmatch("([^.]*)%.") do
    if part == "" or not part:find("^" .. WORD .. "+$") or not any_end and (strings.len(part) < 2 or strings.len(part) > 63) then return false end
  end
  if not any_end then return COMMON[last] and #host > #last end
  return last:find("^%l+$") and #last >= 2 and #last <= 63 or last:find("^xn%-%-[%w_%%]+$") ~= nil
end

local function is_address(s)
  local scheme, rest = s:match("^(https?://)(.*)$")
  if not scheme then scheme, rest = s:match("^(www%.)(.*)$") end
  local host, after = (rest or s):match("^([^:/?#]*)(.*)$")
  if scheme and is_domain(host, true) and is_rest(after) then return true end
  if is_domain((s:match("^[^:/?#]*")), false) and is_rest(s:match("^[^:/?#]*(.*)$")) then return true end
  if scheme == "www." or not scheme then return false end
  if host:find("^%d%d?%d?%.%d%d?%d?%.%d%d?%d?%.%d%d?%d?$") and is_rest(after) then return true end
  local ip, tail = rest:match("^%[([%x:]+)%](.*)$")
  return ip ~= nil and select(2, ip:gsub(":", "")) >= 2 and is_rest(tail)
end

local function is_mail(s) return s:find("^%S+@[%w_\128-\255][%w_.%-\128-\255]*%.[%w_\128-\255]+$") ~= nil end

local function count(s, what) return select(2, s:gsub(what:gsub("%W", "%%%0"), "")) end

-- A word as what stands before an address, the address, and what stands after it.
local function parts(word)
  local first, last = 1, #word
  while word:find("^[(<]", first) or word:sub(first, first + 3) == "&lt;" do first = first + (word:byte(first) == 38 and 4 or 1) end
  while last >= first do
    if word:find("^[)>.,]", last) then last = last - 1
    elseif last - first >= 3 and word:sub(last - 3, last) == "&gt;" then last = last - 4
    else break end
  end
  local head, middle, tail = word:sub(1, first - 1), word:sub(first, last), word:sub(last + 1)
  for _, pair in ipairs{ { "(", ")" }, { "<", ">" }, { "&lt;", "&gt;" } } do
    local open = count(middle, pair[1])
    if open > count(middle, pair[2]) then
      for _ = 1, math.min(open, count(tail, pair[2])) do
        S.charge(#word)
        local _, last = tail:find(pair[2], 1, true)
        middle, tail = middle .. tail:sub(1, last), tail:sub(last + 1)
      end
    end
  end
  return head, middle, tail
end

return function(v, limit, nofollow, target, rel, schemes)
  local words = raw(text.escape(text.is_markup(v) and raw(v) or values.str(v)))
  limit = values.integer(limit, nil, "urlize's limit")
  local extra = {}
  for _, scheme in ipairs(schemes ~= nil and schemes ~= null and values.iterate(schemes) or {}) do
    local s = raw(scheme)
    if not (s and s:find("^[%w_.+%-][%w_.+%-]+:/?/?$")) then S.fail("urlize: not the prefix of an address: " .. values.repr(scheme)) end
    extra[#extra + 1] = s
  end
  local names = { noopener = true }
  if nofollow ~= nil and values.truth(nofollow) then names.nofollow = true end
  for name in (raw(rel) or ""):gmatch("%S+") do names[name] = true end
  local list = {}
  for name in pairs(names) do list[#list + 1] = name end
  table.sort(list)
  local attributes = ' rel="' .. raw(text.escape(table.concat(list, " "))) .. '"'
  if raw(target) and raw(target) ~= "" then attributes = attributes .. ' target="' .. raw(text.escape(target)) .. '"' end

  local function link(href, shown) return '<a href="' .. href .. '"' .. attributes .. ">" .. shown .. "</a>" end
  local function short(s)
    if not limit or strings.len(s) <= limit then return s end
    local _, last = strings.range(s, 1, math.max(limit, 0))
    return s:sub(1, last) .. "..."
  end

  local out = words:gsub("%S+", function(word)
    local head, middle, tail = parts(word)
    if is_address(middle) then
      middle = link((middle:find("^https?://") and "" or "https://") .. middle, short(middle))
    elseif middle:find("^mailto:") and is_mail(middle:sub(8)) then
      middle = '<a href="' .. middle .. '">' .. middle:sub(8) .. "</a>"
    elseif middle:find("@", 2, true) and not middle:find("^www%.") and not middle:find("^@") and not middle:find(":", 1, true) and is_mail(middle) then
      middle = '<a href="mailto:' .. middle .. '">' .. middle .. "</a>"
    else
      for _, scheme in ipairs(extra) do
        if middle ~= scheme and middle:sub(1, #scheme) == scheme then middle = link(middle, middle) end
      end
    end
    return head .. middle .. tail
  end)
  S.charge(#out)
  return out
end
