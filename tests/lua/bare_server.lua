-- SPDX-License-Identifier: MIT
-- A server without a model, over real sockets, with routes that echo, stream, flood, hang and fail.
local lu = require("luaunit")
local uv = require("luv")
local config = require("mtx.config")
local serve = require("mtx.serve")
local client = require("http_client")

local bare = {}

-- flags: config values; add(ctx): more routes. ctx.aborted counts handlers whose client went away.
function bare.start(flags, add)
  flags.port = flags.port or "0"
  flags.log_level = "error"
  local ctx = assert(serve.new(assert(config.load({ env = function() end, flags = flags }))))
  local r = ctx.routes
  r:add("POST", "/echo", { scope = "infer", dialect = "openai", handler = function(x) x:send(200, x.body, "text/plain") end })
  r:add("POST", "/admin/echo", { scope = "admin", dialect = "openai", handler = function(x) x:send(200, x.body, "text/plain") end })
  r:add("GET", "/boom", { scope = "infer", dialect = "openai", handler = function() error("secret /path/x") end })
  r:add("GET", "/stream", { scope = "infer", dialect = "openai", handler = function(x)
    x:start(200, "text/plain")
    local n = 0
    x.timer = uv.new_timer()
    x.on_abort = function() ctx.aborted = (ctx.aborted or 0) + 1; x.timer:close() end
    x.timer:start(1, 1, function()
      n = n + 1
      x:write("line " .. n .. "\n")
      if n == 20 then x.timer:close() x:finish() end
    end)
  end })
  r:add("GET", "/flood", { scope = "infer", dialect = "openai", handler = function(x)
    x:start(200, "text/plain")
    local sent = 0
    x.timer = uv.new_timer()
    x.on_abort = function() ctx.aborted = (ctx.aborted or 0) + 1; x.timer:close() end
    x.timer:start(1, 1, function() sent = sent + 65536; x:write(("x"):rep(65536)); ctx.flooded = sent end)
  end })
  r:add("GET", "/hang", { scope = "infer", dialect = "openai", handler = function(x)
    x.on_abort = function() ctx.aborted = (ctx.aborted or 0) + 1 end
  end })
  if add then add(ctx) end
  assert(serve.listen(ctx))
  return ctx
end

function bare.stop(ctx)
  ctx.config.drain_timeout = 0
  local done = false
  serve.drain(ctx, function() done = true end)
  client.wait(function() return done end, 6000)
  lu.assertTrue(done)
end

function bare.raw(port, bytes, ms)
  local c = client.connect(port)
  c:send(bytes)
  c:until_closed(ms or 1500)
  c:close()
  return c
end

return bare
