-- SPDX-License-Identifier: MIT
-- Runs the lines of a stored file as requests, a few at a time and behind everybody
-- else's. A line goes through the same handler as a request from outside; only the
-- connection is missing. State is on disk: after a restart a batch goes on with the
-- lines that have no answer yet.
local uv = require("luv")
local answers = require("mtx.serve.files.batch_answers")
local check = require("mtx.api.check")
local ids = require("mtx.ids")
local json = require("mtx.json")
local wire = require("mtx.api.wire")

local batches = {}

-- Lines of one batch, batches kept, seconds to run, and bytes of lines read per turn of the loop.
batches.MAX_LINES, batches.MAX_BATCHES, batches.WINDOW_S = 50000, 1000, 86400
local SLICE, PRIORITY = 1 << 18, -10

-- A line refused because the server is busy is run again: so often, after so many ms, twice as
-- many each time (some 7 minutes in all). When that has not helped one line, the next do not wait.
local MAX_TRIES, PAUSE_MS, MAX_PAUSE_MS = 20, 250, 30000

local ENDPOINTS = { ["/v1/chat/completions"] = true, ["/v1/completions"] = true, ["/v1/embeddings"] = true, ["/v1/responses"] = true }
local ENDED = { completed = true, failed = true, cancelled = true, expired = true }

local Runner = {}
Runner.__index = Runner

function batches.is_endpoint(path) return ENDPOINTS[path or ""] == true end
function batches.ended(b) return ENDED[b.status] == true end

