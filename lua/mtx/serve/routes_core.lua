-- SPDX-License-Identifier: MIT
-- Routes that need no model: liveness, readiness, version, metrics.
local wire = require("mtx.api.wire")

local core = {}

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
    local page = ctx.page and (x.req.headers.accept or ""):find("text/html", 1, true) and ctx.page()
    if page then
      x:header("Content-Security-Policy", "default-src 'self'; script-src 'self'; style-src 'self'; frame-ancestors 'none'")
      return x:send(200, page, "text/html; charset=utf-8")
    end
    x:send(200, "Ollama is running", "text/plain; charset=utf-8")
  end })
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
