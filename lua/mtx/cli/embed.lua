-- SPDX-License-Identifier: MIT
-- `mtx embed`: vectors of texts.
local args = require("mtx.cli.args")
local named = require("mtx.cli.named")
local open = require("mtx.cli.open")

local embed = { name = "embed", summary = "embedding vectors of texts" }

local options = open.with({
  { name = "pooling", kind = "string", value = "KIND", choices = { "mean", "cls", "last" }, help = "mean, cls or last (default: what the file says, else mean for encoders, last for decoders)" },
  { name = "no-normalize", kind = "flag", help = "do not scale vectors to length 1" },
  { name = "json", kind = "flag", help = "print a JSON array of vectors" },
})

embed.help = [[
usage: mtx embed MODEL TEXT... [options]

One vector per text; without TEXT every line of standard input is one.

]] .. args.help(options)

function embed.run(list)
  local values, code = args.start(embed, options, list)
  if not values then return code end
  local path = table.remove(values.rest, 1)
  if not path then return args.misuse(embed, named.WHICH) end
  local texts = values.rest
  if #texts == 0 then
    for line in io.lines() do texts[#texts + 1] = line end
  end
  if #texts == 0 then return args.misuse(embed, "no text given") end
  local model
  model, code = open.model(path, values)
  if not model then return code end
  local lists = {}
  for i, text in ipairs(texts) do
    local ids, message = model:tokenize(text, { add_special = true })
    if not ids then return args.failure(message) end
    lists[i] = ids
  end
  local vectors, message = model:embed(lists, { pooling = values.pooling, normalize = not values.no_normalize })
  model:close()
  if not vectors then return args.failure(message) end
  if values.json then return args.print_json(vectors) end
  for _, v in ipairs(vectors) do
    local words = {}
    for i, x in ipairs(v) do words[i] = ("%.6g"):format(x) end
    print(table.concat(words, " "))
  end
  return 0
end

return embed
