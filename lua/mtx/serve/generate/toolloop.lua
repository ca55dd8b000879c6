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
  for _, k in ipairs({ "n_prompt", "n_cached", "n_generated", "queue_ms", "prefill_ms", "decode_ms" }) do
    to[k] = (to[k] or 0) + (from[k] or 0)
  end
end

-- start_once(ctx, req, sink) -> job. Gives a job whose fields are the running round's.
function toolloop.start(ctx, req, sink, start_once)
  local script = ctx.script
  local tools = script.state.tools
  req.tools = table.move(req.tools or {}, 1, #(req.tools or {}), 1, {})
  for _, t in ipairs(script.state.tool_list) do req.tools[#req.tools + 1] = t end
  local round, inner, waiter, cancelled, before, begun = 0, nil, nil, false, {}, false
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
  local run
  local function again(calls, text, thought)
    local message = { role = "assistant", content = text, reasoning_content = thought ~= "" and thought or nil, tool_calls = {} }
    req.messages = table.move(req.messages, 1, #req.messages, 1, {})
    table.insert(req.messages, message)
    for _, c in ipairs(calls) do
      local arguments = json.decode(c.text == "" and "{}" or c.text)
      local result = json.is_object(arguments) and script:run_tool(c.name, arguments) or "Error: the arguments are not a JSON object"
      table.insert(message.tool_calls, { id = c.id, type = "function", ["function"] = { name = c.name, arguments = json.is_object(arguments) and arguments or json.object() } })
      table.insert(req.messages, { role = "tool", tool_call_id = c.id, name = c.name, content = result })
    end
    -- The model may have left meanwhile (keep_alive 0) and have to load again.
    fiber.start(nil, function()
      local _, fault = check.try(run)
      if fault then sink({ kind = "done", choice = 0, last = true, reason = "error", fault = fault }) end
    end)
  end
  function run()
    round = round + 1
    local own, by_index, foreign, text, thought = {}, {}, false, {}, {}
    inner = start_once(ctx, req, function(ev)
      if ev.kind == "call" then
        if tools[ev.name] then
          local c = { id = ev.id, name = ev.name, text = "" }
          own[#own + 1], by_index[ev.index] = c, c
          return
        end
        foreign = true
        ev.index = ev.index - #own
      elseif ev.kind == "arguments" or ev.kind == "call_end" or ev.kind == "call_cut" then
        local c = by_index[ev.index]
        if c and ev.kind == "call_cut" then -- no call after all: what the model wrote is the answer's text
          own[#own], text[#text + 1] = nil, ev.text
          ev = { kind = "text", text = ev.text, choice = ev.choice }
        elseif c then
          c.text = c.text .. (ev.text or "")
          return
        else
          ev.index = ev.index - #own
        end
      elseif ev.kind == "text" then text[#text + 1] = ev.text
      elseif ev.kind == "thinking" then thought[#thought + 1] = ev.text
      elseif ev.kind == "start" then
        if begun then return end
        begun = true
      elseif ev.kind == "done" then
        add_usage(inner.usage, before)
        if #own > 0 and not foreign and not ev.fault and ev.reason == "tool_calls" and not cancelled and round < MAX_ROUNDS then
          before = inner.usage
          return again(own, table.concat(text), table.concat(thought))
        end
        if ev.reason == "tool_calls" and not foreign then ev.reason = "stop" end
      end
      sink(ev)
    end)
  end
  run()
  return outer
end

return toolloop
