-- SPDX-License-Identifier: MIT
-- A reload's look at the configuration: the file is read again, and what can change while the server works does, for requests
-- and loads from then on. The rest is named, since only a restart takes it. A file with a mistake changes nothing.
local mtx_config = require("mtx.config")
local origin = require("mtx.serve.origin")

local LIVE = {}
for name in ([[keep_alive max_loaded_models memory_margin max_waiting_tokens cache_shared request_timeout drain_timeout max_body_mb
  requests_per_minute tokens_per_minute key_requests_per_minute key_tokens_per_minute origins allowed_hosts api_key admin_key keys_file
  batch_parallel reasoning_fields props_writable metrics log_level]]):gmatch("%S+") do LIVE[name] = true end

local function same(a, b)
  if type(a) ~= "table" then return a == b end
  return table.concat(a, "\0") == table.concat(b, "\0")
end

-- What modules made of values when the server started.
local function follow(ctx)
  local values = ctx.config
  ctx.log.set_level(values.log_level)
  ctx.limits:configure(values)
  ctx.app:configure(values)
end

-- auth_of(values) -> keys | nil, message. -> true | nil, message
return function(ctx, auth_of)
  local new, message = ctx.load_config()
  if not new then return nil, message end
  local keys, why = auth_of(new.values)
  if not keys then return nil, why end
  if not ctx.loopback and not keys.required and not new.values.insecure then return nil, "without a key a public address would be open to anybody; nothing is changed" end
  local changed, later = {}, {}
  for _, o in ipairs(mtx_config.OPTIONS) do
    if not same(ctx.config[o.name], new.values[o.name]) then
      if LIVE[o.name] then
        ctx.config[o.name], ctx.sources[o.name] = new.values[o.name], new.sources[o.name]
        changed[#changed + 1] = o.name
      else
        later[#later + 1] = o.name
      end
    end
  end
  follow(ctx)
  if changed[1] then ctx.log("info", "options changed", { options = table.concat(changed, ", ") }) end
  if later[1] then ctx.log("warn", "options that only a restart changes", { options = table.concat(later, ", ") }) end
  if not keys.required and origin.rules(ctx.config.origins).any then ctx.log("warn", "no key and every origin allowed: any web page can use this server") end
  return true
end
