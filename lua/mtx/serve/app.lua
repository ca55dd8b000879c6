-- SPDX-License-Identifier: MIT
-- What stands between the HTTP server and the handlers, the same for every
-- route: Host check, CORS, route, key, rate limit, body limit; then the handler,
-- protected; then the access log and the counters. There is no other way in.
local check = require("mtx.api.check")
local errors = require("mtx.api.errors")
local fiber = require("mtx.serve.fiber")
local ids = require("mtx.ids")
local metrics = require("mtx.serve.metrics")
local origin = require("mtx.serve.origin")
local routes = require("mtx.serve.routes")
local wire = require("mtx.api.wire")

local app = {}

local App = {}
App.__index = App

-- ctx: {routes, auth, limits, log, metrics, config (values), loopback (bool), machine, clock}
function app.new(ctx)
  local self = setmetatable({ ctx = ctx, log = ctx.log, n_active = 0 }, App)
  self:configure(ctx.config)
  local m = ctx.metrics
  self.m_requests = m:counter("mtx_requests_total", "Requests answered, by route and status class")
  self.m_seconds = m:histogram("mtx_request_seconds", "Time from request head to end of answer", { 0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10, 60, 300 })
  m:gauge("mtx_requests_active", "Requests being answered now", function() return self.n_active end)
  return self
end

-- What is made of options once, at the start and at a reload.
function App:configure(values)
  self.origins = origin.rules(values.origins)
  self.extra_hosts = {}
  for _, h in ipairs(values.allowed_hosts) do self.extra_hosts[h:lower()] = true end
  self.max_body = math.floor(values.max_body_mb * 1048576)
end

-- The request's id, by which its log line is found, goes out under the name that the dialect's clients read.
local function name(x, dialect)
  if x.id then return end
  x.id = ids.request()
  x:header("X-Request-Id", x.id)
  if dialect == "anthropic" then x:header("request-id", x.id) end
end

-- Answers a Fault in the dialect of the route.
function App:fail(x, fault)
  if x.gone or x.status then return end
  local dialect = x.route and x.route.dialect or routes.dialect_of(x.req.path)
  name(x, dialect)
  local status, body = errors.of(dialect, fault, x.id)
  if fault.retry_after or status == 429 or status == 503 or status == 529 then x:header("Retry-After", fault.retry_after or 1) end
  if status == 401 then x:header("WWW-Authenticate", "Bearer") end
  x.fault = fault.message
  x:send(status, wire.encode(body))
end

function App:refuse(x, status, message, options) self:fail(x, check.fault(status, message, options)) end

-- CORS: adds the allow headers, answers preflights. false = answered.
local function cors(self, x)
  local req = x.req
  local from = req.headers.origin
  local good = from and from ~= "null" and origin.allowed(self.origins, from, req.headers.host)
  if good then
    x:header("Access-Control-Allow-Origin", self.origins.any and "*" or from)
    x:header("Vary", "Origin")
    x:header("Access-Control-Expose-Headers", "X-Request-Id, X-Mtx-Warning, Retry-After")
  end
  if req.method == "OPTIONS" then
    local _, why, allowed = self.ctx.routes:match("OPTIONS", req.path)
    if good then
      x:header("Access-Control-Allow-Methods", "GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS")
      x:header("Access-Control-Allow-Headers", origin.ALLOW_HEADERS)
      x:header("Access-Control-Max-Age", "600")
    end
    if why == "method" then x:header("Allow", allowed) end
    x:send(204)
    return false
  end
  if from and not good then
    self:refuse(x, 403, "this origin is not allowed; add it to --origins")
    return false
  end
  return true
end

