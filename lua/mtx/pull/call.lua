-- SPDX-License-Identifier: MIT
-- A pull that its caller waits for: the command line's, and mtx.pull of scripts. It turns luv's event loop, so it must not
-- be called from one of the loop's callbacks.
local uv = require("luv")
local check = require("mtx.api.check")
local config = require("mtx.config")
local fields = require("mtx.model.fields")
local pull = require("mtx.pull")

local call = {}

-- puller: pull.new's; event(event); started(leave), optional: leave() ends it soon, what is there is kept.
-- -> the name it is listed under | nil, Fault (499: it was left)
function call.wait(puller, text, event, started)
  local over, left, fault = false, false, nil
  local handle, refusal = puller:start(text, { event = event, done = function(f) over, fault = true, f end })
  if not handle then return nil, refusal end
  local function leave()
    if left or over then return end
    left = true
    handle.leave()
  end
  if started then started(leave) end
  while not over and not (left and not next(puller.jobs)) do uv.run("once") end
  if not over then fault = check.fault(499, "the pull was cancelled; what is there is kept, the next one goes on from it") end
  if fault then return nil, fault end
  return handle.name
end

local KIND = { name = "string", models_dir = "string", hub = "string", hub_token = "string", pull_hosts = "table", pull_max_gb = "number", progress = "function" }
local CODE = { [400] = "invalid", [404] = "notfound", [409] = "conflict", [499] = "cancelled", [507] = "limit" }

-- opts: name (as `mtx pull` takes it), and
--   models_dir, hub, hub_token, pull_hosts, pull_max_gb   as for `mtx serve`, which also says where they come from when they are not given
--   progress(event)  the events of POST /api/pull; true ends the pull
-- -> {name, path = what mtx.load takes} | nil, message, code. An error of progress is raised once the pull has ended.
function call.pull(opts)
  fields.check_kinds(opts, "mtx.pull", fields.PULL, KIND)
  if not opts.name then fields.wrong("mtx.pull", "name", "a string") end
  for _, host in ipairs(opts.pull_hosts or {}) do
    if type(host) ~= "string" then fields.wrong("mtx.pull", "pull_hosts", "a list of strings") end
  end
  local flags = {}
  for _, name in ipairs({ "models_dir", "hub", "hub_token", "pull_hosts", "pull_max_gb" }) do flags[name] = opts[name] end
  local c, message = config.load({ flags = flags })
  if not c then return nil, message, "invalid" end
  local puller
  puller, message = pull.new(c.values, { any_address = true })
  if not puller then return nil, message, "invalid" end
  local leave, failed
  local name, fault = call.wait(puller, opts.name, function(e)
    if not opts.progress or failed then return end
    local ok, stop = xpcall(opts.progress, debug.traceback, e)
    if not ok then failed = stop end
    if not ok or stop then leave() end
  end, function(f) leave = f end)
  if failed then error(failed, 0) end
  if not name then return nil, fault.message, CODE[fault.status] or "io" end
  local pin = puller.store:pin(name:lower())
  if not pin then return nil, name .. " was removed right after it was pulled", "notfound" end
  return { name = name, path = puller.store:path(pin.from) }
end

return call
