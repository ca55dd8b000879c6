-- SPDX-License-Identifier: MIT
-- One pull from its name to a model that is listed. Everybody who wants the same model
-- listens to the same job; it ends early when the last of them has left.
--
-- Events are what POST /api/pull sends: {status}, and while bytes come
-- {status, digest, total, completed, file, overall_total, overall_completed}.
local uv = require("luv")
local check = require("mtx.api.check")
local download = require("mtx.pull.download")
local fiber = require("mtx.serve.fiber")
local hash = require("mtx.pull.hash")
local free_disk = require("mtx.free_disk")
local infile = require("mtx.infile")
local loop = require("mtx.loop")
local part = require("mtx.pull.part")
local store_of = require("mtx.pull.store")
local term = require("mtx.cli.term")
local wait = require("mtx.pull.wait")

local job = {}

local Job = {}
Job.__index = Job

local PLAN = { hub = "mtx.pull.hub", url = "mtx.pull.address", registry = "mtx.pull.registry" }

-- client: {hub, rules, token, token_origin, program, retry_ms, stall_s, progress_ms, max_bytes, free_bytes(dir)}; name: name.parse's result.
function job.new(client, store, name)
  return setmetatable({ client = client, store = store, name = name, listeners = {} }, Job)
end

-- An event for everybody who listens.
function Job:say(event)
  self.last = event
  for _, l in ipairs(table.move(self.listeners, 1, #self.listeners, 1, {})) do
    if l.event then l.event(event) end
  end
end

-- Tells how far a file is, not too often.
function Job:progress(file, now)
  local at = uv.now()
  if not now and self.told and at - self.told < self.client.progress_ms and self.told_file == file then return end
  self.told, self.told_file = at, file
  local total, done = 0, 0
  for _, f in ipairs(self.plan.files) do total, done = total + f.size, done + (f.here and f.size or f.done or 0) end
  local digest = file.sha256 and "sha256:" .. file.sha256 or file.path
  self:say({ status = "pulling " .. (file.sha256 and file.sha256:sub(1, 12) or file.path), digest = digest, total = file.size, completed = file.done,
    file = file.path, overall_total = total, overall_completed = done })
end

-- What a plan asks for must fit: into the folder, under the cap, beside what others put there.
local function check_plan(self, plan)
  local claimed, total, cap = self.store:claimed(plan.model.key), 0, self.client.max_bytes
  for _, f in ipairs(plan.files) do
    if not store_of.safe(f.path) then check.fail(502, "the file name '" .. f.path:gsub("%c", "?"):sub(1, 200) .. "' cannot be used") end
    total = math.min(total + math.min(f.size, cap + 1), cap + 1) -- sizes are what others say: no sum of them may wrap
    local stat = uv.fs_stat(self.store:path(f.path))
    if stat and not claimed[f.path] and (stat.size ~= f.size or not f.sha256) then
      check.fail(409, f.path .. " is in the models folder already and was not pulled; move it away first")
    end
    f.found, f.pinned = stat, claimed[f.path]
  end
  if total > cap then
    check.fail(502, ("%s has more than the %s that are pulled at most (--pull-max-gb)"):format(self.name.source, term.bytes(cap)))
  end
end

-- Is a file in its place, with the bytes it should have?
local function is_here(self, f, same_revision)
  if not f.found or f.found.size ~= f.size then return false end
  local pin = f.pinned
  local want = f.sha256 or pin and (f.etag and f.etag == pin.etag or not f.etag and same_revision) and pin.sha256
  if not want then return false end
  self:say({ status = "verifying sha256 digest" })
  local same = hash.file(self, self.store:path(f.path)) == want
  if not same and not pin then check.fail(409, f.path .. " is in the models folder already and was not pulled; move it away first") end
  if same then f.sha256 = want end
  return same
end

local function check_room(self, plan)
  local need = 0
  for _, f in ipairs(plan.files) do
    if not f.here then need = need + math.max(0, f.size - part.size(f.part)) end
  end
  local free = self.client.free_bytes(self.store.dir)
  if need > 0 and free and need + free_disk.SPARE_BYTES > free then
    check.fail(507, ("%s needs %s more, %s are free in the models folder (%s are left to others)"):format(self.name.source, term.bytes(need), term.bytes(free),
      term.bytes(free_disk.SPARE_BYTES)))
  end
end

-- Right bytes of a wrong thing: a page instead of the file it speaks of.
local function check_kind(f)
  if not f.path:lower():find("%.gguf$") or infile.read(f.part, 4) == "GGUF" then return end
  os.remove(f.part)
  check.fail(502, f.path .. ": what came is no GGUF file; it is removed")
end

local function fetch(self, plan, old)
  local same_revision = old and old.revision == plan.revision
  check_plan(self, plan)
  local missing = false
  for _, f in ipairs(plan.files) do
    f.part = self.store:part_path(plan.model.key, f)
    f.here = is_here(self, f, same_revision)
    missing = missing or not f.here
  end
  check_room(self, plan)
  if missing then self.store:begin(plan) end
  for _, f in ipairs(plan.files) do
    if not f.here then
      download.file(self, f, f.part)
      check_kind(f)
    end
  end
  self:say({ status = "writing manifest" })
  self.store:place(plan)
  self.store:drop_partial(plan.model.key)
end

-- The plan | nil: the source cannot be reached and a whole copy is here.
local function plan_of(self, old)
  local ok, plan = pcall(require(PLAN[self.name.kind]).plan, self, self.name)
  if ok then
    plan.model, plan.source = self.name.model, self.name.source
    return plan
  end
  if not check.is_fault(plan) or not plan.unreachable or not old or not self.store:intact(old) then error(plan, 0) end
  self:say({ status = plan.message .. "; the copy of " .. tostring(old.pulled) .. " is kept" })
end

local function run(self)
  local key = self.name.model.key
  self:say({ status = "pulling manifest" })
  self.plan = plan_of(self, self.store:pin(key))
  if not self.plan then return end
  local unlock = self.store:lock(key, function(ms) wait.ms(self, ms) end)
  local ok, fault = xpcall(fetch, function(e) return check.is_fault(e) and e or debug.traceback(tostring(e), 2) end, self, self.plan, self.store:pin(key))
  unlock()
  if not ok then error(fault, 0) end
end

local function whole(self, on_end)
  local ok, fault, trace = check.guarded(run, self)
  if ok then
    fault = nil
    self:say({ status = "success" })
  end
  self.ended = true
  on_end(fault, trace)
  for _, l in ipairs(self.listeners) do
    if l.done then l.done(fault) end
  end
end

-- Starts it, in the loop's next turn: nobody hears of anything before. on_end(fault | nil, trace | nil) comes
-- before the listeners' done.
function Job:start(on_end)
  loop.soon(function() fiber.start(self, whole, self, on_end) end)
end

-- listener: {event(event), done(fault | nil)}, both optional. -> function that leaves
function Job:join(listener)
  self.listeners[#self.listeners + 1] = listener
  return function()
    for i, l in ipairs(self.listeners) do
      if l == listener then table.remove(self.listeners, i) break end
    end
    if not self.listeners[1] then self:cancel() end
  end
end

-- Ends it soon with fault 499.
function Job:cancel()
  if self.cancelled or self.ended then return end
  self.cancelled = true
  if self.on_abort then self.on_abort() end
end

return job
