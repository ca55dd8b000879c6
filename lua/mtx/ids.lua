-- SPDX-License-Identifier: MIT
-- Unguessable ids: letters and digits from the system's random source. Never
-- from the clock: two requests in one second must not share an id.
local uv = require("luv")

local ids = {}

local ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
local pool, at = "", 1

-- n characters of [a-z0-9]; about 5.17 bits each.
function ids.random(n)
  local out = {}
  while #out < n do
    if at > #pool then pool, at = assert(uv.random(1024)), 1 end
    local b = pool:byte(at)
    at = at + 1
    if b < 252 then -- 252 = 7 * 36: no letter is likelier than another
      local i = b % 36 + 1
      out[#out + 1] = ALPHABET:sub(i, i)
    end
  end
  return table.concat(out)
end

local run, count = ids.random(8), 0

-- A request id for logs: unique within and, in practice, between runs.
function ids.request()
  count = count + 1
  return string.format("req_%s%08x", run, count)
end

return ids
