-- SPDX-License-Identifier: MIT
-- Embedding routes of Ollama's and OpenAI's dialects.
local answer = require("mtx.serve.answer")
local check = require("mtx.api.check")
local embed = require("mtx.serve.generate.embed")
local generate = require("mtx.serve.generate")
local ollama = require("mtx.api.ollama")
local openai = require("mtx.api.openai")
local openai_reply = require("mtx.api.openai_reply")
local wire = require("mtx.api.wire")

local M = {}

local list = wire.list

function M.add(ctx)
  local r = ctx.routes
  r:add("POST", "/api/embed", { scope = "embed", dialect = "ollama", handler = function(x)
    local req = ollama.embed(answer.body(x))
    req.key = x.key
    if req.model == "" then check.fail(400, "model is required") end
    embed.run(ctx, x, req, function(vectors, info)
      local out = list()
      for i, v in ipairs(vectors) do out[i] = list(v) end
      x:send(200, wire.encode({ model = req.model, embeddings = out, total_duration = math.floor(info.total_ms * 1e6),
        load_duration = math.floor(info.load_ms * 1e6), prompt_eval_count = info.n_tokens }))
    end)
  end })
  r:add("POST", "/api/embeddings", { scope = "embed", dialect = "ollama", handler = function(x)
    local req = ollama.embeddings(answer.body(x))
    req.key = x.key
    if #req.inputs == 0 then
      local l = generate.model(ctx, req)
      ctx.pool:hold(l)
      ctx.pool:release(l, req.keep_alive)
      return x:send(200, '{"embedding":[]}')
    end
    embed.run(ctx, x, req, function(vectors) x:send(200, wire.encode({ embedding = list(vectors[1]) })) end)
  end })
  r:add("POST", "/v1/embeddings", { scope = "embed", dialect = "openai", handler = function(x)
    local req = openai.embeddings(answer.body(x))
    req.key = x.key
    embed.run(ctx, x, req, function(vectors, info)
      local model = answer.name_told(req, info.model)
      x:send(200, wire.encode(openai_reply.embeddings(req, vectors, model, info.n_tokens)))
    end)
  end })
end

return M
