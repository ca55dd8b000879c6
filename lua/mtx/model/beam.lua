-- SPDX-License-Identifier: MIT
-- Beam search over forked sessions: hypotheses share the memory of what they have
-- in common and are evaluated together. No random numbers: the same result always.
--
-- Hypotheses are ranked by the sum of their log-probabilities (equals: the older
-- one, then the lower id). Of the ranked extensions those that end the text are
-- finished when they stand among the first n_beams; the first n_beams others go on.
-- Score = sum / length ^ length_penalty (Wu et al. 2016 without their constant, as in
-- transformers), the end token counted; above 0 favours long texts. The search ends
-- at max_tokens, or when n_beams texts are finished and none that lives could score
-- better than the worst of them at any length.
local misuse = require("mtx.model.misuse")

local beam = {}

local MAX_BEAMS = 32 -- sessions an engine has at once

local function check(request, name, low, high, default)
  local v = request[name]
  if v == nil then return default end
  if type(v) ~= "number" or v ~= v or v < low or v > high or (name ~= "length_penalty" and not math.tointeger(v)) then
    misuse("beam: " .. name .. " must be a number between " .. low .. " and " .. high)
  end
  return v
end

-- Appends the extensions of one hypothesis that could be among the best: so many
-- that n of them end nothing. {sum, hyp, order, id, ends}
local function extensions(out, model, hyp, order, n, ignore_eos)
  local top, n_top, n_on = nil, n, 0
  repeat
    n_top, n_on = 2 * n_top, 0
    top = hyp.logits:topk(n_top)
    for _, t in ipairs(top) do
      if not model:is_eog(t[1] - 1) then n_on = n_on + 1 end
    end
  until n_on >= n or #top < n_top
  if not top[1] then return end
  local lse = top[1][2] - hyp.logits:log_softmax_at(1, top[1][1])
  for _, t in ipairs(top) do
    local id = t[1] - 1
    local ends = model:is_eog(id)
    if t[2] > -math.huge and not (ends and ignore_eos) then
      out[#out + 1] = { sum = hyp.sum + (t[2] - lse), order = order, hyp = hyp, id = id, ends = ends }
    end
  end
end

local function better(a, b)
  if a.sum ~= b.sum then return a.sum > b.sum end
  if a.order ~= b.order then return a.order < b.order end
  return a.id < b.id
end

local function extended(ids, id)
  local out = table.move(ids, 1, #ids, 1, {})
  out[#out + 1] = id
  return out
end

-- Sorted by score, the earlier found first among equals, at most n.
local function best_of(list, n)
  table.sort(list, function(a, b)
    if a.score ~= b.score then return a.score > b.score end
    return a.found < b.found
  end)
  for i = #list, n + 1, -1 do list[i] = nil end
  return list
end

local Search = {}
Search.__index = Search

function Search:finish(ids, sum, length, reason)
  self.n_found = self.n_found + 1
  self.done[#self.done + 1] = { ids = ids, logprob = sum, score = sum / length ^ self.penalty, finish_reason = reason, found = self.n_found }
end

-- Gives each chosen extension a session that holds its hypothesis: the first one of a
-- hypothesis takes it over, the others fork it. -> sessions, ids | nil, message, code
function Search:branch(chosen)
  local taken, kept = {}, {}
  for _, c in ipairs(chosen) do kept[c.hyp] = true end
  for _, hyp in ipairs(self.live) do
    if not kept[hyp] then
      hyp.session:close()
      hyp.session = nil
    end
  end
  local live, ids, sessions = {}, {}, {}
  for i, c in ipairs(chosen) do
    local session, message, code = c.hyp.session, nil, nil
    if taken[c.hyp] then
      session, message, code = session:fork()
      if not session then return nil, message, code end
      self.opened[#self.opened + 1] = session
    end
    taken[c.hyp] = true
    live[i] = { session = session, sum = c.sum, ids = extended(c.hyp.ids, c.id) }
    ids[i], sessions[i] = c.id, session
  end
  self.live = live
  return sessions, ids
end

-- True when none of the chosen extensions can get among the n finished ones, however long it grows.
function Search:hopeless(chosen, length, max_tokens)
  if #self.done < self.n then return #chosen == 0 end
  local longest = self.penalty > 0 and max_tokens or length
  for _, c in ipairs(chosen) do
    if c.sum / longest ^ self.penalty > self.done[self.n].score then return false end
  end
  return true
end

function Search:run(model, engine, max_tokens, ignore_eos)
  for length = 1, max_tokens do
    local ranked = {}
    for order, hyp in ipairs(self.live) do extensions(ranked, model, hyp, order, self.n, ignore_eos) end
    table.sort(ranked, better)
    local chosen = {}
    for rank, c in ipairs(ranked) do
      if not c.ends then
        if #chosen < self.n then chosen[#chosen + 1] = c end
      elseif rank <= self.n then
        self:finish(c.hyp.ids, c.sum, length, "stop")
      end
    end
    best_of(self.done, self.n)
    if self:hopeless(chosen, length, max_tokens) then return true end
    if length == max_tokens then
      for _, c in ipairs(chosen) do self:finish(extended(c.hyp.ids, c.id), c.sum, length, "length") end
      return true
    end
    local sessions, ids, code = self:branch(chosen)
    if not sessions then return nil, ids, code end
    local rows, message
    rows, message, code = engine:eval(sessions, ids)
    if not rows then return nil, message, code end
    for i, hyp in ipairs(self.live) do hyp.logits = rows[i] end
  end
end

-- lora: a set of adapters or nil. request: {n_beams = 4, n_best = 1, max_tokens = 64, length_penalty = 1, ignore_eos}.
-- -> list of n_best {ids, text, logprob (sum), score, finish_reason}, best first | nil, message, code
function beam.search(model, engine, prompt_ids, request, lora)
  local n = check(request, "n_beams", 1, MAX_BEAMS, 4)
  local n_best = check(request, "n_best", 1, n, 1)
  local max_tokens = check(request, "max_tokens", 1, 1 << 24, 64)
  local penalty = check(request, "length_penalty", -10, 10, 1)
  local n_ctx = engine:stats().n_ctx
  if #prompt_ids >= n_ctx then return nil, "the prompt has " .. #prompt_ids .. " tokens, the context is " .. n_ctx .. " tokens", "limit" end
  max_tokens = math.min(max_tokens, n_ctx - #prompt_ids)
  local root, message, code = engine:session({ lora = lora })
  if not root then return nil, message, code end
  local self = setmetatable({ n = n, penalty = penalty, done = {}, n_found = 0, opened = { root } }, Search)
  local ok, logits
  logits, message, code = root:eval(prompt_ids)
  if logits then
    self.live = { { session = root, sum = 0, ids = {}, logits = logits } }
    ok, message, code = self:run(model, engine, max_tokens, request.ignore_eos)
  end
  for _, session in ipairs(self.opened) do session:close() end
  if not ok then return nil, message, code end
  local out = best_of(self.done, n_best)
  for _, d in ipairs(out) do
    d.text = model:detokenize(d.ids)
    d.found = nil
  end
  return out
end

return beam
