-- SPDX-License-Identifier: MIT
-- A generation that goes on with other tokens than it had: the context is shifted
-- when it is full (only when asked), or a thought is ended by order. The engine
-- knows no such thing; the sequence is submitted anew, its kept tokens are
-- evaluated again (or come from the prefix cache), and the client's stream goes on.
local resume = {}

-- Without max_tokens a shifting generation would never end.
local MAX_CONTEXTS = 10

-- The kept part of a full context: its first n_keep tokens and the younger half of the rest.
local function shifted(ids, n_keep, n_prompt, n_ctx)
  if n_keep < 0 then n_keep = n_prompt end
  n_keep = math.max(0, math.min(n_keep, n_ctx - 4))
  local drop = (#ids - n_keep) // 2
  local out = table.move(ids, 1, n_keep, 1, {})
  return table.move(ids, n_keep + drop + 1, #ids, n_keep + 1, out)
end

-- How many tokens a generation may have in all, whatever the context holds.
function resume.limit(job)
  local max = job.req.max_tokens
  if max and max ~= math.huge then return max end
  return job.req.shift and MAX_CONTEXTS * job.req.n_ctx or math.huge
end

-- Whether the ids of what is generated must be kept for a later resume.
function resume.wanted(req) return req.shift or req.reasoning_control or req.think_budget end

local function thinking(choice) return choice.parser and choice.parser.thinking end

-- The ids to go on with after the engine's done event, or nil: it is the end.
local function next_ids(job, choice, ev)
  local l, req = job.loaded, job.req
  if choice.thought_end and ev.reason == "cancelled" then
    if not thinking(choice) then -- it ended by itself meanwhile
      choice.thought_end, choice.thought_mark = {}, nil
    end
    return table.move(choice.thought_end, 1, #choice.thought_end, #choice.ids + 1, choice.ids)
  end
  -- A grammar's state belongs to the text it has read; it cannot go on without it.
  if ev.reason == "length" and req.shift and not job.grammar and #choice.ids >= req.n_ctx then
    local keep = req.n_keep or 0
    if keep == 0 and choice.ids[1] == l.info.bos then keep = 1 end
    return shifted(choice.ids, keep, choice.n_prompt_ids, req.n_ctx)
  end
end

-- Called at a done event: true when the generation goes on. submit(job, choice, ids, rest)
-- as in init.lua; may raise a Fault.
function resume.at_done(job, choice, ev, submit)
  if not choice.ids or job.cancelled or choice.stopped then return false end
  -- Ids the engine kept to itself: the context cannot be shifted; an ended thought needs only what was seen.
  if #choice.ids ~= choice.n_prompt_ids + (ev.n_generated or 0) and not choice.thought_end then return false end
  local ids = next_ids(job, choice, ev)
  if not ids then return false end
  local n = (choice.n_before or 0) + ev.n_generated
  if n >= resume.limit(job) or #ids >= job.req.n_ctx then return false end
  local ms = choice.ms_before or {}
  for _, k in ipairs({ "queue", "prefill", "decode" }) do ms[k] = (ms[k] or 0) + (ev["t_" .. k .. "_ms"] or 0) end
  choice.n_before, choice.ms_before = n, ms
  choice.round, choice.thought_end = (choice.round or 0) + 1, nil
  submit(job, choice, ids, not choice.thought_mark and ev.rest or nil)
  return true
end

-- Ends the thought of a choice that is thinking now: `closing` is put behind what the model has written.
local function end_thought(job, choice, closing)
  choice.thought_end = job.loaded.model:tokenize(closing, { add_special = false, parse_special = true })
  choice.thought_mark, choice.thought_over = closing, true
  job.loaded.engine:cancel(choice.id)
end

local function can_end(choice) return thinking(choice) and choice.ids and not choice.thought_end end

-- The same for every choice that is thinking. -> number of choices that were.
function resume.end_thoughts(job, closing)
  local n = 0
  for _, choice in pairs(job.by_id) do
    if can_end(choice) then
      end_thought(job, choice, closing)
      n = n + 1
    end
  end
  return n
end

-- Counts n more tokens of a choice's thought; at the budget it is ended, with the message, if there is one, before its mark.
function resume.count_thought(job, choice, n)
  choice.n_thought = (choice.n_thought or 0) + n
  if choice.n_thought < job.req.think_budget or choice.thought_over or not can_end(choice) then return end
  local closing = job.ctx.closing(job.loaded)
  if closing then end_thought(job, choice, "\n" .. (job.req.think_message and job.req.think_message .. "\n" or "") .. closing) end
end

return resume
