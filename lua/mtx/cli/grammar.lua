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
usage: mtx grammar check FILE.gbnf [--text FILE]
       mtx grammar check --schema FILE.json [--text FILE] [--strict]

Exit code 0: it compiles (and the text fits). 1: it does not; the message names the
place. What a schema asks for and mtx does not enforce is listed.

]==] .. args.help(options)

-- "line 3, column 5 (byte 40)": where byte `at` (from 1) of the text is; columns count characters.
local function place(text, at)
  local before = text:sub(1, at - 1)
  local _, line = before:gsub("\n", "")
  local tail = before:match("[^\n]*$")
  return ("line %d, column %d (byte %d)"):format(line + 1, (utf8.len(tail) or #tail) + 1, at)
end

-- Tells whether the text of a file fits. -> exit code
local function try(g, path)
  local text, message = args.read(path)
  if not text then return args.failure(message) end
  local state, at, where = g:match(text)
  local note = ""
  if not state and at == #text and text:sub(-1) == "\n" and g:match(text:sub(1, -2)) == "complete" then
    state, note = "complete", " (without the line break at its end)"  -- which editors put there
  end
  if state == "complete" then
    print(path .. " fits" .. note)
    return 0
  end
  if state == "partial" then return args.failure(path .. ": ends before the grammar does") end
  if type(at) ~= "number" then return args.failure(path .. ": " .. at) end
  return args.failure(("%s: %s: %s cannot stand there%s"):format(path, place(text, at),
    text:find("^[%g ]", at) and "'" .. text:sub(at, at) .. "'" or ("byte 0x%02x"):format(text:byte(at)), where ~= "" and ", in " .. where or ""))
end

function grammar.run(list)
  local values, code = args.start(grammar, options, list)
  if not values then return code end
  local verb, path = values.rest[1], values.schema or values.rest[2]
  if verb ~= "check" or not path or #values.rest > (values.schema and 1 or 2) then
    return args.misuse(grammar, "write `mtx grammar check FILE.gbnf` or `mtx grammar check --schema FILE.json`")
  end
  local text, message = args.read(path)
  if not text then return args.failure(message) end
  local core = require("mtx.core").grammar
  local g
  if values.schema then g, message = core.schema(text, { strict = values.strict }) else g, message = core.gbnf(text) end
  if not g then
    local hint = not values.schema and text:find("^%s*{") and " (a JSON Schema is checked with --schema)" or ""
    return args.failure(path .. ": " .. message .. hint)
  end
  for _, w in ipairs(g:warnings()) do print("warning: " .. w) end
  if values.text then return try(g, values.text) end
  print(path .. " compiles")
  return 0
end

return grammar
