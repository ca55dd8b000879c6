-- SPDX-License-Identifier: MIT
-- Builds the server from its configuration and runs it. The only way to make a
-- server: tests, the command line and embedding programs all come through
-- serve.new, so that no guard exists in one of them only.
local uv = require("luv")
local app = require("mtx.serve.app")
local auth = require("mtx.serve.auth")
local mtx_config = require("mtx.config")
local core = require("mtx.core")
local http = require("mtx.http.server")
local limits = require("mtx.serve.limits")
local log = require("mtx.serve.log")
local metrics = require("mtx.serve.metrics")
local models = require("mtx.serve.models")
local origin = require("mtx.serve.origin")
local pid_file = require("mtx.pid_file")
local reconfigure = require("mtx.serve.reconfigure")
local routes = require("mtx.serve.routes")
local sched = require("mtx.sched")
local script = require("mtx.serve.script")
local telemetry = require("mtx.serve.telemetry")
local watchdog = require("mtx.serve.watchdog")
local writes = require("mtx.serve.writes")

local serve = {}

serve.VERSION = "0.1.0"

-- Modules that add routes to a context, in order.
local ROUTE_MODULES = {}
for i, name in ipairs({ "core", "generate", "models", "embed", "anthropic", "llama", "router", "slots", "stream", "responses", "ws", "admin", "extra", "pull", "files", "batches" }) do ROUTE_MODULES[i] = "mtx.serve.routes." .. name end

local function make_auth(config)
  local a = auth.new()
  for i, key in ipairs(config.api_key) do a:add_key("key" .. i, key, { "infer", "embed" }) end
  for i, key in ipairs(config.admin_key) do a:add_key("admin" .. i, key, { "admin" }) end
  if config.keys_file ~= "" then
    local ok, message = a:load(config.keys_file)
    if not ok then return nil, message end
  end
  return a
end

