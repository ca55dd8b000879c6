-- SPDX-License-Identifier: MIT
-- URLs and where bytes may come from: a list of origins. Every request and every
-- redirect is held against it, so a hub (or whoever speaks for it) cannot send us
-- to an address inside somebody's network.
local origins = {}

local DEFAULT_PORT = { http = "80", https = "443" }

-- url -> {scheme, host, port, path (with query), url} | nil, message
function origins.parse(url)
  local scheme, authority, path = url:match("^(%a+)://([^/?#]*)([^#]*)")
  scheme = (scheme or ""):lower()
  if not DEFAULT_PORT[scheme] then return nil, "only http and https addresses can be pulled from" end
  if url:find("[%c%s\127-\255\"\\]") then return nil, "an address has no blanks, quotes or other odd characters; write them as %XX" end
  local host, port = authority:lower():match("^([%w%.%-]+):?(%d*)$")
  if not host or #host > 253 then return nil, "cannot read the host of this address" end
  if path:sub(1, 1) ~= "/" then path = "/" .. path end
  port = port == "" and DEFAULT_PORT[scheme] or port
  local shown = port == DEFAULT_PORT[scheme] and host or host .. ":" .. port
  return { scheme = scheme, host = host, port = port, path = path, shown = shown, url = scheme .. "://" .. shown .. path }
end

function origins.same(a, b) return a.scheme == b.scheme and a.host == b.host and a.port == b.port end

function origins.is_loopback(u) return u.host == "localhost" or u.host:find("^127%.%d+%.%d+%.%d+$") ~= nil end

-- A Location header as seen from u -> parsed URL | nil, message
function origins.resolve(u, location)
  if location:find("^%a[%w+.-]*:") then return origins.parse(location) end
  if location:sub(1, 2) == "//" then return origins.parse(u.scheme .. ":" .. location) end
  local base = u.scheme .. "://" .. u.shown
  if location:sub(1, 1) == "/" then return origins.parse(base .. location) end
  return origins.parse(base .. u.path:gsub("%?.*$", ""):gsub("[^/]*$", "") .. location)
end

-- "[SCHEME://]HOST[:PORT]", HOST also "*.DOMAIN"; without a scheme https is meant -> {scheme, host, port} | nil, message
function origins.rule(text)
  local scheme, rest = text:match("^(%a+)://(.*)$")
  local wild, plain = (rest or text):gsub("/$", ""):match("^(%*?%.?)(.*)$")
  local u = (wild == "" or wild == "*.") and origins.parse((scheme or "https") .. "://" .. plain)
  if not u or u.path ~= "/" then return nil, "'" .. text .. "' is no HOST[:PORT], *.DOMAIN or SCHEME://HOST[:PORT]" end
  u.wild = wild ~= ""
  return u
end

local function fits(rule, u)
  if rule.scheme ~= u.scheme or rule.port ~= u.port then return false end
  if not rule.wild then return rule.host == u.host end
  return #u.host > #rule.host and u.host:sub(-#rule.host - 1) == "." .. rule.host
end

function origins.allowed(rules, u)
  for _, rule in ipairs(rules) do
    if fits(rule, u) then return true end
  end
  return false
end

return origins
