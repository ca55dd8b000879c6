-- SPDX-License-Identifier: MIT
-- llama-server's native completion: body -> neutral request, and its replies
-- (api.md, section 4).
local check = require("mtx.api.check")
local openai = require("mtx.api.openai")
local openai_reply = require("mtx.api.openai_reply")
local request = require("mtx.api.request")
local stream = require("mtx.http.stream")
local wire = require("mtx.api.wire")

local llama = {}

local get, fail = check.get, check.fail
local list = wire.list

-- Fields of /completion and /infill beside the prompt.
function llama.common(body, r)
  r.dialect, r.task, r.raw = "llama", "text", true
  r.model = check.string(body, "model") or ""
  r.n = check.integer(body, "n_cmpl", 1, request.MAX.n) or check.integer(body, "n", 1, request.MAX.n) or 1
  r.sampler = request.sampler(body)
  r.sampler.logit_bias = request.logit_bias(body)
  r.sampler.order = request.samplers(body)
  r.stop = request.stop(body, "stop")
  r.stream = check.boolean(body, "stream") or false
  r.max_tokens = openai.max_tokens(body, 0, "n_predict", "max_tokens")
  r.format = openai.format(body)
  r.logprobs = check.integer(body, "n_probs", 0, request.MAX.top_logprobs)
  if r.logprobs == 0 then r.logprobs = nil end
  r.ignore_eos = check.boolean(body, "ignore_eos")
  r.return_tokens = check.boolean(body, "return_tokens")
  request.beyond(r, body)
  r.return_progress, r.timings = check.boolean(body, "return_progress"), check.boolean(body, "timings_per_token")
  r.ping_s = check.integer(body, "sse_ping_interval", -1)
  check.integer(body, "id_slot", -1)
  check.integer(body, "n_indent", 0)
  if check.boolean(body, "post_sampling_probs") then
    fail(400, "post_sampling_probs is not supported: probabilities are those before sampling (n_probs)", { param = "post_sampling_probs" })
  end
  local fields = check.array(body, "response_fields")
  if fields then r.response_fields = fields end
  return r
end

-- POST /completion.
function llama.completion(body)
  local r = llama.common(body, {})
  local p = get(body, "prompt")
  if check.is_object(p) and p ~= nil and not check.is_array(p) then
    if get(p, "multimodal_data") and #p.multimodal_data > 0 then fail(400, "multimodal data is not supported by this model") end
    p = check.string(p, "prompt_string", "prompt.prompt_string")
  end
  r.prompts, r.many = openai.prompts({ prompt = p }, "prompt")
  return r
end