-- Where to listen: {{host, port} | {unix = path}}.
local function listeners_of(config)
  local list = {}
  if config.host ~= "" then list[1] = { host = config.host, port = config.port } end
  for _, l in ipairs(config.listen) do
    local path = l:match("^unix:(.+)$")
    local host, port = l:match("^%[?([^%]]*)%]?:(%d+)$")
    if path then list[#list + 1] = { unix = path }
    elseif host and tonumber(port) <= 65535 then list[#list + 1] = { host = host, port = math.tointeger(tonumber(port)) }
    else return nil, "cannot read listener " .. l .. "; write HOST:PORT or unix:PATH" end
  end
  if not list[1] then return nil, "nothing to listen on: give --host or --listen" end
  return list
end

local function http_options(ctx)
  local c = ctx.config
  local function ms(s) return math.floor(s * 1000) end
  return { app = ctx.app, max_connections = c.max_connections, max_queued = math.floor(c.max_queued_mb * 1048576),
    log = function(level, message) ctx.log(level, message) end,
    timeouts = { head_ms = ms(c.head_timeout), body_ms = ms(c.body_timeout), idle_ms = ms(c.idle_timeout), write_ms = ms(c.write_timeout) } }
end

local function warn_without_keys(ctx)
  if ctx.auth.required and #ctx.auth.keys == 0 then ctx.log("warn", "the key file holds no key: only public routes answer", { keys_file = ctx.config.keys_file }) end
end

-- config: config.load's result. deps: {core = module with load(path, options) ->
-- model (default the C core), log_out, clock}. Gives a context, or nil, message.
-- ctx: {config, routes, auth, limits, log, metrics, app, http, core, version}
function serve.new(config, deps)
  deps = deps or {}
  local values = config.values
  local a, message = make_auth(values)
  if not a then return nil, message end
  local listeners, err = listeners_of(values)
  if not listeners then return nil, err end
  local loopback = true
  for _, l in ipairs(listeners) do
    if l.host and l.host ~= "localhost" and not origin.is_loopback(l.host) then loopback = false end
  end
  if not loopback and #a.keys == 0 and not values.insecure then
    return nil, "refusing to serve a public address without a key: set --api-key or --keys-file, listen on 127.0.0.1, or accept the risk with --insecure"
  end
  local clock = deps.clock or function() return uv.now() / 1000 end
  local ctx = { config = values, sources = config.sources, load_config = config.again, routes = routes.new(), auth = a, clock = clock,
    limits = limits.new(values, clock), metrics = metrics.new(), loopback = loopback, listeners = listeners,
    log = log.new({ level = values.log_level, format = values.log_format, out = deps.log_out }),
    machine = (uv.os_gethostname() or ""):lower(), version = serve.VERSION, deps = deps, started = os.time() }
  ctx.writes = writes.new(ctx.log)
  ctx.app = app.new(ctx)
  if values.script ~= "" then
    ctx.script, message = script.new(ctx)
    if not ctx.script then return nil, message end
  end
  local attached, reason = models.attach(ctx)
  if not attached then return nil, reason end
  ctx.policy, message = sched.new(ctx)
  if not ctx.policy then return nil, message end
  local traced, why = telemetry.attach(ctx)
  if not traced then return nil, why end
  for _, name in ipairs(ROUTE_MODULES) do
    local _, failed = require(name).add(ctx)
    if failed then return nil, failed end
  end
  if not loopback and not a.required then ctx.log("warn", "public address without a key: anybody who can reach it can use it") end
  for _, v in ipairs(config.unknown) do ctx.log("warn", "a variable of the environment is ignored", { why = mtx_config.unknown_text(v) }) end
  warn_without_keys(ctx)
  if not a.required and ctx.app.origins.any then ctx.log("warn", "no key and every origin allowed: any web page can use this server") end
  ctx.http = http.new(http_options(ctx))
  ctx.reload = function() return serve.reload(ctx) end
  return ctx
end

-- Reads the configuration, the policy, the keys and the script again; what fails stays as it was.
-- -> list of what was reloaded, or nil, message of the first failure.
function serve.reload(ctx)
  local done, failed = {}, nil
  local function step(name, f)
    local ok, message = f()
    if ok then done[#done + 1] = name else failed = failed or message end
    ctx.log(ok and "info" or "error", "reload", { part = name, error = not ok and message or nil })
  end
  step("config", function() return reconfigure(ctx, make_auth) end)
  step("policy", function() return ctx.policy:reload() end)
  step("keys", function()
    local a, message = make_auth(ctx.config)
    if a then
      ctx.auth:adopt(a)
      warn_without_keys(ctx)
    end
    return a, message
  end)
  if ctx.script then step("script", function() return ctx.script:reload() end) end
  if ctx.config.trace ~= "" then step("trace", function() return telemetry.open_trace(ctx) end) end
  if failed then return nil, failed end
  return done
end

-- Opens the listeners; ctx.port is the first TCP port. nil, message on failure.
function serve.listen(ctx)
  for _, l in ipairs(ctx.listeners) do
    if l.unix then
      local ok, message = ctx.http:listen_unix(l.unix, tonumber(ctx.config.socket_mode, 8))
      if not ok then return nil, message end
    else
      local port, message = ctx.http:listen_tcp(l.host, l.port)
      if not port then return nil, message end
      ctx.port = ctx.port or port
    end
  end
  return true
end

-- Begins the drain: no new connections, running answers get drain_timeout
-- seconds, then are cancelled; calls on_done when all is closed.
function serve.drain(ctx, on_done)
  if ctx.draining then return end
  ctx.draining = true
  ctx.log("info", "draining", { grace_s = ctx.config.drain_timeout })
  ctx.http:drain(math.floor(ctx.config.drain_timeout * 1000), function()
    if ctx.cancel_all then ctx.cancel_all() end
  end, function()
    if ctx.close_models then ctx.close_models() end
    if ctx.script then ctx.script:close() end
    if on_done then on_done() end
  end)
end

local function notify_systemd(ctx, text)
  local path = os.getenv("NOTIFY_SOCKET")
  if not path or path == "" then return end
  local ok, message = core.notify(path, text)
  if not ok then ctx.log("warn", "the service manager was not told", { text = text, error = message }) end
end

-- Serves until SIGTERM or SIGINT; the second signal ends at once. -> exit code.
function serve.run(ctx)
  local ok, message = serve.listen(ctx)
  if not ok then
    io.stderr:write("mtx serve: ", message, "\n")
    return 1
  end
  local c = ctx.config
  if c.pid_file ~= "" then
    local written, reason = pid_file.take(c.pid_file)
    if not written then
      io.stderr:write("mtx serve: cannot write the PID file ", c.pid_file, ": ", reason, "\n")
      return 1
    end
  end
  local signals = {}
  local function on_signal(name)
    if ctx.draining then
      ctx.log("warn", "second signal: ending at once", { signal = name })
      if c.pid_file ~= "" then pid_file.leave(c.pid_file) end
      os.exit(130)
    end
    notify_systemd(ctx, "STOPPING=1")
    serve.drain(ctx, function()
      for _, s in ipairs(signals) do s:close() end
      if ctx.on_stop then ctx.on_stop() end
      uv.stop()
    end)
  end
  for _, name in ipairs({ "sigterm", "sigint" }) do
    local s = uv.new_signal()
    s:start(name, function() on_signal(name) end)
    signals[#signals + 1] = s
  end
  local hup = uv.new_signal()
  hup:start("sighup", function() ctx.reload() end)
  signals[#signals + 1] = hup
  for _, name in ipairs({ "sigpipe", "sigxfsz" }) do -- a closed reader or a file too large is a failed write, no end of the process
    local s = uv.new_signal()
    s:start(name, function() end)
    signals[#signals + 1] = s
  end
  if not uv.fs_stat(c.models_dir) then ctx.log("warn", "no such models folder; give one with --models-dir", { models_dir = c.models_dir }) end
  ctx.log("info", "listening", { host = c.host, port = ctx.port, pid = math.tointeger(uv.os_getpid()), keys = #ctx.auth.keys, models = #ctx.catalog:list() })
  notify_systemd(ctx, "READY=1")
  watchdog.start(os.getenv, function(text) notify_systemd(ctx, text) end)
  core.short_slices() -- a token's way to its client is short, but the engine's threads may have every core
  -- The server's own tables are few beside what requests leave behind, and a collection walks all of them, in caches that
  -- the engine has emptied: every fourfold memory is often enough.
  collectgarbage("setpause", 400)
  uv.run()
  if c.pid_file ~= "" then pid_file.leave(c.pid_file) end
  return 0
end

return serve
