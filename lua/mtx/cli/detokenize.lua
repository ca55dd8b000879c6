-- SPDX-License-Identifier: MIT
-- `mtx detokenize`: token ids to the exact bytes they stand for.
local args = require("mtx.cli.args")
local named = require("mtx.cli.named")
local tok = require("mtx.tok")

local detokenize = { summary = "token ids to text" }

detokenize.help = [[
usage: mtx detokenize MODEL IDS... [--json] [--no-special] [--raw]

IDS are numbers, separated by commas or spaces ("1,2,3" or "[1, 2, 3]"); "-"
takes them from standard input. The text is printed as it is, no newline added.

  --no-special  leave control tokens out
  --raw         only the joined pieces: no clean-up of spaces
  --json        print {"text":""}; broken UTF-8 shows as U+FFFD
]]

local function usage(message)
  io.stderr:write("mtx detokenize: ", message, "\n", detokenize.help:match("^[^\n]*"), "\n")
  return 2
end

local SWITCH = { ["--json"] = "json", ["--no-special"] = "no_special", ["--raw"] = "raw", ["--help"] = "help", ["-h"] = "help" }

local function parse(list)
  local o, words = {}, {}
  for _, a in ipairs(list) do
    if SWITCH[a] then
      o[SWITCH[a]] = true
    elseif a:match("^%-%-?%a") then
      return nil, "unknown option " .. a
    elseif not o.model then
      o.model = a
    else
      words[#words + 1] = a == "-" and io.read("a") or a
    end
  end
  local word
  o.ids, word = args.token_ids(table.concat(words, " "))
  if not o.ids then return nil, "'" .. word .. "' is no token id" end
  o.given = #words > 0
  return o
end

function detokenize.run(list)
  local o, message = parse(list)
  if not o then return usage(message) end
  if o.help then
    io.write(detokenize.help)
    return 0
  end
  if not o.model then return usage("no MODEL given") end
  if not o.given then return usage("no IDS given") end
  local t, text
  t, message = tok.open((named.find(o.model)))
  if t then text, message = t:decode(o.ids, { special = not o.no_special, raw = o.raw }) end
  if not text then
    io.stderr:write("mtx detokenize: ", message, "\n")
    return 1
  end
  if o.json then return args.print_json({ text = text }) end
  io.write(text)
  return 0
end

return detokenize
