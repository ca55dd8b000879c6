-- SPDX-License-Identifier: MIT
-- Tools the server runs itself (script's mtx.tool): their calls are answered and
-- the generation goes on, out of the client's sight, until the model says
-- something else. Calls to the client's own tools end the turn as usual.
local check = require("mtx.api.check")
local fiber = require("mtx.serve.fiber")
local json = require("mtx.json")

local toolloop = {}

-- Rounds of one request; a model that only calls tools must end some time.
local MAX_ROUNDS = 8

-- Whether this request takes part.
function toolloop.wanted(ctx, req)
  return ctx.script and #ctx.script.state.tool_list > 0 and req.task == "chat" and req.n == 1 and not req.from_script and req.tool_choice ~= "none"
end

local function add_usage(to, from)
  for _, k in ipairs({ "n_prompt", "n_cached", "n_generated", "n_drafted", "n_draft_accepted", "queue_ms", "prefill_ms", "decode_ms" }) do
    to[k] = (to[k] or 0) + (from[k] or 0)
  end
end

-- One round's events: calls of our own tools are taken out, what else is said goes on to the client.
local Round = {}
Round.__index = Round

local function new_round(tools)
  return setmetatable({ tools = tools, own = {}, by_index = {}, foreign = false, text = {}, thought = {} }, Round)
end

-- -> the event as the client sees it | nil
function Round:take(ev)
  local kind = ev.kind
  if kind == "text" then self.text[#self.text + 1] = ev.text
  elseif kind == "thinking" then self.thought[#self.thought + 1] = ev.text
  elseif kind == "call" then
    if self.tools[ev.name] then
      local c = { id = ev.id, name = ev.name, text = "" }
      self.own[#self.own + 1], self.by_index[ev.index] = c, c
      return nil
    end
    self.foreign = true
    ev.index = ev.index - #self.own
  elseif kind == "arguments" or kind == "call_end" or kind == "call_cut" then
    local c = self.by_index[ev.index]
    if not c then
      ev.index = ev.index - #self.own
    elseif kind == "call_cut" then -- no call after all: what the model wrote is the answer's text
      self.own[#self.own], self.text[#self.text + 1] = nil, ev.text
      return { kind = "text", text = ev.text, choice = ev.choice }
    else
      c.text = c.text .. (ev.text or "")
      return nil
    end
  end
  return ev
end

-- Runs the round's calls: its message and their results go behind req.messages.
local function answer_calls(script, req, round)
  local thought = table.concat(round.thought)
  local message = { role = "assistant", content = table.concat(round.text), reasoning_content = thought ~= "" and thought or nil, tool_calls = {} }
  req.messages = table.move(req.messages, 1, #req.messages, 1, {})
  table.insert(req.messages, message)
  for _, c in ipairs(round.own) do
    local arguments = json.decode(c.text == "" and "{}" or c.text)
    local result = json.is_object(arguments) and script:run_tool(c.name, arguments) or "Error: the arguments are not a JSON object"
    table.insert(message.tool_calls, { id = c.id, type = "function", ["function"] = { name = c.name, arguments = json.is_object(arguments) and arguments or json.object() } })
    table.insert(req.messages, { role = "tool", tool_call_id = c.id, name = c.name, content = result })
  end
end

-- start_once(ctx, req, sink) -> job. Gives a job whose fields are the running round's.
function toolloop.start(ctx, req, sink, start_once)
  local script = ctx.script
  local tools = script.state.tools
  req.tools = table.move(req.tools or {}, 1, #(req.tools or {}), 1, {})
  for _, t in ipairs(script.state.tool_list) do req.tools[#req.tools + 1] = t end
  local n_rounds, inner, waiter, cancelled, before, begun = 0, nil, nil, false, {}, false
  local outer = setmetatable({}, { __index = function(_, k) return inner and inner[k] end })
  function outer:cancel()
    cancelled = true
    if waiter then return waiter.leave(check.fault(499, "request canceled")) end
    inner:cancel()
  end
  local on_wait = req.on_wait
  req.on_wait = function(w)
    waiter = w
    if on_wait then on_wait(w) end
  end
  local function run()
    n_rounds = n_rounds + 1
    local round = new_round(tools)
    inner = start_once(ctx, req, function(ev)
      if ev.kind == "start" then
        if begun then return end
        begun = true
      elseif ev.kind == "done" then
        add_usage(inner.usage, before)
        local only_ours = #round.own > 0 and not round.foreign
        if only_ours and not ev.fault and ev.reason == "tool_calls" and not cancelled and n_rounds < MAX_ROUNDS then
          before = inner.usage
          answer_calls(script, req, round)
          -- The model may have left meanwhile (keep_alive 0) and have to load again.
          return fiber.start(nil, function()
            local _, fault = check.try(run)
            if fault then sink({ kind = "done", choice = 0, last = true, reason = "error", fault = fault }) end
          end)
        end
        if ev.reason == "tool_calls" and not round.foreign then ev.reason = "stop" end
      end
      local seen = round:take(ev)
      if seen then sink(seen) end
    end)
  end
  run()
  return outer
end

return toolloop
