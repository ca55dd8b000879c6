-- SPDX-License-Identifier: MIT
-- Matricxon's own routes, and the routes of Ollama's API that this server
-- answers with a clear refusal.
local answer = require("mtx.serve.answer")
local check = require("mtx.api.check")
local core = require("mtx.core")
local models = require("mtx.serve.models")
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
    vision_supported_architectures = list(), supported_quantizations = list(models.quantizations()) })
end

-- The prompt cache lives in memory only: its file-backed form is off and cannot be switched on.
local OFF = wire.encode({ enabled = false, budget_mb = 0, ttl_hours = 0, files = 0, used_bytes = 0 })

local function put_persistence(x)
  local body = answer.body(x)
  local on = check.boolean(body, "enabled")
  check.integer(body, "budget_mb", 0)
  check.integer(body, "ttl_hours", 1)
  if on then check.fail(501, "the prompt cache is kept in memory only; saving it to disk is not supported") end
  x:send(200, OFF)
end

function M.add(ctx)
  local r = ctx.routes
  local function route(method, path, scope, handler) r:add(method, path, { scope = scope, dialect = "ollama", handler = handler }) end
  route("GET", "/api/health", "infer", function(x) x:send(200, health(ctx)) end)
  route("GET", "/api/cache/persistence", "admin", function(x) x:send(200, OFF) end)
  route("PUT", "/api/cache/persistence", "admin", put_persistence)
  route("DELETE", "/api/cache/persistence", "admin", function(x) x:send(200, OFF) end)
  route("DELETE", "/api/cache/persistence/chats/:tag", "admin", function(x) x:send(200, OFF) end)
  for _, path in ipairs({ "/v1/audio/transcriptions", "/v1/audio/translations", "/v1/audio/speech", "/v1/images/generations" }) do
    ctx.routes:add("POST", path, { scope = "infer", dialect = "openai", handler = function()
      check.fail(501, "audio and images are not supported by this server")
    end })
  end
  route("POST", "/api/pull", "admin", function()
    check.fail(501, "this server does not download models; put the file under the models folder")
  end)
end

return M
