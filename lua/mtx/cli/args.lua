-- SPDX-License-Identifier: MIT
-- Command-line options from one description: parsing and help text.
--
-- A description is a list of options
--   { name = "temp", short = "t", kind = "number", value = "T", default = 0.8, help = "..." }
-- kind: "flag" (no value), "string", "integer", "number", "ids" (token ids: 1,2,3), "list" (given several
-- times). `also`: what other programs call it, for the hint when it is misspelt. `choices` lists the values a string may have, `min`, and `max` with it, are a number's limits. Options may stand anywhere; `--` ends them;
-- `--name=value` works.
local json = require("mtx.json")
local nearest = require("mtx.nearest")

local args = {}

-- Token ids as people and programs write them: "1,2,3", "1 2 3", "[1, 2, 3]" -> ids | nil, the word that is none
function args.token_ids(text)
  local ids = {}
  for word in text:gmatch("[^%s,%[%]]+") do
    local id = math.tointeger(tonumber(word))
    if not id then return nil, word end
    ids[#ids + 1] = id
  end
  return ids
end

local READ = {
  string = function(s) return s end,
  list = function(s) return s end,
  integer = function(s)
    local n = math.tointeger(tonumber(s))
    if not n then return nil, "needs a whole number, not '" .. s .. "'" end
    return n
  end,
  number = function(s)
    local n = tonumber(s)
    if not n or n ~= n then return nil, "needs a number, not '" .. s .. "'" end
    return n
  end,
  ids = function(s)
    local ids, word = args.token_ids(s)
    if not ids then return nil, "needs token ids (1,2,3); '" .. word .. "' is none" end
    return ids
  end,
}

local function index(options)
  local by = {}
  for _, o in ipairs(options) do
    by["--" .. o.name] = o
    if o.short then by["-" .. o.short] = o end
  end
  return by
end

-- words: {name of no option = what to write instead}, or nil
local function unknown(options, word, words)
  local meant, names, near = word:match("^%-*([^=]*)"), {}, nil
  for i, o in ipairs(options) do
    names[i] = o.name
    for _, other in ipairs(o.also or {}) do
      if other == meant then near = o.name end
    end
  end
  if words and words[meant] then return "unknown option " .. word .. "; " .. words[meant] end
  near = near or nearest(meant, names)
  return "unknown option " .. word .. (near and "; did you mean --" .. near .. "?" or "")
end

local function chosen(option, value)
  for _, name in ipairs(option.choices) do
    if name == value then return value end
  end
  return nil, "must be one of " .. table.concat(option.choices, ", ") .. ", not '" .. value .. "'"
end

local function key(option) return (option.name:gsub("%-", "_")) end

-- Parses `list` -> { values by name with _ for -, rest = positional words } |
-- nil, message. Defaults are filled in. words: as unknown() has it.
function args.parse(options, list, words)
  local by, out, rest, i = index(options), {}, {}, 1
  for _, o in ipairs(options) do
    if o.default ~= nil then out[key(o)] = o.default end
    if o.kind == "list" then out[key(o)] = {} end
  end
  while i <= #list do
    local word = list[i]
    if word == "--" then
      table.move(list, i + 1, #list, #rest + 1, rest)
      break
    end
    local name, value = word:match("^(%-%-[^=]+)=(.*)$")
    local o = by[name or word]
    if not o then
      if word:match("^%-%-?%a") then return nil, unknown(options, word, words) end
      rest[#rest + 1] = word
    elseif o.kind == "flag" then
      if value then return nil, name .. " takes no value" end
      out[key(o)] = true
    else
      if not value then
        i = i + 1
        value = list[i]
      end
      if not value then return nil, word .. " needs a value" end
      local v, message = READ[o.kind](value)
      if o.choices then v, message = chosen(o, value) end
      if v and o.min and (v < o.min or v > (o.max or v)) then
        v, message = nil, ("must be %s, not %s"):format(o.max and o.min .. " to " .. o.max or "at least " .. o.min, value)
      end
      if not v then return nil, (name or word) .. " " .. message end
      if o.kind == "list" then table.insert(out[key(o)], v) else out[key(o)] = v end
    end
    i = i + 1
  end
  out.rest = rest
  return out
end

-- Help lines for the options, aligned, one or two columns of text.
function args.help(options)
  local left, width, lines = {}, 0, {}
  for i, o in ipairs(options) do
    local text = (o.short and ("-" .. o.short .. ", ") or "    ") .. "--" .. o.name
    if o.kind ~= "flag" then text = text .. " " .. (o.value or o.kind:upper()) end
    left[i] = text
    width = math.max(width, #text)
  end
  for i, o in ipairs(options) do
    local default = o.default ~= nil and o.kind ~= "flag" and (" (default " .. tostring(o.default) .. ")") or ""
    lines[#lines + 1] = ("  %-" .. width .. "s  %s%s"):format(left[i], o.help, default)
  end
  return table.concat(lines, "\n")
end

-- The whole start of a command: handles --help and wrong usage. command.words: what stands in the place of options that it has not. n_words: how many words it can use beside options, or a
-- function of the values that says it (nil: any number).
-- -> values | nil, exit code (already said why)
function args.start(command, options, list, n_words)
  for _, word in ipairs(list) do
    if word == "--" then break end
    if word == "--help" or word == "-h" then
      io.stdout:write(command.help, "\n")
      return nil, 0
    end
  end
  local values, message = args.parse(options, list, command.words)
  if not values then return nil, args.misuse(command, message) end
  if type(n_words) == "function" then n_words = n_words(values) end
  local extra = n_words and values.rest[n_words + 1]
  if extra then return nil, args.misuse(command, "unexpected word '" .. extra .. "'; a text of several words stands in quotes") end
  return values
end

-- Prints a value as one line of JSON. Lists are those with an element; one that may be empty is marked with json.array. -> exit code
function args.print_json(value)
  local text, message = json.encode(value)
  if not text then return args.failure(message) end
  print(text)
  return 0
end

-- Wrong usage: one line and where help is. -> exit code 2
function args.misuse(command, message)
  io.stderr:write("mtx ", command.name, ": ", message, "\nTry `mtx ", command.name, " --help`.\n")
  return 2
end

-- Something failed: one line. -> exit code 1
function args.failure(message)
  io.stderr:write("mtx: ", tostring(message), "\n")
  return 1
end

-- The bytes of a file named on the command line | nil, message.
args.read = require("mtx.infile").read

return args