-- Called with the head only. Gives the body limit (and a sink), or nil when answered.
function App:head(x)
  local req, ctx = x.req, self.ctx
  self.n_active = self.n_active + 1
  x.counted = true
  if ctx.loopback and not origin.host_allowed(req.headers.host, self.extra_hosts, ctx.machine) then
    return self:refuse(x, 403, "this Host name is not allowed on a local server; add it to --allowed-hosts")
  end
  if (req.headers.origin or req.method == "OPTIONS") and not cors(self, x) then return nil end
  local route, params, allowed = ctx.routes:match(req.method, req.path)
  if not route and ctx.script then
    local own, own_params = ctx.script.state.routes:match(req.method, req.path)
    if own then route, params = own, own_params end
  end
  if not route then
    if params == "method" then
      x:header("Allow", allowed)
      local native = routes.dialect_of(req.path) == "llama"
      return self:refuse(x, native and 404 or 405, native and "File Not Found" or "method not allowed")
    end
    return self:refuse(x, 404, "no such route: " .. wire.clean(req.path):sub(1, 200))
  end
  x.route, x.params = route, params
  if not route.quiet then name(x, route.dialect) end
  if route.scope ~= "public" then
    local key, status, message = ctx.auth:check(req.headers, route.scope, x.conn.peer, ctx.clock())
    if key == nil then return self:refuse(x, status, message) end
    x.key = key or nil
    if route.limited ~= false then
      local ok, wait, why = ctx.limits:admit(x.key)
      if not ok then return self:refuse(x, 429, why .. "; try again in " .. wait .. " s", { retry_after = wait }) end
    end
  end
  local encoding = req.headers["content-encoding"]
  if encoding and encoding:lower() ~= "identity" and req.body ~= "none" then
    return self:refuse(x, 415, "compressed request bodies are not supported; send the body as it is")
  end
  if route.stream_body then
    local sink, fault = route.stream_body(x)
    if not sink then
      if fault then self:fail(x, fault) end
      return nil
    end
    return route.max_body or math.maxinteger, sink
  end
  return route.max_body or self.max_body
end

-- Runs f(...) for x: true, or nil and a Fault; any other error is logged and hidden behind one.
function App:try(x, f, ...)
  local ok, fault, trace = check.guarded(f, ...)
  if ok then return true end
  if trace then self.log("error", "handler failed", { route = x.route and x.route.path, trace = trace }) end
  return nil, fault
end

-- The same, and the fault is answered; a stream that has begun is cut.
function App:guard(x, f, ...)
  local ok, fault = self:try(x, f, ...)
  if ok then return true end
  if x.streaming then x:finish(true) else self:fail(x, fault) end
  return false
end

-- The same as a fiber: f may wait.
function App:run_fiber(x, f, ...) fiber.start(x, self.guard, self, x, f, ...) end

function App:run(x)
  if x.route.quiet then self:guard(x, x.route.handler, x) else self:run_fiber(x, x.route.handler, x) end
end

local CLASS = { "1xx", "2xx", "3xx", "4xx", "5xx" }

function App:done(x)
  if not x.counted then
    self.n_active = self.n_active + 1
  end
  x.counted = nil
  self.n_active = self.n_active - 1
  local route = x.route
  local label = route and route.label
  if not label then
    label = {}
    for i, c in ipairs(CLASS) do label[i] = 'endpoint="' .. (route and route.path or "other") .. '",status="' .. c .. '"' end
    if route then route.label = label end
  end
  local status = x.status or 499
  metrics.add(self.m_requests, label[status // 100] or label[5])
  local quiet = route and route.quiet
  if not quiet then
    metrics.observe(self.m_seconds, x:elapsed())
  end
  local level = status >= 500 and "warn" or (quiet and "debug" or "info")
  if self.log.on(level) then
    x.id = x.id or ids.request()
    self.log(level, "request", { id = x.id, method = x.req.method, path = x.req.path:sub(1, 200), status = status,
      ms = math.floor(x:elapsed() * 1e4) / 10, bytes = x.bytes_out or 0, key = x.key and x.key.name or nil,
      peer = x.conn.peer, fault = x.fault, gone = x.gone })
  end
end

return app
