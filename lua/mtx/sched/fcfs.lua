-- SPDX-License-Identifier: MIT
-- First come, first served, by priority. A policy is a function of the view
--   {waiting = {job...}, running = {job...}, stats = engine's, reason = "arrive" | "start" | "finish", now (s)}
--   job = {id, key, priority, arrived (s), deadline (s or nil), n_prompt, n_cached, n_generated, max_tokens, reading (no token yet)}
--   view.forecast() = {wait_s (until a newcomer gets a place), starts_s = {[id] = s}, prompt_rate, reply_rate (tokens/s; of one
--   reply), reply_tokens (mean)} by measured rates (forecast.lua), or nil before there are any
-- and gives the answer the engine follows until the next one:
--   {order = {ids of waiting jobs, first to be admitted first}, preempt = {ids of
--    running jobs to park} or nil, step_tokens, prefill_tokens (rows of one step, or nil),
--    prefill_ratio (where prefill_tokens is nil: a step with prompt rows takes about
--    this many times what its decoding rows take alone, by measured times, and longer
--    while more requests read their prompts than decode; nil = 2.5)}
return function(view)
  table.sort(view.waiting, function(a, b)
    if a.priority ~= b.priority then return a.priority > b.priority end
    if a.arrived ~= b.arrived then return a.arrived < b.arrived end
    return a.id < b.id
  end)
  local order = {}
  for i, job in ipairs(view.waiting) do order[i] = job.id end
  return { order = order }
end
