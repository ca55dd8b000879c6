-- SPDX-License-Identifier: MIT
-- Whether a model fits into memory, and what to do when it does not.
local check = require("mtx.api.check")

local memory = {}

-- Bytes of a KV element beside f16's; q8_0 holds 32 in 34 bytes.
local KV_SHARE = { f16 = 1, bf16 = 1, f32 = 2, q8_0 = 34 / 64 }
-- Contexts are offered in these steps, and none below the first.
local CONTEXT_STEP = 512

local function mib(n) return string.format("%.1f MiB", n / 1048576) end

local function token_bytes(info, kv_type) return info.kv_bytes_per_token * (KV_SHARE[kv_type] or 1) end

-- Tokens the KV budget holds, or nil for the engine's own choice.
function memory.kv_tokens(info, config)
  if config.kv_budget_mb == 0 or not info.kv_bytes_per_token then return nil end
  return math.max(256, math.floor((config.kv_budget_mb << 20) / token_bytes(info, config.kv_type)))
end

-- Of the model, unless it shares another's (new_bytes 0), and of the adapters that its requests use.
local function weights(entry) return (entry.new_bytes or entry.size) + (entry.adapter_bytes or 0) end

-- Weights, plus the KV cache of all parallel requests when the header tells its
-- size; times the margin. kv_type: instead of the configured one.
function memory.wanted(entry, info, n_ctx, config, kv_type)
  local kv = 0
  if info.kv_bytes_per_token then
    kv = token_bytes(info, kv_type or config.kv_type) * (memory.kv_tokens(info, config) or n_ctx * config.parallel)
  end
  return math.ceil((weights(entry) + kv) * config.memory_margin)
end

-- What would fit: the largest context, a smaller KV type, a smaller KV budget.
local function advice(entry, info, n_ctx, config, free)
  local room = free / config.memory_margin - weights(entry)
  if not info.kv_bytes_per_token or room <= 0 then return "the weights alone do not fit: use a smaller model or quantisation" end
  local out = {}
  if config.kv_budget_mb > 0 then
    if room >= 1048576 then out[1] = "--kv-budget-mb " .. math.floor(room / 1048576) .. " fits" end
  else
    local fits = math.floor(room / (token_bytes(info, config.kv_type) * config.parallel)) // CONTEXT_STEP * CONTEXT_STEP
    if fits >= CONTEXT_STEP then out[1] = "a context of " .. fits .. " tokens fits (num_ctx or --ctx)" end
    if config.kv_type ~= "q8_0" and memory.wanted(entry, info, n_ctx, config, "q8_0") <= free then out[#out + 1] = "--kv-type q8_0 fits at this context" end
  end
  if #out == 0 then return "no useful context fits: use a smaller --parallel or a smaller model" end
  return table.concat(out, "; ")
end

-- The Fault of a model that does not fit, with bytes wanted and free.
function memory.refusal(entry, info, n_ctx, config, free)
  local wanted = memory.wanted(entry, info, n_ctx, config)
  return check.fault(503, string.format("not enough memory for %s with a context of %d tokens: %d bytes (%s) wanted with the margin of %s, %d bytes (%s) free; %s",
    entry.name, n_ctx, wanted, mib(wanted), config.memory_margin, free, mib(free), advice(entry, info, n_ctx, config, free)), { kind = "unavailable" })
end

return memory
