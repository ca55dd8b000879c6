-- SPDX-License-Identifier: MIT
-- `mtx tokenize`: text to token ids, for people, for scripts, and in batches.
--
-- The forms {"ids":[],"pieces":[]} and, per line of a batch, {"ids":[]} or
-- {"error":""} are promised to scripts. A vocabulary-only GGUF is enough.
local args = require("mtx.cli.args")
local tokenizer = require("mtx.core").tokenizer
local infile = require("mtx.infile")
local named = require("mtx.cli.named")
local tok = require("mtx.tok")
local cjson = require("cjson.safe").new()

local tokenize = { name = "tokenize", summary = "text to token ids" }

local options = {
  { name = "add-special", kind = "flag", help = "add BOS, EOS and the like as the model wants them" },
  { name = "parse-special", kind = "flag", help = "text that spells a control token becomes that token" },
  { name = "file", short = "f", kind = "string", value = "FILE", help = "take the text from FILE; - is standard input" },
  { name = "batch", kind = "string", value = "FILE", help = "one case a line in, one answer a line out; - is standard input" },
  { name = "json", kind = "flag", help = 'print {"ids":[...],"pieces":[...]}' },
  named.option,
}

tokenize.help = [[
usage: mtx tokenize MODEL TEXT [options]
       mtx tokenize MODEL --file FILE | - [options]
       mtx tokenize MODEL --batch FILE.jsonl

Text must be UTF-8; TEXT "-" takes it from standard input. MODEL is a GGUF file (one with only a
vocabulary will do), a model folder or a name of `mtx list`. A case of a batch is
{"text" or "hex":"","add_special":false,"parse_special":false}, its answer {"ids":[...]} or {"error":""}.

]] .. args.help(options)

local function encode(t, text, opts)
  local ok, at = tokenizer.valid_utf8(text)
  if not ok then return nil, "the text is not UTF-8 (byte " .. at .. ")" end
  return t:encode(text, opts)
end

-- One line of a batch to one line of output.
local function batch_line(t, line)
  local case, message = cjson.decode(line)
  if type(case) ~= "table" then return nil, message or "a JSON object expected" end
  local text = case.text
  if type(case.hex) == "string" then
    if #case.hex % 2 ~= 0 or case.hex:find("%X") then return nil, '"hex" must be pairs of hexadecimal digits' end
    text = case.hex:gsub("%x%x", function(x) return string.char(tonumber(x, 16)) end)
  end
  if type(text) ~= "string" then return nil, '"text" or "hex" must be a string' end
  return encode(t, text, { add_special = case.add_special == true, parse_special = case.parse_special == true })
end

local function run_batch(t, path)
  local f, message = io.stdin, nil
  if path ~= "-" then f, message = infile.open(path) end
  if not f then return args.failure(message) end
  for line in f:lines() do
    local ids, why = batch_line(t, line)
    io.write(ids and '{"ids":[' .. table.concat(ids, ",") .. "]}" or '{"error":' .. cjson.encode(why) .. "}", "\n")
  end
  if f ~= io.stdin then f:close() end
  return 0
end

-- Bytes of a character that is split over tokens show as U+FFFD.
local function piece(t, id) return (tokenizer.repair_utf8(t:piece(id))) end

local function print_json(t, ids)
  local pieces = {}
  for i, id in ipairs(ids) do pieces[i] = cjson.encode(piece(t, id)) end
  io.write('{"ids":[', table.concat(ids, ","), '],"pieces":[', table.concat(pieces, ","), "]}\n")
end

function tokenize.run(list)
  local o, code = args.start(tokenize, options, list, function(values) return (values.file or values.batch) and 1 or 2 end)
  if not o then return code end
  local which, text = o.rest[1], o.rest[2]
  if not which then return args.misuse(tokenize, named.WHICH) end
  local message
  if o.file or text == "-" then
    if (o.file or "-") == "-" then text = io.read("a") else text, message = args.read(o.file) end
    if not text then return args.failure(message) end
  end
  if not text and not o.batch then return args.misuse(tokenize, "no TEXT given") end
  local t
  t, message = tok.open((named.find(which, o.models_dir)))
  if not t then return args.failure(message) end
  if o.batch then return run_batch(t, o.batch) end
  local ids
  ids, message = encode(t, text, { add_special = o.add_special, parse_special = o.parse_special })
  if not ids then return args.failure(message) end
  if o.json then
    print_json(t, ids)
  else
    for _, id in ipairs(ids) do io.write(("%7d  %s\n"):format(id, (("%q"):format(piece(t, id)):gsub("\\\n", "\\n")))) end
  end
  return 0
end

return tokenize
