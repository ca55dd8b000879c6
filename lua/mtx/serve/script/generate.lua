-- SPDX-License-Identifier: MIT
-- mtx.generate of scripts: options in OpenAI's words -> the gathered result.
local answer = require("mtx.serve.answer")
local check = require("mtx.api.check")
local generate = require("mtx.serve.generate")
local openai = require("mtx.api.openai")

local M = {}

-- done(result | nil, message): result = {text, choices = {{text, thinking, tool_calls,
-- finish_reason, logprob}}, usage}. Raises Faults of bad options.
function M.run(ctx, x, options, done)
  if type(options) ~= "table" then check.fail(500, "mtx.generate needs a table") end
  local body = {}
  for k, v in pairs(options) do body[k] = v end
  if body.want_logprob then body.logprobs = body.messages and true or 0 end
  body.want_logprob = nil
  local req = body.messages and openai.chat(body) or openai.completions(body)
  req.key, req.from_script, req.stream = x.key, true, false
  local collect, job = answer.collector(), nil
  job = generate.start(ctx, req, function(ev)
    collect.add(ev)
    if not ev.last or x.gone then return end
    if collect.fault then return done(nil, collect.fault.message) end
    local r = collect.result(job)
    local out = { choices = {}, usage = { prompt_tokens = r.usage.n_prompt, completion_tokens = r.usage.n_generated } }
    for i, c in ipairs(r.choices) do
      local sum
      for _, e in ipairs(c.logprobs or {}) do sum = (sum or 0) + (e.logprob or 0) end
      out.choices[i] = { text = c.text, thinking = c.thinking, finish_reason = c.reason, logprob = sum, n_tokens = c.logprobs and #c.logprobs }
    end
    out.text = out.choices[1] and out.choices[1].text
    done(out)
  end)
  x.on_abort = function() job:cancel() end
end

return M
