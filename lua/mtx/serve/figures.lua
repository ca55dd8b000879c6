-- SPDX-License-Identifier: MIT
-- What a loaded model does now and has done since it was loaded, by name: for /metrics (a series for each model), /admin/stats
-- and the page that shows them.
local figures = {}

local function stat(name) return function(l) return l.engine:stats()[name] end end
local function rate(name) return function(l) local r = l.rates:known() return r and 1000 / r[name] end end

-- {field of /admin/stats, name of the series, kind, what it says, read(l, ctx) -> number | nil: not known}
figures.LIST = {
  { "waiting", "mtx_model_requests_waiting", "gauge", "Requests waiting, by model", stat("n_waiting") },
  { "running", "mtx_model_requests_running", "gauge", "Requests read or written now, by model", stat("n_running") },
  { "kv_pages_total", "mtx_model_kv_pages_total", "gauge", "KV pages, by model", stat("pages_total") },
  { "kv_pages_free", "mtx_model_kv_pages_free", "gauge", "Free KV pages, by model", stat("pages_free") },
  { "prompt_tokens", "mtx_model_prompt_tokens_total", "counter", "Prompt tokens since it was loaded, by model", stat("n_prompt_tokens") },
  { "cached_tokens", "mtx_model_prompt_tokens_cached_total", "counter", "Of these from the cache", stat("n_cached_tokens") },
  { "generated_tokens", "mtx_model_tokens_generated_total", "counter", "Tokens generated since it was loaded, by model", stat("n_generated_tokens") },
  { "load_seconds", "mtx_model_load_seconds", "gauge", "How long it took to load", function(l) return l.load_ms / 1000 end },
  { "predicted_wait_seconds", "mtx_predicted_wait_seconds", "gauge", "Time until a request that came now would have a place, by the rates measured lately",
    function(l, ctx) local f = ctx.policy:forecast(l) return f and f.place / 1000 end },
  { "prompt_tokens_per_second", "mtx_prompt_tokens_per_second", "gauge", "Prompt tokens read, lately", rate("prompt_ms") },
  { "reply_tokens_per_second", "mtx_reply_tokens_per_second", "gauge", "Tokens of one reply, lately", rate("reply_ms") },
  { "reply_tokens", "mtx_reply_tokens", "gauge", "Mean length of the replies, lately", function(l) local r = l.rates:known() return r and r.reply_tokens end },
}

-- All of a model -> {id, waiting, ...}
function figures.of(ctx, l)
  local out = { id = l.name }
  for _, f in ipairs(figures.LIST) do out[f[1]] = f[5](l, ctx) end
  return out
end

-- Adds the series to metrics m.
function figures.attach(ctx, m)
  for _, f in ipairs(figures.LIST) do
    m[f[3]](m, f[2], f[4], function()
      local series = {}
      for _, l in pairs(ctx.pool.loaded) do series[('model="%s"'):format(l.name:gsub('[\\"\n]', "_"))] = f[5](l, ctx) end
      return series
    end)
  end
end

return figures
