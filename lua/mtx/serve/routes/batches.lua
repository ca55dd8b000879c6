-- SPDX-License-Identifier: MIT
-- /v1/batches (OpenAI's batch objects over stored files) and /v1/batch_jobs, the
-- same under OxiLLaMa's name, with the output at hand.
local answer = require("mtx.serve.answer")
local auth = require("mtx.serve.auth")
local batches = require("mtx.serve.files.batches")
local check = require("mtx.api.check")
local files = require("mtx.serve.routes.files")
local wire = require("mtx.api.wire")

local M = {}

local TIMES = { "in_progress_at", "expires_at", "finalizing_at", "completed_at", "failed_at", "expired_at", "cancelling_at", "cancelled_at" }

function M.object(b)
  local o = { id = b.id, object = "batch", endpoint = b.endpoint, errors = b.errors or wire.null, input_file_id = b.input_file_id,
    completion_window = b.completion_window, status = b.status, output_file_id = b.output_file_id or wire.null, error_file_id = b.error_file_id or wire.null,
    created_at = b.created_at, request_counts = b.counts, metadata = b.metadata or wire.null }
  for _, k in ipairs(TIMES) do o[k] = b[k] or wire.null end
  return o
end

local function mine(x, b) return b.key == auth.owner(x.key) end

local function find(ctx, x)
  if not ctx.batches then check.fail(501, "files and batches are switched off; start with --files-dir DIR") end
  local b = ctx.batches.by_id[x.params.id]
  if not b or not mine(x, b) then check.fail(404, "batch '" .. wire.clean(x.params.id):sub(1, 80) .. "' not found") end
  return b
end

local function create(ctx)
  return function(x)
    local body = answer.body(x)
    if not ctx.batches then check.fail(501, "files and batches are switched off; start with --files-dir DIR") end
    local endpoint = check.string(body, "endpoint")
    if not batches.is_endpoint(endpoint) then
      check.fail(400, "endpoint must be one of /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/responses", { param = "endpoint" })
    end
    local id = check.string(body, "input_file_id")
    if not id then check.fail(400, "input_file_id is required", { param = "input_file_id" }) end
    local window = check.one_of(body, "completion_window", { "24h" }) or "24h"
    local metadata = check.object(body, "metadata")
    if metadata and #wire.encode(metadata) > 16384 then check.fail(400, "metadata is larger than 16 KiB", { param = "metadata" }) end
    if files.find(ctx, x, id).purpose ~= "batch" then check.fail(400, "the file's purpose is not batch", { param = "input_file_id" }) end
    local route = ctx.routes:match("POST", endpoint)
    if x.key and not x.key.scopes[route.scope] then check.fail(403, "this key may not call " .. endpoint) end
    local b, fault = ctx.batches:create({ endpoint = endpoint, input_file_id = id, completion_window = window, metadata = metadata, key = auth.owner(x.key) })
    if not b then error(fault, 0) end
    x:send(200, wire.encode(M.object(b)))
  end
end

function M.add(ctx)
  if ctx.files then
    ctx.batches = batches.new(ctx)
    ctx.file_in_use = function(id) return ctx.batches:uses(id) end
  end
  for _, base in ipairs({ "/v1/batches", "/v1/batch_jobs" }) do
    local function route(method, path, handler) ctx.routes:add(method, base .. path, { scope = "infer", dialect = "openai", handler = handler }) end
    route("POST", "", create(ctx))
    route("GET", "", function(x)
      if not ctx.batches then check.fail(501, "files and batches are switched off; start with --files-dir DIR") end
      files.page(x, ctx.batches.order, function(b) return mine(x, b) end, M.object)
    end)
    route("GET", "/:id", function(x) x:send(200, wire.encode(M.object(find(ctx, x)))) end)
    route("POST", "/:id/cancel", function(x)
      local b = find(ctx, x)
      if batches.ended(b) then check.fail(409, "the batch has already ended: " .. b.status) end
      ctx.batches:cancel(b)
      x:send(200, wire.encode(M.object(b)))
    end)
    if base == "/v1/batch_jobs" then
      route("GET", "/:id/output", function(x)
        local b = find(ctx, x)
        if not b.output_file_id then check.fail(batches.ended(b) and 404 or 409, "the batch has no output" .. (batches.ended(b) and "" or " yet")) end
        files.content(ctx, x, files.find(ctx, x, b.output_file_id))
      end)
    end
  end
end

return M
