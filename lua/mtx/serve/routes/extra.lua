-- SPDX-License-Identifier: MIT
-- Matricxon's own routes, and the routes of Ollama's API that this server
-- answers with a clear refusal.
local answer = require("mtx.serve.answer")
local chats = require("mtx.serve.models.chats")
local check = require("mtx.api.check")
local core = require("mtx.core")
local quantization = require("mtx.model.quantization")
local wire = require("mtx.api.wire")

local M = {}

local list = wire.list

-- Architectures whose blocks hold experts.
local EXPERTS = { "moe", "mixtral", "deepseek2" }

local function health(ctx)
  local all, moe = list(core.model.architectures()), list()
  for _, name in ipairs(all) do
    for _, part in ipairs(EXPERTS) do
      if name:find(part, 1, true) then
        moe[#moe + 1] = name
        break
      end
    end
  end
  return wire.encode({ status = "ok", version = ctx.version, supported_architectures = all, moe_supported_architectures = moe,
    vision_supported_architectures = list(), supported_quantizations = list(quantization.names()) })
end

-- What the engines hold in memory is forgotten as well, so that nothing comes back when they end.
local function clear_persistence(ctx)
  return function(x)
    for _, l in ipairs(ctx.pool:list()) do ctx.pool:call(l, "forget_prefix", nil) end
    ctx.persistence:clear()
    x:send(200, wire.encode(ctx.persistence:status()))
  end
end

-- Drops one conversation from memory and disk; what its running requests would leave is dropped at their end.
local function drop_chat(ctx)
  return function(x)
    local tag, dir = x.params.tag, ctx.persistence.dir
    for _, l in ipairs(ctx.pool:list()) do
      for job in pairs(l.jobs) do
        if job.req.cache_tag == tag then job.dropped = true end
      end
    end
    for _, chat in ipairs(dir and chats.take(dir, tag) or {}) do
      local l = ctx.pool.loaded[chat.model]
      if l then ctx.pool:call(l, "forget_prefix", chat.key, chat.ids) end
      core.forget_prompts(dir, chat.key, chat.ids)
    end
    x:send(200, wire.encode(ctx.persistence:status()))
  end
end

local function put_persistence(ctx)
  return function(x)
    local body = answer.body(x)
    local ok, message = ctx.persistence:set({ enabled = check.boolean(body, "enabled"), budget_mb = check.integer(body, "budget_mb", 0, 1 << 24),
      ttl_hours = check.integer(body, "ttl_hours", 1, 1 << 20) })
    if not ok then error(ctx.writes:failed("the settings of the prompt cache", ctx.persistence.dir, message), 0) end
    ctx.writes:worked("the settings of the prompt cache")
    for _, l in ipairs(ctx.pool:list()) do
      ok, message = ctx.pool:call(l, "set_disk", ctx.persistence:options())
      if not ok then check.fail(500, "cannot keep prompts of " .. l.name .. ": " .. tostring(message):gsub("/%S*/", "")) end
    end
    x:send(200, wire.encode(ctx.persistence:status()))
  end
end

function M.add(ctx)
  local r = ctx.routes
  local function route(method, path, scope, handler) r:add(method, path, { scope = scope, dialect = "ollama", handler = handler }) end
  route("GET", "/api/health", "infer", function(x) x:send(200, health(ctx)) end)
  route("GET", "/api/cache/persistence", "admin", function(x) x:send(200, wire.encode(ctx.persistence:status())) end)
  route("PUT", "/api/cache/persistence", "admin", put_persistence(ctx))
  route("DELETE", "/api/cache/persistence", "admin", clear_persistence(ctx))
  route("DELETE", "/api/cache/persistence/chats/:tag", "admin", drop_chat(ctx))
  for _, path in ipairs({ "/v1/audio/transcriptions", "/v1/audio/translations", "/v1/audio/speech", "/v1/images/generations" }) do
    ctx.routes:add("POST", path, { scope = "infer", dialect = "openai", handler = function()
      check.fail(501, "audio and images are not supported by this server")
    end })
  end
end

return M
