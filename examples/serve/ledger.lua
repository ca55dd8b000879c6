-- SPDX-License-Identifier: MIT
-- A usage ledger with quotas: counts tokens per key and day, refuses a key that
-- has used its share, and shows the ledger to admins at GET /ledger.
local QUOTA = 1000 -- tokens per key and day

local function account(key)
  local day = os.date("!%Y-%m-%d")
  if mtx.store.day ~= day then mtx.store.day, mtx.store.used = day, {} end
  return mtx.store.used, key == "" and "anonymous" or key
end

mtx.on("request", function(r)
  local used, key = account(r.key)
  if (used[key] or 0) >= QUOTA then mtx.reject(429, "the daily quota of " .. QUOTA .. " tokens is used up") end
end)

mtx.on("response", function(result, r)
  local used, key = account(r.key)
  used[key] = (used[key] or 0) + result.usage.prompt_tokens + result.usage.completion_tokens
end)

mtx.route("GET", "/ledger", function()
  account("")
  return 200, { day = mtx.store.day, used = mtx.store.used, quota = QUOTA }
end, { scope = "admin" })
