-- SPDX-License-Identifier: MIT
-- Resumable streams, as llama-server has them: a streamed chat sent with
-- X-Conversation-Id goes on when its client is lost, and can be read again from
-- any byte. A conversation belongs to the key that made it; there is no listing.
local answer = require("mtx.serve.answer")
local auth = require("mtx.serve.auth")
local check = require("mtx.api.check")
local replay = require("mtx.http.replay")
local routes = require("mtx.serve.routes")
local wire = require("mtx.api.wire")

local M = {}

local MAX_ID, MAX_IDS = 256, 256

local function place(x, id) return auth.own(x.key, id) end

-- The stream that keeps x's answer, or nil: not asked for, or no room.
local function keep(ctx, store)
  return function(x)
    local id = x.route.resumable and x.req.headers["x-conversation-id"]
    if not id or id == "" then return nil end
    if #id > MAX_ID or not utf8.len(id) then check.fail(400, "X-Conversation-Id must be UTF-8 of at most " .. MAX_ID .. " bytes") end
    local old = store:get(place(x, id))
    if old and old.job and not old.done then old.job:cancel() end
    local s = store:open(place(x, id), { conversation = id })
    if not s then ctx.log("warn", "no room to keep a stream; it ends with its connection", { limit_mb = ctx.config.replay_mb }) end
    return s
  end
end

local function wanted(x)
  local id = routes.query(x.req.query).conv_id
  if not id or id == "" then check.fail(400, "conv_id is required", { param = "conv_id" }) end
  return id
end

local function get(store)
  return function(x)
    local s = store:get(place(x, wanted(x)))
    if not s or not s.ctype then check.fail(404, "stream not found or expired") end
    local text = routes.query(x.req.query).from or "0"
    local from = text:find("^%d+$") and #text < 16 and math.tointeger(tonumber(text))
    if not from then check.fail(400, "from must be a byte offset", { param = "from" }) end
    if from < s.dropped then check.fail(400, "the stream's bytes before " .. s.dropped .. " are no longer kept; start again from there", { param = "from" }) end
    if from > s.total then check.fail(400, "from is " .. from .. ", the stream has " .. s.total .. " bytes", { param = "from" }) end
    replay.serve(x, s, from)
  end
end

local function lookup(store)
  return function(x)
    local ids = check.array(answer.body(x), "conversation_ids", nil, MAX_IDS)
    if not ids then check.fail(400, "conversation_ids is required", { param = "conversation_ids" }) end
    local out = wire.list()
    for i, id in ipairs(ids) do
      if type(id) ~= "string" then check.fail(400, "conversation_ids[" .. (i - 1) .. "] must be a string") end
      local prefix = place(x, id) .. "::"
      for _, s in ipairs(store.order) do
        if s.id == place(x, id) or s.id:sub(1, #prefix) == prefix then
          out[#out + 1] = { conversation_id = s.conversation, is_done = s.done or false, total_bytes = s.total, started_at = s.started,
            completed_at = s.completed or 0 }
        end
      end
    end
    x:send(200, wire.encode(out))
  end
end

local function delete(store)
  return function(x)
    local s = store:get(place(x, wanted(x)))
    if s then
      if s.job and not s.done then s.job:cancel() end
      store:remove(s)
    end
    x:send(204)
  end
end

function M.add(ctx)
  local store = replay.store(ctx.config.replay_mb << 20)
  ctx.streams, ctx.keep_stream = store, keep(ctx, store)
  local function route(method, path, handler) ctx.routes:add(method, path, { scope = "infer", dialect = "openai", handler = handler }) end
  route("GET", "/v1/stream", get(store))
  route("DELETE", "/v1/stream", delete(store))
  route("POST", "/v1/streams/lookup", lookup(store))
end

return M
