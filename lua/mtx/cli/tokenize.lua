-- SPDX-License-Identifier: MIT
-- `mtx tokenize`: text to token ids, for people, for scripts, and in batches.
--
-- The forms {"ids":[],"pieces":[]} and, per line of a batch, {"ids":[]} or
-- {"error":""} are promised to scripts. A vocabulary-only GGUF is enough.
local tokenizer = require("mtx.core").tokenizer
local infile = require("mtx.infile")
local named = require("mtx.cli.named")
local tok = require("mtx.tok")
local cjson = require("cjson.safe").new()

local tokenize = { summary = "text to token ids" }

tokenize.help = [[
usage: mtx tokenize MODEL TEXT [--json] [--add-special] [--parse-special]
       mtx tokenize MODEL --file FILE | - [...]
       mtx tokenize MODEL --batch FILE.jsonl

  --add-special    add BOS, EOS and the like as the model wants them
  --parse-special  text that spells a control token becomes that token
  --json           print {"ids":[...],"pieces":[...]}
  --file FILE      take the text from FILE; TEXT "-" takes it from standard input
  --batch FILE     one {"text" or "hex":"","add_special":false,"parse_special":false}
                   a line in, one {"ids":[...]} or {"error":""} a line out; "-" is
                   standard input

Text must be UTF-8. MODEL is a GGUF file; one with only a vocabulary will do.
]]

local function usage(message)
  io.stderr:write("mtx tokenize: ", message, "\n", tokenize.help:match("^[^\n]*"), "\n")
  return 2
end

local function fail(message)
  io.stderr:write("mtx tokenize: ", message, "\n")
  return 1
end

local VALUE = { ["--file"] = "file", ["--batch"] = "batch" }
local SWITCH = { ["--json"] = "json", ["--add-special"] = "add_special", ["--parse-special"] = "parse_special", ["--help"] = "help", ["-h"] = "help" }

local function parse(args)
  local o, i, plain = {}, 1, false
  while i <= #args do
    local a = args[i]
    local key, value = a:match("^(%-%-%w+)=(.*)$")
    if plain or a == "-" or a:sub(1, 1) ~= "-" then
      o[#o + 1] = a
    elseif a == "--" then
      plain = true
    elseif SWITCH[a] then
      o[SWITCH[a]] = true
    elseif VALUE[key or a] then
      if not key then
        i = i + 1
        value = args[i]
      end
      if not value then return nil, a .. " needs a value" end
      o[VALUE[key or a]] = value
    else
      return nil, "unknown option " .. a
    end
    i = i + 1
  end
  return o
end

local function read(path)
  if path == "-" then return io.read("a") end
  return require("mtx.cli.args").read(path)
end

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
  if not f then return fail(message) end
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

function tokenize.run(args)
  local o, message = parse(args)
  if not o then return usage(message) end
  if o.help then
    io.write(tokenize.help)
    return 0
  end
  if not o[1] then return usage("no MODEL given") end
  local t
  if o.batch then
    if o[2] then return usage("--batch takes no TEXT") end
    t, message = tok.open((named.find(o[1])))
    if not t then return fail(message) end
    return run_batch(t, o.batch)
  end
  local text = o[2]
  if o.file or text == "-" then text, message = read(o.file or "-") end
  if message then return fail(message) end
  if not text then return usage("no TEXT given") end
  if o[3] then return usage("more than one TEXT; put it in quotes") end
  t, message = tok.open((named.find(o[1])))
  if not t then return fail(message) end
  local ids
  ids, message = encode(t, text, { add_special = o.add_special, parse_special = o.parse_special })
  if not ids then return fail(message) end
  if o.json then
    print_json(t, ids)
  else
    for _, id in ipairs(ids) do io.write(("%7d  %s\n"):format(id, (("%q"):format(piece(t, id)):gsub("\\\n", "\\n")))) end
  end
  return 0
end

return tokenize
