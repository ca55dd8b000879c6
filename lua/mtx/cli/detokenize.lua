-- SPDX-License-Identifier: MIT
-- `mtx detokenize`: token ids to the exact bytes they stand for.
local args = require("mtx.cli.args")
local named = require("mtx.cli.named")
local tok = require("mtx.tok")

local detokenize = { name = "detokenize", summary = "token ids to text" }

local options = {
  { name = "no-special", kind = "flag", help = "leave control tokens out" },
  { name = "raw", kind = "flag", help = "only the joined pieces: no clean-up of spaces" },
  { name = "json", kind = "flag", help = 'print {"text":""}; broken UTF-8 shows as U+FFFD' },
  named.option,
}

detokenize.help = [[
usage: mtx detokenize MODEL IDS... [options]

IDS are numbers, separated by commas or spaces ("1,2,3" or "[1, 2, 3]"); "-"
takes them from standard input. The text is printed as it is, no newline added.

]] .. args.help(options)

function detokenize.run(list)
  local o, code = args.start(detokenize, options, list)
  if not o then return code end
  local which, words = o.rest[1], {}
  if not which then return args.misuse(detokenize, named.WHICH) end
  for i = 2, #o.rest do words[i - 1] = o.rest[i] == "-" and io.read("a") or o.rest[i] end
  if #words == 0 then return args.misuse(detokenize, "no IDS given") end
  local ids, word = args.token_ids(table.concat(words, " "))
  if not ids then return args.misuse(detokenize, "'" .. word .. "' is no token id") end
  local t, text, message
  t, message = tok.open((named.find(which, o.models_dir)))
  if t then text, message = t:decode(ids, { special = not o.no_special, raw = o.raw }) end
  if not text then return args.failure(message) end
  if o.json then return args.print_json({ text = text }) end
  io.write(text)
  return 0
end

return detokenize
