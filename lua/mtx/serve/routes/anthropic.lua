-- SPDX-License-Identifier: MIT
-- Anthropic's routes, and token counting for the other chat dialects.
local answer = require("mtx.serve.answer")
local anthropic = require("mtx.api.anthropic")
local generate = require("mtx.serve.generate")
local ids = require("mtx.ids")
local openai = require("mtx.api.openai")
local prompt = require("mtx.serve.generate.prompt")
local wire = require("mtx.api.wire")

local M = {}

-- Tokens of the prompt a request would give, template and tools included.
function M.count(ctx, req)
  local l = generate.model(ctx, req, "completion")
  return #prompt.build(ctx, l, req)[1]
end

function M.add(ctx)
  local r = ctx.routes
  r:add("POST", "/v1/messages", { scope = "infer", dialect = "anthropic", resumable = true, handler = function(x)
    local req = anthropic.decode(answer.body(x))
    answer.run(ctx, x, req, function(job)
      return anthropic.writer(req, { id = "msg_" .. ids.random(24), model = answer.name_told(req, job.loaded), job = job })
    end)
  end })
  r:add("POST", "/v1/messages/count_tokens", { scope = "infer", dialect = "anthropic", handler = function(x)
    x:send(200, wire.encode({ input_tokens = M.count(ctx, anthropic.decode(answer.body(x), true)) }))
  end })
  r:add("POST", "/v1/chat/completions/input_tokens", { scope = "infer", dialect = "openai", handler = function(x)
    x:send(200, wire.encode({ object = "response.input_tokens", input_tokens = M.count(ctx, openai.chat(answer.body(x))) }))
  end })
end

return M
