-- SPDX-License-Identifier: MIT
-- /v1/responses: create, chain, read, list, delete, cancel. Stored replies are
-- bounded in number and age and belong to the key that made them: for any other
-- key they do not exist.
local answer = require("mtx.serve.answer")
local auth = require("mtx.serve.auth")
local check = require("mtx.api.check")
local files = require("mtx.serve.routes.files")
local ids = require("mtx.ids")
local json = require("mtx.json")
local responses = require("mtx.api.responses")
local reply = require("mtx.api.responses_reply")
local routes = require("mtx.serve.routes")
local wire = require("mtx.api.wire")

local M = {}

local Store = {}
Store.__index = Store

-- max: entries; ttl: seconds. An entry: {id, key, object, messages (whole history), input, job}.
function M.store(max, ttl, clock)
  return setmetatable({ max = max, ttl = ttl, clock = clock, by_id = {}, order = {}, first = 1, last = 0 }, Store)
end

function Store:put(entry)
  entry.at = self.clock()
  self.last = self.last + 1
  self.order[self.last] = entry
  self.by_id[entry.id] = entry
  self:trim()
end

function Store:trim()
  local now = self.clock()
  while self.first <= self.last do
    local e = self.order[self.first]
    local alive = e and self.by_id[e.id] == e
    if alive and self.last - self.first + 1 <= self.max and now - e.at <= self.ttl then break end
    if alive then self.by_id[e.id] = nil end
    self.order[self.first] = nil
    self.first = self.first + 1
  end
end

function Store:get(id, key)
  self:trim()
  local e = self.by_id[id]
  if not e or e.key ~= auth.owner(key) then check.fail(404, "response '" .. wire.clean(id):sub(1, 80) .. "' not found") end
  return e
end

-- History for a chained request: earlier input, its output as an assistant turn, then the new input.
local function chain(store, req, key)
  local list = {}
  if req.previous then
    local e = store:get(req.previous, key)
    if e.object.status == "in_progress" then check.fail(409, "the previous response is still running") end
    table.move(e.messages, 1, #e.messages, 1, list)
  end
  table.move(req.messages, 1, #req.messages, #list + 1, list)
  req.history = list
  local full = table.move(list, 1, #list, 1, {})
  if req.instructions then table.insert(full, 1, { role = "system", content = req.instructions }) end
  req.messages = full
end

-- Output items -> the assistant message that goes into the history.
local function turn_of(output)
  local m = { role = "assistant", content = "" }
  for _, item in ipairs(output) do
    if item.type == "message" then
      for _, p in ipairs(item.content) do m.content = m.content .. p.text end
    elseif item.type == "reasoning" then
      m.reasoning_content = (m.reasoning_content or "") .. (item.summary[1] and item.summary[1].text or "")
    else
      m.tool_calls = m.tool_calls or {}
      local args = item.type == "custom_tool_call" and json.object("input", item.input) or json.decode(item.arguments)
      if type(args) ~= "table" then args = {} end
      table.insert(m.tool_calls, { id = item.call_id, type = "function", ["function"] = { name = item.name, arguments = args } })
    end
  end
  return m
end

local function create(ctx, store)
  return function(x)
    local req = responses.decode(answer.body(x))
    chain(store, req, x.key)
    local writer, entry
    local job = answer.run(ctx, x, req, function(job)
      writer = reply.writer(req, { id = "resp_" .. ids.random(32), created = os.time(), model = answer.name_told(req, job.loaded) })
      entry = { id = writer.meta.id, key = auth.owner(x.key), messages = req.history, input = req.input, job = job,
        object = { id = writer.meta.id, object = "response", status = "in_progress", created_at = writer.meta.created, model = writer.meta.model, output = wire.list() } }
      if req.store then store:put(entry) end
      return writer
    end, function(result)
      local o
      if req.stream then o = writer:object(result) else
        o = writer:whole(result)
        writer.whole = function() return o end
      end
      entry.object, entry.job = o, nil
      entry.messages = table.move(req.history, 1, #req.history, 1, {})
      table.insert(entry.messages, turn_of(o.output))
    end)
    local abort = x.on_abort
    x.on_abort = function(reason)
      entry.object.status, entry.job = "cancelled", nil
      abort(reason)
    end
    return job
  end
end

function M.add(ctx)
  local store = M.store(ctx.config.responses_max, ctx.config.responses_ttl, ctx.clock)
  ctx.responses = store
  local r = ctx.routes
  local function route(method, path, handler) r:add(method, path, { scope = "infer", dialect = "openai", handler = handler }) end
  route("POST", "/v1/responses", create(ctx, store))
  route("POST", "/v1/responses/input_tokens", function(x)
    local req = responses.decode(answer.body(x))
    chain(store, req, x.key)
    local n = require("mtx.serve.routes.anthropic").count(ctx, req)
    x:send(200, wire.encode({ object = "response.input_tokens", input_tokens = n }))
  end)
  route("GET", "/v1/responses", function(x)
    store:trim()
    local order = {}
    for i = store.first, store.last do
      local e = store.order[i]
      if store.by_id[e.id] == e then order[#order + 1] = e end
    end
    files.page(x, order, function(e) return e.key == auth.owner(x.key) end, function(e) return e.object end)
  end)
  route("GET", "/v1/responses/:id", function(x) x:send(200, wire.encode(store:get(x.params.id, x.key).object)) end)
  route("DELETE", "/v1/responses/:id", function(x)
    local e = store:get(x.params.id, x.key)
    if e.job then e.job:cancel() end
    store.by_id[e.id] = nil
    x:send(200, wire.encode({ id = e.id, object = "response", deleted = true }))
  end)
  route("GET", "/v1/responses/:id/input_items", function(x)
    local e = store:get(x.params.id, x.key)
    local input = e.input
    if type(input) == "string" then
      input = wire.list({ { id = "msg_" .. ids.random(24), type = "message", role = "user", content = wire.list({ { type = "input_text", text = input } }) } })
    end
    x:send(200, wire.encode({ object = "list", data = input, has_more = false }))
  end)
  route("POST", "/v1/responses/:id/cancel", function(x)
    local e = store:get(x.params.id, x.key)
    if not e.job then check.fail(409, "the response has already ended") end
    e.job:cancel()
    e.object.status = "cancelled"
    x:send(200, wire.encode(e.object))
  end)
end

return M