-- POST /infill.
function llama.infill(body)
  local r = llama.common(body, {})
  local extra = get(body, "input_extra")
  if extra ~= nil and not check.is_array(extra) then fail(400, "input_extra must be an array of {filename, text}") end
  local before = {}
  for i, e in ipairs(extra or {}) do
    if type(e) ~= "table" or type(e.text) ~= "string" then fail(400, "input_extra[" .. (i - 1) .. "] must have filename and text") end
    before[#before + 1] = e.text .. "\n"
  end
  r.prompt = table.concat(before) .. (check.string(body, "input_prefix") or "") .. (check.string(body, "prompt") or "")
  r.suffix = check.string(body, "input_suffix") or ""
  return r
end

-- embd_normalize of llama-server: -1 leaves v as it is, 0 scales its largest value to
-- 32760 (int16 range), p >= 1 divides by the p-norm.
function llama.normalized(v, p)
  if p == -1 then return v end
  local sum = 0
  for _, x in ipairs(v) do
    x = math.abs(x)
    if p == 0 then sum = math.max(sum, x / 32760) else sum = sum + x ^ p end
  end
  if p > 0 then sum = sum ^ (1 / p) end
  local out = {}
  for k, x in ipairs(v) do out[k] = sum > 0 and x / sum or 0.0 end
  return out
end

local Writer = {}
Writer.__index = Writer

-- meta: {model, job}.
function llama.writer(req, meta)
  return setmetatable({ req = req, meta = meta, ctype = stream.SSE, ping = stream.COMMENT }, Writer)
end

local function probabilities(entries)
  local out = list()
  for i, e in ipairs(entries) do
    local top = list()
    for j, t in ipairs(e.top or {}) do top[j] = { id = t.id, token = wire.clean(t.text), bytes = list({ t.text:byte(1, -1) }), logprob = t.logprob } end
    out[i] = { id = e.id, token = wire.clean(e.text), bytes = list({ e.text:byte(1, -1) }), logprob = e.logprob, top_logprobs = top }
  end
  return out
end

function Writer:open() return "" end

function Writer:event(ev)
  if ev.kind == "progress" then
    return stream.sse('{"index":' .. ev.choice .. ',"content":"","tokens":[],"stop":false,"id_slot":-1' .. openai_reply.progress(ev))
  end
  if ev.kind ~= "text" or (ev.text == "" and not ev.logprobs and not ev.tokens) then return "" end
  return stream.sse('{"index":' .. ev.choice .. ',"content":' .. wire.quote(ev.text) .. ',"tokens":' .. (ev.tokens and wire.encode(list(ev.tokens)) or "[]") .. ',"stop":false,"id_slot":-1'
    .. (ev.logprobs and ',"completion_probabilities":' .. wire.encode(probabilities(ev.logprobs)) or "") .. openai_reply.timed(ev) .. "}")
end

local function pick(o, fields)
  local out = {}
  for _, path in ipairs(fields) do
    local from, name = o, nil
    for part in tostring(path):gmatch("[^/]+") do
      if name then from = from[name] end
      name = part
      if type(from) ~= "table" then break end
    end
    if type(from) == "table" and name then out[name] = from[name] end
  end
  return out
end

local TYPES = { stop = "eos", length = "limit", tool_calls = "eos", cancelled = "none" }

local function final(self, result, i)
  local c, u, job = result.choices[i], result.usage, self.meta.job
  local settings = { n_ctx = self.req.n_ctx, n_predict = self.req.max_tokens ~= math.huge and self.req.max_tokens or -1, stream = self.req.stream,
    stop = list(job.stop) }
  for k, v in pairs(job.sampler) do if type(v) ~= "table" then settings[k] = v end end
  local p = job.choices[i].prompt
  local o = { index = i - 1, content = self.req.stream and "" or c.text, tokens = list(self.req.return_tokens and c.tokens or nil), id_slot = -1, stop = true,
    model = self.meta.model, tokens_predicted = u.n_generated, tokens_evaluated = u.n_prompt, generation_settings = settings,
    prompt = type(self.req.prompts) == "table" and type(self.req.prompts[p]) == "string" and self.req.prompts[p] or self.req.prompt or "",
    has_new_line = (c.text or ""):find("\n", 1, true) ~= nil, truncated = (job.choices[i].round or 0) > 0, stop_type = c.stop_string and "word" or TYPES[c.reason] or "none",
    stopping_word = c.stop_string or "", tokens_cached = u.n_cached, timings = openai_reply.timings(u) }
  if not self.req.stream and c.logprobs then o.completion_probabilities = probabilities(c.logprobs) end
  if self.req.response_fields then return pick(o, self.req.response_fields) end
  return o
end

function Writer:close(result)
  local out = {}
  for i in ipairs(result.choices) do out[i] = stream.sse(wire.encode(final(self, result, i))) end
  return table.concat(out)
end

function Writer:fault(body) return stream.sse(wire.encode(body)) end

function Writer:whole(result)
  if #result.choices == 1 and not self.req.many then return final(self, result, 1) end
  local out = list()
  for i in ipairs(result.choices) do out[i] = final(self, result, i) end
  return out
end

return llama
