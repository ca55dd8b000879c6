-- SPDX-License-Identifier: MIT
-- When will a place be free? Plays forward what runs and waits with the measured rates: each place is taken by one
-- request until its reply ends, prompts are read one after the other, a reply is as long as replies were lately
-- or as its budget. How long one that already runs has been at it says nothing of how long it will go on.
--
-- An estimate: who has to be sure (a refusal) counts only what is certain to come before. Places are what is waited for, not
-- KV pages: where --kv-budget-mb lets fewer run than --parallel says, the wait is longer than this.
local forecast = {}

-- view: {parallel, now (ms), running = {{n_prompt, n_cached, reading (no token yet), n_generated, max_tokens}}, waiting = the same in
-- the order in which they are let in}. rates: rates.lua's.
-- -> for each that waits starts = {ms until it gets a place} and turns = {ms until its prompt begins to be read}; place (ms until
-- a newcomer behind them has one), over (ms until all of them have ended). nil: nothing has been measured.
function forecast.of(view, rates)
  local r = rates:known()
  if not r then return nil end
  local places = {}
  local function say(job) return math.min(job.max_tokens - job.n_generated, r.reply_tokens) * r.reply_ms end
  local reading = -rates.prompts:elapsed(view.now) -- when the prompts that are being read are through
  for _, job in ipairs(view.running) do
    if job.reading then reading = reading + (job.n_prompt - job.n_cached) * r.prompt_ms end
    places[#places + 1] = (job.reading and math.max(0, reading) or 0) + say(job)
  end
  reading = math.max(0, reading)
  local over = reading
  for _, t in ipairs(places) do over = math.max(over, t) end
  for i = #places + 1, view.parallel do places[i] = 0 end

  local function first()
    local best = 1
    for i = 2, #places do
      if places[i] < places[best] then best = i end
    end
    return best
  end
  local starts, turns = {}, {}
  for i, job in ipairs(view.waiting) do
    local place = first()
    starts[i], turns[i] = places[place], math.max(reading, places[place])
    reading = turns[i] + job.n_prompt * r.new_share * r.prompt_ms
    places[place] = reading + say(job)
    over = math.max(over, places[place])
  end
  return { starts = starts, turns = turns, place = places[first()], over = over }
end

return forecast
