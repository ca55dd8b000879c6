-- SPDX-License-Identifier: MIT
-- Who may call from a browser: the Host check against DNS rebinding and the
-- CORS rules (api.md, section 0). Both look only at what the socket and the
-- request say; forwarded-for headers are never read.
local origin = {}

local function strip_port(host)
  local v6 = host:match("^%[([%x:%.]+)%](:?%d*)$")
  if v6 then return v6:lower(), true end
  return (host:gsub(":%d+$", "")):lower(), false
end

-- Loopback, private and link-local addresses.
function origin.is_local_ip(ip)
  if ip == "::1" or ip == "::" or ip == "0.0.0.0" or ip == "unix" then return true end
  ip = ip:gsub("^::ffff:", "")
  local a, b = ip:match("^(%d+)%.(%d+)%.%d+%.%d+$")
  if a then
    a, b = tonumber(a), tonumber(b)
    return a == 127 or a == 10 or (a == 192 and b == 168) or (a == 172 and b >= 16 and b <= 31) or (a == 169 and b == 254)
  end
  return ip:find("^fe[89ab]%x:") ~= nil or ip:find("^f[cd]%x%x:") ~= nil
end

function origin.is_loopback(ip)
  if not ip then return false end
  return ip == "unix" or ip == "::1" or ip:find("^127%.%d+%.%d+%.%d+$") ~= nil or ip:find("^::ffff:127%.") ~= nil
end

-- host: the Host header. extra: set of further names that are fine.
function origin.host_allowed(host, extra, machine)
  if not host or host == "" then return true end -- HTTP/1.0; 1.1 must have one
  local name, v6 = strip_port(host)
  name = name:gsub("%.$", "")
  if v6 or name:find("^%d+%.%d+%.%d+%.%d+$") then return origin.is_local_ip(name) or extra[name] == true end
  if name == "localhost" or name == machine or extra[name] then return true end
  return name:find("%.localhost$") ~= nil or name:find("%.local$") ~= nil or name:find("%.internal$") ~= nil
end

local function pattern_of(entry)
  local p = entry:lower():gsub("[%^%$%(%)%%%.%[%]%+%-%?]", "%%%0"):gsub("%*", "[^/]*")
  return "^" .. p .. "$"
end

-- list: entries such as "https://app.example" or "http://*.example:*"; "*" allows all.
function origin.rules(list)
  local rules = { any = false, patterns = {} }
  for _, entry in ipairs(list) do
    if entry == "*" then rules.any = true else rules.patterns[#rules.patterns + 1] = pattern_of(entry) end
  end
  for _, host in ipairs({ "localhost", "127.0.0.1", "0.0.0.0", "[::1]" }) do
    for _, scheme in ipairs({ "http", "https" }) do
      rules.patterns[#rules.patterns + 1] = pattern_of(scheme .. "://" .. host)
      rules.patterns[#rules.patterns + 1] = pattern_of(scheme .. "://" .. host) :gsub("%$$", ":%%d+$")
    end
  end
  return rules
end

-- value: the Origin header; host: the request's Host (same origin is fine).
function origin.allowed(rules, value, host)
  if rules.any then return true end
  value = value:lower()
  if host and value:match("^https?://(.*)$") == host:lower() then return true end
  for _, p in ipairs(rules.patterns) do
    if value:find(p) then return true end
  end
  return false
end

origin.ALLOW_HEADERS = "Authorization, Content-Type, User-Agent, Accept, X-Requested-With, OpenAI-Beta, X-Api-Key, "
  .. "anthropic-version, anthropic-beta, anthropic-dangerous-direct-browser-access, X-Conversation-Id, Last-Event-ID, "
  .. "x-stainless-lang, x-stainless-package-version, x-stainless-os, x-stainless-arch, x-stainless-retry-count, "
  .. "x-stainless-runtime, x-stainless-runtime-version, x-stainless-async, x-stainless-helper-method, "
  .. "x-stainless-poll-helper, x-stainless-custom-poll-interval, x-stainless-timeout"

return origin
