-- SPDX-License-Identifier: MIT
-- `mtx perplexity`: how well a model predicts a text.
local args = require("mtx.cli.args")
local json = require("mtx.json")
local named = require("mtx.cli.named")
local open = require("mtx.cli.open")

local perplexity = { name = "perplexity", summary = "how well a model predicts a text file" }

local options = open.with({
  { name = "json", kind = "flag", help = 'print {"nll":0.0,"ppl":0.0,"n_tokens":0}' },
})

perplexity.help = [[
usage: mtx perplexity MODEL FILE [options]

Reads the text as one sequence (BOS added where the model adds one) and prints the
mean negative log likelihood of tokens 1 to n-1 and its exponential. The text must
fit the context (--ctx, by default as long as the text needs).

]] .. args.help(options)

function perplexity.run(list)
  local values, code = args.start(perplexity, options, list, 2)
  if not values then return code end
  local which, name = values.rest[1], values.rest[2]
  if not which or not name then return args.misuse(perplexity, "give a model and a text file") end
  local text, message = args.read(name)
  if not text then return args.failure(message) end
  local path, manifest = named.find(which, values.models_dir)
  local tok
  tok, message = require("mtx.tok").open(path)
  if not tok then return args.failure(message) end
  local ids
  ids, message = tok:encode(text, { add_special = true })
  if not ids then return args.failure(message) end
  if #ids < 2 then return args.failure(name .. ": the text has fewer than two tokens") end
  local n_ctx = open.ctx(values, #ids)
  if #ids > n_ctx then
    return args.failure(("%s: the text has %d tokens, the context is %d tokens; shorten the text or raise --ctx"):format(name, #ids, n_ctx))
  end
  local model
  model, code = open.found(values, { ctx = n_ctx }, path, manifest)
  if not model then return code end
  local session = assert(model:session())
  local nll, step = 0, 256
  for at = 1, #ids, step do
    local part = table.move(ids, at, math.min(at + step - 1, #ids), 1, {})
    local rows
    rows, message = session:eval(part, { all = true })
    if not rows then return args.failure(message) end
    for i = 1, #part do
      local target = ids[at + i]
      if target then nll = nll - rows:log_softmax_at(i, target + 1) end
    end
  end
  session:close()
  model:close()
  local mean = nll / (#ids - 1)
  if values.json then return args.print_json(json.object("nll", mean, "ppl", math.exp(mean), "n_tokens", #ids)) end
  print(("nll %.5f, perplexity %.4f over %d tokens"):format(mean, math.exp(mean), #ids))
  return 0
end

return perplexity
