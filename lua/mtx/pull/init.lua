-- SPDX-License-Identifier: MIT
-- Models fetched into the models folder: from Hugging Face's hub, from an address, from
-- Ollama's registry. Nothing here blocks the event loop. A model is visible only when all
-- its files are there and their hashes are right.
local uv = require("luv")
local check = require("mtx.api.check")
local free_disk = require("mtx.free_disk")
local job = require("mtx.pull.job")
local name = require("mtx.pull.name")
local origins = require("mtx.pull.origins")
local store = require("mtx.pull.store")

local pull = {}

local Pull = {}
Pull.__index = Pull

local DEFAULT_HUB = "https://huggingface.co"
-- Where the hub and the registry keep their large files.
local HUB_PLACES = { "hf.co", "*.hf.co", "*.huggingface.co" }
local REGISTRY_PLACES = { "registry.ollama.ai", "*.ollama.ai", "ollama.com", "*.r2.cloudflarestorage.com" }

local function rules_of(hub, hosts)
  local rules = { hub }
  local function add(list)
    for _, text in ipairs(list) do
      local rule, message = origins.rule(text)
      if not rule then return nil, message end
      rules[#rules + 1] = rule
    end
    return true
  end
  if hub.url == DEFAULT_HUB .. "/" then add(HUB_PLACES) end
  add(REGISTRY_PLACES)
  local ok, message = add(hosts or {})
  if not ok then return nil, "--pull-hosts: " .. message end
  return rules
end

-- values: of mtx.config (models_dir, hub, hub_token, pull_hosts, pull_max_gb); more: {program, retry_ms, stall_s, progress_ms, free_bytes,
-- any_address (an address that a person typed may name any host by https), on_error(trace) of a fault of ours}. -> puller | nil, message
function pull.new(values, more)
  more = more or {}
  local hub, message = origins.parse(values.hub)
  if not hub or hub.path ~= "/" then return nil, "--hub: " .. (message or "only SCHEME://HOST[:PORT] is understood") end
  local rules, why = rules_of(hub, values.pull_hosts)
  if not rules then return nil, why end
  local token = values.hub_token ~= "" and values.hub_token or nil
  if token and token:find("[%c%s]") then return nil, "the hub's token has odd characters in it" end
  local dir = uv.fs_realpath(values.models_dir) or values.models_dir
  return setmetatable({ store = store.new((dir:gsub("(.)/+$", "%1"))), any_address = more.any_address, on_error = more.on_error, jobs = {}, client = {
    hub = hub, rules = rules, token = token, token_origin = hub, program = more.program, retry_ms = more.retry_ms or 1000, stall_s = more.stall_s,
    progress_ms = more.progress_ms or 100, max_bytes = math.floor(values.pull_max_gb * 2 ^ 30), free_bytes = more.free_bytes or free_disk.bytes } }, Pull)
end

-- Pulls the model that `text` names, or joins who does so already. listener: {event(event), done(fault | nil)}.
-- -> {name = under which it is listed, leave()} | nil, Fault. The last one to leave ends the pull; what is there is kept.
function Pull:start(text, listener)
  local parsed, message = name.parse(text, self.client.hub)
  if not parsed then return nil, check.fault(400, message) end
  local client = self.client
  if parsed.kind == "url" and not origins.allowed(client.rules, parsed.url) then
    if not self.any_address or parsed.url.scheme ~= "https" then
      return nil, check.fault(400, parsed.url.scheme .. "://" .. parsed.url.shown .. " is not among the places that models may come from; add it with --pull-hosts")
    end
    client = setmetatable({ rules = table.move(client.rules, 1, #client.rules, 2, { parsed.url }) }, { __index = client })
  end
  local key = parsed.model.key
  local j = self.jobs[key]
  if j and j.cancelled then return nil, check.fault(409, parsed.model.full .. " is just being given up; try again") end
  if j and j.name.source:lower() ~= parsed.source:lower() then return nil, check.fault(409, parsed.model.full .. " is being pulled from " .. j.name.source) end
  local other = not j and self.store:pin(key)
  if other and other.source:lower() ~= parsed.source:lower() then
    return nil, check.fault(409, ("%s is here already, from %s; remove it first"):format(parsed.model.full, other.source))
  end
  local begun = j ~= nil
  if not j then
    j = job.new(client, self.store, parsed)
    self.jobs[key] = j
  end
  local leave = j:join(listener)
  if begun then
    if j.last and listener.event then listener.event(j.last) end
  else
    j:start(function(_, trace)
      self.jobs[key] = nil
      if trace and self.on_error then self.on_error(trace) end
    end)
  end
  return { name = parsed.model.full, leave = leave }
end

-- Ends all pulls.
function Pull:cancel_all()
  for _, j in pairs(self.jobs) do j:cancel() end
end

return pull
