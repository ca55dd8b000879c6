-- SPDX-License-Identifier: MIT
-- Request bodies: bytes -> table, or a clear 400. The checks come before the
-- JSON reader: UTF-8, depth, and lone surrogates (which become U+FFFD, since
-- half a character has no UTF-8 form and must not end in a reply).
local cjson = require("cjson.safe").new()

local body = {}

-- Nesting of lists and objects a body may have.
body.MAX_DEPTH = 256
cjson.decode_max_depth(body.MAX_DEPTH + 8)
cjson.decode_invalid_numbers(false)

body.null = require("cjson").null

local function too_deep(s)
  local depth, pos = 0, 1
  while true do
    local p = s:find('["%[{%]}]', pos)
    if not p then return false end
    local c = s:byte(p)
    if c == 34 then
      p = p + 1
      while true do
        local q = s:find('["\\]', p)
        if not q then return false end
        if s:byte(q) == 34 then p = q break end
        p = q + 2
      end
    elseif c == 91 or c == 123 then
      depth = depth + 1
      if depth > body.MAX_DEPTH then return true end
    else
      depth = depth - 1
    end
    pos = p + 1
  end
end

-- Walks \u escapes in order; a high half without its low half, or a low half
-- alone, becomes \ufffd. Pairs of backslashes are stepped over.
local function mend_surrogates(s)
  local out, pos, from = {}, 1, 1
  while true do
    local p = s:find("\\", pos, true)
    if not p then break end
    local unit = s:match("^u([dD][89a-fA-F]%x%x)", p + 1)
    if not unit then
      pos = p + 2
    else
      local high = tonumber(unit, 16) < 0xDC00
      if high and s:find("^\\u[dD][c-fC-F]%x%x", p + 6) then
        pos = p + 12
      else
        out[#out + 1] = s:sub(from, p - 1)
        out[#out + 1] = "\\ufffd"
        from = p + 6
        pos = from
      end
    end
  end
  if from == 1 then return s end
  out[#out + 1] = s:sub(from)
  return table.concat(out)
end

-- text -> object (table with string keys), or nil, message. `null` is body.null.
function body.decode(text)
  if text == "" or not text:find("[^ \t\r\n]") then return nil, "missing request body" end
  if not utf8.len(text) then return nil, "the request body is not valid UTF-8" end
  if too_deep(text) then return nil, "the request body nests deeper than " .. body.MAX_DEPTH .. " levels" end
  if text:find("\\u[dD][89a-fA-F]") then text = mend_surrogates(text) end
  local value, err = cjson.decode(text)
  if value == nil then
    err = tostring(err):gsub("[^\32-\126]", "?")
    return nil, "the request body is not valid JSON: " .. err:sub(1, 160)
  end
  if type(value) ~= "table" or not text:find("^[ \t\r\n]*{") then return nil, "the request body must be a JSON object" end
  return value
end

return body
