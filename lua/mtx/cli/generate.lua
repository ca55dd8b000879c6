-- SPDX-License-Identifier: MIT
-- `mtx generate`: one completion, for scripts: ids, text, logprobs, timings.
local args = require("mtx.cli.args")
local json = require("mtx.json")
local named = require("mtx.cli.named")
local open = require("mtx.cli.open")
local sampling = require("mtx.cli.sampling")

local generate = { name = "generate", summary = "complete a prompt or token ids, for scripts" }

local options = open.with({
  { name = "prompt", short = "p", kind = "string", value = "TEXT", help = "text to complete, as it is (no chat template)" },
  { name = "tokens", kind = "ids", value = "IDS", help = "token ids instead of text: 1,2,3" },
  { name = "n", short = "n", also = open.TOKENS, kind = "integer", min = 0, value = "N", default = 128, help = "tokens to generate at most" },
  { name = "stop", kind = "list", value = "TEXT", help = "end before this text (repeatable)" },
  { name = "logprobs", kind = "integer", min = 0, max = 1000, value = "N", help = "log probabilities of the N likeliest tokens" },
  { name = "ignore-eos", kind = "flag", help = "do not end at end-of-generation tokens" },
  { name = "beams", kind = "integer", min = 1, max = 32, value = "N", help = "beam search with N hypotheses instead of sampling" },
  { name = "n-best", kind = "integer", min = 1, value = "N", help = "with --beams: print the N best texts" },
  { name = "length-penalty", kind = "number", min = -10, max = 10, value = "X", help = "with --beams: score = log probability / length^X (default 1)" },
  { name = "json", kind = "flag", help = "print one JSON object" },
}, sampling.options)

generate.help = [[
usage: mtx generate MODEL --prompt TEXT | --tokens IDS [options]

Prints the continuation, or with --json
  {"prompt_ids":[],"ids":[],"text":"","finish_reason":"","timings":{}}
and with --beams
  {"prompt_ids":[],"beams":[{"ids":[],"text":"","logprob":0,"score":0,"finish_reason":""}]}

]] .. args.help(options)

-- With --beams: no random numbers, so nothing of the sampler's options has a meaning.
local function beams_request(values, request)
  if next(request) then return nil, "--beams takes no sampler option (" .. next(request) .. ")" end
  for _, name in ipairs({ "stop", "logprobs" }) do
    if values[name] and values[name] ~= 0 and (type(values[name]) ~= "table" or values[name][1]) then return nil, "--beams cannot be combined with --" .. name end
  end
  if values.n < 1 then return nil, "--beams needs -n of at least 1" end
  local n_best = values.n_best or 1
  if n_best > values.beams then return nil, "--n-best must be 1 to the number of beams" end
  return { n_beams = values.beams, n_best = n_best, length_penalty = values.length_penalty, max_tokens = values.n, ignore_eos = values.ignore_eos }
end

-- -> exit code
local function print_beams(result, as_json, prompt_ids)
  if not as_json then
    for _, b in ipairs(result) do io.stdout:write(b.text, "\n") end
    return 0
  end
  for _, b in ipairs(result) do json.array(b.ids) end
  return args.print_json(json.object("prompt_ids", json.array(prompt_ids), "beams", json.array(result)))
end

-- -> exit code
local function print_result(result)
  for _, token in ipairs(result.logprobs or {}) do json.array(token.top) end
  return args.print_json(json.object("prompt_ids", json.array(result.prompt_ids), "ids", json.array(result.ids), "text", result.text,
    "finish_reason", result.finish_reason, "timings", result.timings, "logprobs", result.logprobs and json.array(result.logprobs)))
end

function generate.run(list)
  local values, code = args.start(generate, options, list, 1)
  if not values then return code end
  local path = values.rest[1]
  if not path then return args.misuse(generate, named.WHICH) end
  if not values.prompt == not values.tokens then return args.misuse(generate, "give either --prompt or --tokens") end
  local request, message = sampling.table(values, {})
  if not request then return args.misuse(generate, message) end
  if values.beams then
    request, message = beams_request(values, request)
    if not request then return args.misuse(generate, message) end
  elseif values.n_best or values.length_penalty then
    return args.misuse(generate, "--n-best and --length-penalty need --beams")
  end
  request.prompt, request.max_tokens, request.ignore_eos = values.prompt, values.n, values.ignore_eos
  if not values.beams then request.stop, request.logprobs = values.stop, values.logprobs end
  request.tokens = values.tokens
  local model
  model, code = open.model(path, values)
  if not model then return code end
  local result
  if values.beams then
    if not request.tokens then request.tokens, message = model:tokenize(request.prompt) end
    if not request.tokens then return args.failure(message) end
    result, message = model:beam(request)
    model:close()
    if not result then return args.failure(message) end
    return print_beams(result, values.json, request.tokens)
  end
  result, message = model:generate(request)
  model:close()
  if not result then return args.failure(message) end
  if values.json then return print_result(result) end
  io.stdout:write(result.text, "\n")
  return 0
end

return generate
