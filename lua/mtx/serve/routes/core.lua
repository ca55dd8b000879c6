-- SPDX-License-Identifier: MIT
-- Routes that need no model: liveness, readiness, version, metrics, the pages to chat and to look on.
local wire = require("mtx.api.wire")

local core = {}

-- Files of the pages (serve/web); read once.
local files = {}

local function read_file(name)
  local here = package.searchpath("mtx.serve.routes.core", package.path):gsub("[^/]*$", "")
  local f = assert(io.open(here .. "../web/" .. name, "rb"))
  local text = f:read("a")
  f:close()
  return text
end

local function send_file(x, name, ctype)
  files[name] = files[name] or read_file(name)
  x:header("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
  x:header("X-Content-Type-Options", "nosniff")
  x:header("Referrer-Policy", "no-referrer")
  x:send(200, files[name], ctype)
end

-- Adds the routes to ctx.routes.
function core.add(ctx)
  local r = ctx.routes
  local function health(x) x:send(200, '{"status":"ok"}') end
  r:add("GET", "/health", { scope = "public", dialect = "llama", quiet = true, limited = false, handler = health })
  r:add("GET", "/v1/health", { scope = "public", dialect = "openai", quiet = true, limited = false, handler = health })
  r:add("GET", "/ready", { scope = "public", dialect = "openai", quiet = true, limited = false, handler = function(x)
    local state = ctx.readiness()
    if ctx.draining then state = { ready = false, reason = "draining" } end
    x:send(state.ready and 200 or 503, wire.encode(state))
  end })
  r:add("GET", "/", { scope = "public", dialect = "ollama", quiet = true, limited = false, handler = function(x)
    if (x.req.headers.accept or ""):find("text/html", 1, true) then return send_file(x, "index.html", "text/html; charset=utf-8") end
    x:send(200, "Ollama is running", "text/plain; charset=utf-8")
  end })
  local function static(path, name, ctype)
    r:add("GET", path, { scope = "public", dialect = "openai", quiet = true, limited = false, handler = function(x) send_file(x, name, ctype) end })
  end
  static("/app.js", "app.js", "text/javascript; charset=utf-8")
  static("/app.css", "app.css", "text/css; charset=utf-8")
  static("/live", "live.html", "text/html; charset=utf-8")
  static("/live.js", "live.js", "text/javascript; charset=utf-8")
  local version = wire.encode({ version = ctx.version })
  r:add("GET", "/api/version", { scope = "infer", dialect = "ollama", quiet = true, handler = function(x) x:send(200, version) end })
  r:add("GET", "/api/status", { scope = "infer", dialect = "ollama", quiet = true, handler = function(x)
    x:send(200, '{"cloud":{"disabled":true,"source":"none"}}')
  end })
  r:add("GET", "/metrics", { scope = "infer", dialect = "llama", quiet = true, handler = function(x)
    if not ctx.config.metrics then return ctx.app:refuse(x, 501, "metrics are switched off; start with --metrics") end
    x:send(200, ctx.metrics:text(), "text/plain; version=0.0.4; charset=utf-8")
  end })
end

return core
