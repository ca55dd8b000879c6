-- SPDX-License-Identifier: MIT
-- `mtx run MODEL [PROMPT]`: one answer, or a chat.
local args = require("mtx.cli.args")
local model_settings = require("mtx.serve.models.settings")
local named = require("mtx.cli.named")
local open = require("mtx.cli.open")
local sampling = require("mtx.cli.sampling")
local term = require("mtx.cli.term")
local uv = require("luv")

local run = { name = "run", summary = "answer a prompt, or chat" }

run.words = { m = "the model is a word: mtx run MODEL PROMPT", p = "the prompt is a word behind the model: mtx run MODEL PROMPT" }
run.words.model, run.words.prompt = run.words.m, run.words.p
for _, name in ipairs({ "ngl", "gpu-layers", "n-gpu-layers" }) do run.words[name] = "models run on the CPU" end

local CHAT_CACHE_BYTES = 1 << 30

local options = open.with({
  { name = "raw", kind = "flag", help = "no chat template: continue the text as it is" },
  { name = "system", kind = "string", value = "TEXT", help = "system message" },
  { name = "n", short = "n", also = open.TOKENS, kind = "integer", min = 0, value = "N", help = "tokens to generate at most" },
  { name = "stop", kind = "list", value = "TEXT", help = "end before this text (repeatable)" },
  { name = "pull", kind = "flag", help = "fetch the model first when it is not here (see mtx pull --help)" },
  { name = "stats", kind = "flag", help = "print prefill and decode speed and memory" },
  { name = "json", kind = "flag", help = "one JSON object instead of a streamed answer" },
}, sampling.options)

run.help = [==[
usage: mtx run MODEL [PROMPT] [options]

Answers PROMPT through the model's chat template, streamed. Text piped in is put
before PROMPT. Without either it opens a chat: /help lists its commands, Ctrl-C
stops an answer, Ctrl-D leaves.

]==] .. args.help(options)

-- Calls `stop` on Ctrl-C until the returned function is called.
local function on_interrupt(stop)
  local signal = uv.new_signal()
  signal:start("sigint", stop)
  return function()
    signal:stop()
    signal:close()
    uv.run("nowait")
  end
end

local function print_stats(model, result)
  local t = result.timings
  io.stdout:flush() -- the figures stand behind the answer, also where both go into one file
  local drafts = t.n_drafted and (" (%d of %d drafted tokens accepted)"):format(t.n_draft_accepted, t.n_drafted) or ""
  io.stderr:write(term.paint(("[prompt %d tokens (%d cached), %.1f tokens/s; answer %d tokens, %.1f tokens/s%s; first token %.0f ms; resident %s]\n"):format(
    #result.prompt_ids, t.n_cached or 0, t.prompt_per_second or 0, #result.ids, t.decode_per_second or 0, drafts, t.first_token_ms or 0,
    term.bytes(model:info().resident_bytes or 0)), "dim", 2))
end

-- Streams one answer to stdout -> result | nil, message, code
local function answer(model, request)
  local interrupted = false
  local release = on_interrupt(function() interrupted = true end)
  local stream, message, code = model:stream(request)
  if not stream then
    release()
    return nil, message, code
  end
  local function look()
    uv.run("nowait")
    if interrupted then stream:cancel() end
  end
  stream.on_idle = look -- while the prompt is read
  for piece in stream.next, stream do
    io.stdout:write(piece)
    io.stdout:flush()
    look()
  end
  release()
  local result
  result, message, code = stream:result()
  if not result then return nil, message, code end
  if result.text:sub(-1) ~= "\n" then io.stdout:write("\n") end
  if result.finish_reason == "length" and not request.max_tokens then
    io.stdout:flush()
    io.stderr:write(term.paint(("[the answer ends where the context of %d tokens is full; --ctx N makes it larger]\n"):format(model:info().n_ctx), "dim", 2))
  end
  return result
end

local function request_of(values, base, messages, prompt)
  local r = {}
  for k, v in pairs(base) do r[k] = v end
  r.messages, r.prompt = messages, prompt
  r.max_tokens = values.n
  r.stop = values.stop
  return r
end

local function piped_text()
  if uv.guess_handle(0) == "tty" then return nil end
  local text = io.read("a")
  if text and text:match("%S") then return (text:gsub("%s+$", "")) end
end

local function single(model, values, base, prompt)
  local request
  if values.raw then
    request = request_of(values, base, nil, prompt)
  else
    local messages = {}
    if values.system then messages[1] = { role = "system", content = values.system } end
    table.move(values.first_turns, 1, #values.first_turns, #messages + 1, messages)
    messages[#messages + 1] = { role = "user", content = prompt }
    request = request_of(values, base, messages)
  end
  local result, message
  if values.json then
    result, message = model:generate(request)
  else
    result, message = answer(model, request)
  end
  if not result then return args.failure(message) end
  local code = 0
  if values.json then
    code = args.print_json({ text = result.text, finish_reason = result.finish_reason, n_prompt = #result.prompt_ids, n_generated = #result.ids, timings = result.timings })
  end
  if values.stats then print_stats(model, result) end
  return code
end

-- What a Modelfile sets holds where the command line says nothing.
-- -> sampler table | nil, message
local function settings(values, manifest)
  local sampler = { temperature = 0.8, top_k = 40, top_p = 0.95, min_p = 0.05 }
  manifest = manifest or {}
  values.system = values.system or manifest.system
  values.first_turns = manifest.messages or {}
  local own, message = model_settings.read(manifest.parameters)
  if not own then return nil, message end
  if #(values.stop or {}) == 0 then values.stop = own.stop end
  values.n = values.n or own.max_tokens ~= math.huge and own.max_tokens or nil
  for name, value in pairs(own.sampler) do sampler[name] = value end
  return sampling.table(values, sampler)
end

function run.run(list)
  local values, code = args.start(run, options, list)
  if not values then return code end
  local name = table.remove(values.rest, 1)
  if not name then return args.misuse(run, named.WHICH) end
  local path, manifest, reason = named.find(name, values.models_dir)
  if values.pull and path == name and not uv.fs_stat(path) then
    local c, why = require("mtx.config").load({ flags = { models_dir = values.models_dir } })
    if not c then return args.failure(why) end
    local pulled
    pulled, code = require("mtx.cli.pull").fetch(name, c.values, false, "run")
    if not pulled then return code end
    path, manifest, reason = named.find(pulled, values.models_dir)
  end
  local base, message = settings(values, manifest)
  if not base then return args.misuse(run, message) end
  local prompt = #values.rest > 0 and table.concat(values.rest, " ") or nil
  local piped = piped_text()
  if piped then prompt = prompt and (piped .. "\n\n" .. prompt) or piped end
  if not prompt and uv.guess_handle(0) ~= "tty" then return args.misuse(run, "no prompt: give one, or pipe text in") end
  local model
  -- A chat's next turn goes on from what it has in common with the last one; a single answer has no next turn.
  model, code = open.found(values, not prompt and { cache_bytes = CHAT_CACHE_BYTES } or nil, path, manifest, reason)
  if not model then return code end
  if prompt then
    code = single(model, values, base, prompt)
  else
    code = require("mtx.cli.chat").run(model, { values = values, base = base, answer = answer, request_of = request_of, print_stats = print_stats })
  end
  model:close()
  return code
end

return run
