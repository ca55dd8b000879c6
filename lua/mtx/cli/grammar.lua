-- SPDX-License-Identifier: MIT
-- `mtx grammar check`: does a grammar or schema compile, and does a text fit it?
local args = require("mtx.cli.args")

local grammar = { name = "grammar", summary = "check a GBNF grammar or a JSON Schema, and texts against it" }

local options = {
  { name = "schema", kind = "string", value = "FILE", help = "a JSON Schema instead of a GBNF file" },
  { name = "text", kind = "string", value = "FILE", help = "tell whether this file's text fits" },
  { name = "strict", kind = "flag", help = "refuse a schema that cannot be enforced in full" },
}

grammar.help = [==[
usage: mtx grammar check FILE.gbnf | --schema FILE.json [--text FILE]

Exit code 0: it compiles (and the text fits). 1: it does not; the message names the
place. What a schema asks for and mtx does not enforce is listed.

]==] .. args.help(options)

function grammar.run(list)
  local values, code = args.start(grammar, options, list)
  if not values then return code end
  local verb, path = values.rest[1], values.schema or values.rest[2]
  if verb ~= "check" or not path then return args.misuse(grammar, "usage: mtx grammar check FILE | --schema FILE") end
  local text, message = args.read(path)
  if not text then return args.failure(message) end
  local core = require("mtx.core").grammar
  local g
  if values.schema then g, message = core.schema(text, { strict = values.strict }) else g, message = core.gbnf(text) end
  if not g then return args.failure(path .. ": " .. message) end
  for _, w in ipairs(g:warnings()) do print("not enforced: " .. w) end
  if not values.text then
    print(path .. " compiles")
    return 0
  end
  local sample
  sample, message = args.read(values.text)
  if not sample then return args.failure(message) end
  local state, at = g:match(sample)
  if state == "complete" then
    print(values.text .. " fits")
    return 0
  end
  if state == "partial" then return args.failure(values.text .. ": ends before the grammar does") end
  return args.failure(("%s: byte %d cannot stand there"):format(values.text, at))
end

return grammar
