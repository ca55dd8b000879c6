-- SPDX-License-Identifier: MIT
-- Starts and stops a server over the scripted engine for one test.
local config = require("mtx.config")
local fake = require("fake_engine")
local serve = require("mtx.serve")
local client = require("http_client")

-- As in serve.run: a client that hangs up must not end the process.
local pipe = require("luv").new_signal()
pipe:start("sigpipe", function() end)
pipe:unref()

local fixture = {}

-- The messages of a chat in which a user says text.
function fixture.user(text) return { { role = "user", content = text } } end

-- One chat in OpenAI's dialect, of the model "tiny" unless the body names another.
function fixture.chat(ctx, body, ms)
  body.model = body.model or "tiny"
  return client.request(ctx.port, "POST", "/v1/chat/completions", body, nil, ms)
end

-- flags: config values. -> ctx, deps' models folder.
function fixture.start(flags, change)
  fake.reset()
  local deps, dir = fake.deps()
  flags = flags or {}
  flags.persist_dir = flags.persist_dir or dir .. "/.prompts"
  flags.port, flags.models_dir, flags.log_level = "0", dir, flags.log_level or "error"
  if change then change(deps) end
  local ctx = assert(serve.new(assert(config.load({ env = function() end, flags = flags })), deps))
  assert(serve.listen(ctx))
  return ctx, dir
end

-- The same, and what it logs: a list of lines that grows.
function fixture.start_logged(flags, change)
  local log = {}
  local ctx, dir = fixture.start(flags, function(deps)
    deps.log_out = { write = function(_, ...) log[#log + 1] = table.concat({ ... }) end }
    if change then change(deps) end
  end)
  return ctx, dir, log
end

function fixture.stop(ctx)
  ctx.config.drain_timeout = 0
  local done = false
  serve.drain(ctx, function() done = true end)
  client.wait(function() return done end, 6000)
end

return fixture
