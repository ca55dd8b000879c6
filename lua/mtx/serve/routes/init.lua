-- SPDX-License-Identifier: MIT
-- The route table. Every route names its scope ("public", "infer", "embed",
-- "admin") and its dialect (whose error bodies it answers with); a route without
-- a scope is an error at start, so nothing is ever open by accident.
local errors = require("mtx.api.errors")

local routes = {}

local SCOPES = { public = true, infer = true, embed = true, admin = true }

local Table = {}
Table.__index = Table

function routes.new() return setmetatable({ exact = {}, patterns = {}, list = {} }, Table) end

-- Adds METHOD /path. `:name` matches one part, `*name` the rest (with slashes).
-- route: {scope, dialect, handler = function(x), max_body (bytes, optional),
-- stream_body = function(x) -> sink (optional), limited = false for no rate limit}.
function Table:add(method, path, route)
  assert(SCOPES[route.scope], "route " .. method .. " " .. path .. " has no scope")
  assert(errors.speaks(route.dialect), "route " .. method .. " " .. path .. " has no dialect")
  assert(type(route.handler) == "function", "route " .. method .. " " .. path .. " has no handler")
  route.method, route.path = method, path
  self.list[#self.list + 1] = route
  if not path:find("/[:*]") then
    self.exact[path] = self.exact[path] or {}
    assert(not self.exact[path][method], "two routes for " .. method .. " " .. path)
    self.exact[path][method] = route
    return
  end
  for _, p in ipairs(self.patterns) do
    if p.path == path then
      p.methods[method] = route
      return
    end
  end
  local names = {}
  local pattern = path:gsub("[%-%.%+]", "%%%0"):gsub("/([:*])(%w+)", function(kind, name)
    names[#names + 1] = name
    return kind == ":" and "/([^/]+)" or "/(.+)"
  end)
  self.patterns[#self.patterns + 1] = { path = path, pattern = "^" .. pattern .. "$", names = names, methods = { [method] = route } }
end

-- Undoes %XX once; nil when malformed or when it hides a NUL.
function routes.unescape(s)
  if not s:find("%", 1, true) then return s end
  if s:gsub("%%%x%x", ""):find("%", 1, true) then return nil end
  s = s:gsub("%%(%x%x)", function(h) return string.char(tonumber(h, 16)) end)
  if s:find("\0", 1, true) or not utf8.len(s) then return nil end
  return s
end

-- method, path (still encoded) -> route, params; or nil, "not_found" | "method", allowed methods.
-- HEAD goes where GET goes. Parameters are decoded once, after the match.
function Table:match(method, path)
  local methods, params = self.exact[path], nil
  if not methods then
    for _, p in ipairs(self.patterns) do
      local caught = table.pack(path:match(p.pattern))
      if caught[1] then
        params = {}
        for i, name in ipairs(p.names) do
          params[name] = routes.unescape(caught[i])
          if not params[name] then return nil, "not_found" end
        end
        methods = p.methods
        break
      end
    end
  end
  if not methods and #path > 1 and path:sub(-1) == "/" then return self:match(method, path:sub(1, -2)) end
  if not methods then return nil, "not_found" end
  local route = methods[method] or (method == "HEAD" and methods.GET)
  if route then return route, params end
  local allowed = { "OPTIONS" }
  for m in pairs(methods) do allowed[#allowed + 1] = m end
  if methods.GET then allowed[#allowed + 1] = "HEAD" end
  table.sort(allowed)
  return nil, "method", table.concat(allowed, ", ")
end

-- The dialect a path without a route most likely wanted.
function routes.dialect_of(path)
  if path:find("^/v1/messages") then return "anthropic" end
  if path:find("^/v1/") or path:find("^/admin/") then return "openai" end
  if path:find("^/api/") or path == "/" then return "ollama" end
  return "llama"
end

-- Query string -> table of decoded values (last one wins).
function routes.query(text)
  local q = {}
  for pair in (text or ""):gmatch("[^&]+") do
    local k, v = pair:match("^([^=]*)=?(.*)$")
    k, v = routes.unescape((k:gsub("+", " "))), routes.unescape((v:gsub("+", " ")))
    if k and v then q[k] = v end
  end
  return q
end

return routes