-- ctx.files must be there. Batches that were running go on.
function batches.new(ctx)
  local self = setmetatable({ ctx = ctx, by_id = {}, order = {}, active = {} }, Runner)
  for b in ctx.files:records("batch") do
    self.by_id[b.id] = b
    self.order[#self.order + 1] = b
    if not ENDED[b.status] then self:start(b) end
  end
  return self
end

-- That a later state is not on disk ends no batch: after a restart it goes on from an earlier one.
local function set(self, b, status)
  b.status = status
  b[status .. "_at"] = os.time()
  self.ctx.files:save(b)
end

-- Forgets the oldest ended batches when there are too many.
function Runner:trim()
  for i = 1, #self.order do
    if #self.order < batches.MAX_BATCHES then return true end
    local b = self.order[i]
    if b and ENDED[b.status] then
      table.remove(self.order, i)
      self.by_id[b.id] = nil
      os.remove(self.ctx.files:path(b.id) .. ".json")
      return self:trim()
    end
  end
  return #self.order < batches.MAX_BATCHES
end

-- fields: endpoint, input_file_id, key, metadata, completion_window. -> batch | nil, Fault.
function Runner:create(fields)
  if not self:trim() then return nil, check.fault(429, "there are " .. #self.order .. " batches; cancel some") end
  local ok, message = self.ctx.files:has_place()
  if not ok then return nil, check.fault(429, message) end
  local b = fields
  b.id, b.status, b.created_at = "batch_" .. ids.random(24), "validating", os.time()
  b.expires_at = b.created_at + batches.WINDOW_S
  b.counts = { total = 0, completed = 0, failed = 0 }
  local saved, fault = self.ctx.files:save(b)
  if not saved then return nil, fault end
  self.by_id[b.id] = b
  self.order[#self.order + 1] = b
  self:start(b)
  return b
end

-- ---- lines -----------------------------------------------------------------------

local function bad_line(n, message, param) return { line = n, message = message, param = param or wire.null, code = "invalid_line" } end

-- Text of a line -> {custom_id, body}, or nil, error.
local function read_line(b, n, text)
  if text == false then return nil, bad_line(n, "the line is too long") end
  if not utf8.len(text) then return nil, bad_line(n, "the line is not valid UTF-8") end
  local value, message = json.decode(text)
  if not json.is_object(value) then return nil, bad_line(n, value == nil and message or "the line is no JSON object") end
  if type(value.custom_id) ~= "string" or value.custom_id == "" or #value.custom_id > 512 then return nil, bad_line(n, "custom_id must be a string of 1 to 512 bytes", "custom_id") end
  if value.method ~= nil and value.method ~= "POST" then return nil, bad_line(n, "method must be POST", "method") end
  if value.url ~= b.endpoint then return nil, bad_line(n, "url must be the batch's endpoint, " .. b.endpoint, "url") end
  if not json.is_object(value.body) then return nil, bad_line(n, "body must be an object", "body") end
  return value
end

local function next_line(self, b)
  local record = self.ctx.files.files[b.input_file_id]
  if not record then return nil, "the input file is gone" end
  return self.ctx.files:lines(record, self.ctx.app.max_body)
end

-- A timer's function whose error ends the batch and not the server.
local function guarded(self, b, run, f)
  return function()
    local ok, err = xpcall(f, debug.traceback)
    if ok then return end
    self.ctx.log("error", "batch failed", { batch = b.id, trace = err })
    if not run.timer:is_closing() then run.timer:close() end
    self.active[b.id] = nil
    b.errors = { object = "list", data = wire.list({ bad_line(wire.null, "internal error; the server's log has the details") }) }
    set(self, b, "failed")
  end
end

-- Reads every line before any is run: a bad file is a failed batch, not a half-done one.
local function validate(self, b, run)
  local lines, message = next_line(self, b)
  local seen, errors, at, n = {}, wire.list(), 0, 0 -- at: lines read, blank ones too; n: requests
  if not lines then errors[1] = bad_line(wire.null, message) end
  local function finish()
    run.timer:stop()
    if n == 0 and #errors == 0 then errors[1] = bad_line(wire.null, "the file has no lines") end
    if #errors > 0 then
      b.errors = { object = "list", data = errors }
      self.active[b.id] = nil
      run.timer:close()
      return set(self, b, "failed")
    end
    b.counts.total = n
    set(self, b, "in_progress")
    self:begin(b, run)
  end
  if not lines then return finish() end
  run.timer:start(0, 1, guarded(self, b, run, function()
    if run.cancelled then return self:finish(b, run) end
    local bytes = 0
    while bytes < SLICE do
      local text = lines()
      if text == nil then return finish() end
      at = at + 1
      if at > batches.MAX_LINES then
        errors[#errors + 1] = bad_line(at, "more than " .. batches.MAX_LINES .. " lines")
        return finish()
      end
      if text == false or text:find("%S") then
        n = n + 1
        local line, e = read_line(b, at, text)
        if line and seen[line.custom_id] then line, e = nil, bad_line(at, "custom_id " .. line.custom_id:sub(1, 80) .. " comes twice", "custom_id") end
        if e then errors[#errors + 1] = e else seen[line.custom_id] = true end
        if #errors >= 20 or text == false then return finish() end
      end
      bytes = bytes + (text and #text or 0) + 64
    end
  end))
end

-- ---- requests --------------------------------------------------------------------

-- What a handler sees in place of an HTTP exchange.
local Exchange = {}
Exchange.__index = Exchange
function Exchange:header() end
function Exchange:elapsed() return 0 end
function Exchange:send(status, body)
  if self.status then return end
  self.status = status
  self.answered(status, body or "")
end

local function answer_line(b, line, status, body)
  return json.encode(json.object("id", "batch_req_" .. ids.random(24), "custom_id", line.custom_id, "response",
    json.object("status_code", status, "request_id", ids.request(), "body", json.decode(body) or body), "error", json.null)) .. "\n"
end

-- A line whose answer is "not now": true when it is put back, and the batch pauses.
local function put_back(run, line, status)
  if status ~= 503 and status ~= 429 then
    run.pause, run.patient = PAUSE_MS, true
    return false
  end
  local tries = (run.tries[line] or 0) + 1
  run.tries[line] = tries
  if tries == MAX_TRIES then run.patient = false end
  if not run.patient then return false end
  run.again[#run.again + 1] = line
  if uv.now() >= run.resume_at then -- else: refused together with another
    run.resume_at = uv.now() + run.pause
    run.pause = math.min(2 * run.pause, MAX_PAUSE_MS)
  end
  return true
end

-- Runs one line; done() is called once, on a later turn of the loop or within.
local function run_line(self, b, run, line, done)
  local ctx = self.ctx
  local route = ctx.routes:match("POST", b.endpoint)
  line.body.stream = false
  if line.body.priority == nil then line.body.priority = PRIORITY end
  local x = setmetatable({ req = { method = "POST", path = b.endpoint, headers = {} }, route = route, body = json.encode(line.body), key = run.key }, Exchange)
  run.exchanges[x] = true
  function x.answered(status, body)
    run.exchanges[x] = nil
    if not ctx.draining and not run.cancelled and not put_back(run, line, status) then
      local good = status >= 200 and status < 300
      local ok, message = run[good and "out" or "err"]:write(answer_line(b, line, status, body))
      local c = good and "completed" or "failed"
      if ok then b.counts[c] = b.counts[c] + 1 else run.fault = message end
    end
    done()
  end
  ctx.app:run_fiber(x, route.handler, x)
end

-- Keys are looked up again by name: one taken away meanwhile ends its batches.
local function key_of(ctx, name)
  if name == "" then return not ctx.auth.required, nil end
  for _, k in ipairs(ctx.auth.keys) do
    if k.name == name then return true, k end
  end
  return false
end

function Runner:begin(b, run)
  local done = {}
  local path = self.ctx.files:path(b.id)
  run.out, b.counts.completed = answers.open(self.ctx.files, path .. ".out", done)
  run.err, b.counts.failed = answers.open(self.ctx.files, path .. ".err", done)
  run.exchanges, run.again, run.tries, run.pause, run.resume_at, run.patient = {}, {}, {}, PAUSE_MS, 0, true
  local lines, n, ended = next_line(self, b), 0, false
  if not lines then run.fault = "the input file is gone" end
  -- A line to run | nil: none for now.
  local function next_request()
    if uv.now() < run.resume_at then return nil end
    if run.again[1] then return table.remove(run.again) end
    local bytes = 0
    while not ended and bytes < SLICE do
      local text = lines()
      if text == nil then
        ended = true
      elseif text == false then
        run.fault, ended = "a line is longer than a request may be; see max_body_mb", true
      else
        bytes = bytes + #text + 64
        local line = text:find("%S") and json.decode(text)
        if line and not done[line.custom_id] then return line end
      end
    end
  end
  run.timer:start(0, 20, guarded(self, b, run, function()
    if self.ctx.draining then
      run.timer:stop()
      return
    end
    local known
    known, run.key = key_of(self.ctx, b.key) -- it may have been taken away meanwhile
    if not known then run.fault = run.fault or "the batch's key is no longer known" end
    if not run.cancelled and os.time() > b.expires_at then run.expired = true end
    if run.fault or run.expired then run.cancelled = true end
    while not run.cancelled and n < self.ctx.config.batch_parallel do
      local line = next_request()
      if not line then break end
      local admitted, wait = self.ctx.limits:admit(run.key) -- a line is a request of its key
      if not admitted then
        run.again[#run.again + 1], run.resume_at = line, uv.now() + wait * 1000
        break
      end
      n = n + 1
      run_line(self, b, run, line, function() n = n - 1 end)
    end
    if run.cancelled then
      for x in pairs(run.exchanges) do
        if x.job then x.job:cancel() end
      end
    end
    if n == 0 and (run.cancelled or ended and not run.again[1] and not run.fault) then self:finish(b, run) end
  end))
end

-- Answers become files; the state says how it ended.
function Runner:finish(b, run)
  if not run.timer:is_closing() then run.timer:close() end
  self.active[b.id] = nil
  for ending, field in pairs({ [".out"] = "output_file_id", [".err"] = "error_file_id" }) do
    local written = run[ending:sub(2)]
    if written then
      written:close()
      local record, message = self.ctx.files:adopt(self.ctx.files:path(b.id) .. ending, { filename = b.id .. (ending == ".out" and "_output.jsonl" or "_error.jsonl"),
        purpose = "batch_output", key = b.key, created_at = os.time() })
      b[field] = record and record.id or nil
      if message then run.fault = run.fault or message.message end
    end
  end
  if run.fault then b.errors = { object = "list", data = wire.list({ bad_line(wire.null, run.fault) }) } end
  set(self, b, run.fault and "failed" or run.expired and "expired" or run.cancelled and "cancelled" or "completed")
end

function Runner:start(b)
  local run = { timer = uv.new_timer() }
  self.active[b.id] = run
  if b.status == "cancelling" then run.cancelled = true end
  if b.status == "in_progress" or b.status == "cancelling" and b.counts.total > 0 then self:begin(b, run) else validate(self, b, run) end
end

function Runner:cancel(b)
  local run = self.active[b.id]
  if run then run.cancelled = true end
  set(self, b, "cancelling")
end

-- Whether a running batch reads this file.
function Runner:uses(id)
  for batch in pairs(self.active) do
    if self.by_id[batch].input_file_id == id then return true end
  end
  return false
end

return batches
