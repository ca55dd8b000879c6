-- SPDX-License-Identifier: MIT
-- Generating routes of Ollama's and OpenAI's dialects.
local answer = require("mtx.serve.answer")
local auth = require("mtx.serve.auth")
local check = require("mtx.api.check")
local generate = require("mtx.serve.generate")
local ids = require("mtx.ids")
local ollama = require("mtx.api.ollama")
local ollama_reply = require("mtx.api.ollama_reply")
local openai = require("mtx.api.openai")
local openai_reply = require("mtx.api.openai_reply")
local resume = require("mtx.serve.generate.resume")
local wire = require("mtx.api.wire")

local M = {}

-- What a reply says about itself.
function M.meta(ctx, prefix, job)
  return { id = prefix .. ids.random(24), created = os.time(), model = answer.name_told(job.req, job.loaded),
    fingerprint = "mtx-" .. ctx.version, reasoning_fields = ctx.config.reasoning_fields }
end

local function openai_route(ctx, decode, writer, prefix)
  return function(x)
    local req = decode(answer.body(x))
    if req.task == "text" then req.prompt = nil end
    answer.run(ctx, x, req, function(job)
      local meta = M.meta(ctx, prefix, job)
      if req.reasoning_control then
        ctx.controlled[meta.id], req.controlled_as = job, meta.id
      end
      return writer(req, meta)
    end)
  end
end

-- POST /v1/chat/completions/control: orders to a running reply.
local function control(ctx)
  return function(x)
    local body = answer.body(x)
    local id = check.string(body, "id")
    if not id then check.fail(400, "id is required", { param = "id" }) end
    check.one_of(body, "action", { "reasoning_end" })
    if not check.get(body, "action") then check.fail(400, "action is required: reasoning_end", { param = "action" }) end
    local job = ctx.controlled[id]
    if not job or auth.owner(job.req.key) ~= auth.owner(x.key) then check.fail(404, "no running reply has this id; it must have been started with reasoning_control") end
    local mark = ctx.closing(job.loaded)
    local n = mark and resume.end_thoughts(job, mark) or 0
    x:send(200, wire.encode({ success = n > 0, message = n == 0 and "the reply is not thinking now" or nil }))
  end
end

-- Load, unload and cancel by id: requests without a prompt.
local function ollama_only(ctx, x, req)
  if req.request_id and req.only == "unload" then -- cancel one reply; an unknown id is harmless
    local job = ctx.jobs[auth.own(x.key, req.request_id)]
    if job then job:cancel() end
    return x:send(200, "{}")
  end
  local entry, message = ctx.catalog:find(req.model)
  if not entry then check.fail(404, message) end
  if req.only == "unload" then
    local l = ctx.pool.loaded[entry.key]
    if l then
      l.keep = 0
      ctx.pool:hold(l)
      ctx.pool:release(l, 0)
    end
  else
    local l = generate.model(ctx, req, "completion")
    ctx.pool:hold(l)
    ctx.pool:release(l, req.keep_alive)
  end
  local body = wire.encode(ollama_reply.only(req, req.model, req.only))
  if req.stream then
    x:start(200, "application/x-ndjson")
    x:write(body .. "\n")
    return x:finish()
  end
  x:send(200, body)
end

local function debug_render(ctx, x, req)
  local prompt = require("mtx.serve.generate.prompt")
  local l = generate.model(ctx, req, "completion")
  prompt.build(ctx, l, req)
  x:send(200, wire.encode({ model = answer.name_told(req, l), created_at = ollama_reply.timestamp(),
    _debug_info = { rendered_template = req.rendered, image_count = req.images and #req.images or 0 } }))
end

local function ollama_route(ctx, decode)
  return function(x)
    local req = decode(answer.body(x))
    if req.only then return ollama_only(ctx, x, req) end
    if req.debug_render then return debug_render(ctx, x, req) end
    answer.run(ctx, x, req, function(job) return ollama_reply.writer(req, { model = answer.name_told(req, job.loaded), job = job }) end)
  end
end

function M.add(ctx)
  local r = ctx.routes
  ctx.jobs, ctx.controlled, ctx.n_jobs, ctx.told_options = {}, {}, 0, { names = {}, n = 0 }
  r:add("POST", "/v1/chat/completions", { scope = "infer", dialect = "openai", resumable = true, handler = openai_route(ctx, openai.chat, openai_reply.chat, "chatcmpl-") })
  r:add("POST", "/v1/chat/completions/control", { scope = "infer", dialect = "openai", handler = control(ctx) })
  r:add("POST", "/v1/completions", { scope = "infer", dialect = "openai", handler = openai_route(ctx, openai.completions, openai_reply.text, "cmpl-") })
  r:add("POST", "/api/chat", { scope = "infer", dialect = "ollama", resumable = true, handler = ollama_route(ctx, ollama.chat) })
  r:add("POST", "/api/generate", { scope = "infer", dialect = "ollama", handler = ollama_route(ctx, ollama.generate) })
end

return M
