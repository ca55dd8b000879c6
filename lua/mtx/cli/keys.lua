-- SPDX-License-Identifier: MIT
-- `mtx keys`: makes API keys for `mtx serve --keys-file`. Only hashes are stored;
-- the key itself is printed once.
local core = require("mtx.core")
local infile = require("mtx.infile")
local uv = require("luv")

local command = { name = "keys", summary = "make, list and remove API keys of the server" }

command.help = [==[
usage: mtx keys add NAME [SCOPES [REQUESTS_PER_MINUTE [TOKENS_PER_MINUTE]]] --keys-file FILE
       mtx keys list --keys-file FILE
       mtx keys rm NAME --keys-file FILE

SCOPES: infer, embed, admin, joined by commas (default infer,embed; admin includes
both). The key is printed once and cannot be read back. A running server takes
changes on SIGHUP.]==]

local function misuse(message)
  io.stderr:write("mtx keys: ", message, "\nTry `mtx keys --help`.\n")
  return 2
end

-- -> lines (none when there is no such file yet) | nil, exit code (already said why)
local function read_lines(path)
  local f, message = infile.open(path)
  if not f then
    if not uv.fs_stat(path) then return {} end
    io.stderr:write("mtx keys: ", message, "\n")
    return nil, 1
  end
  local lines = {}
  for line in f:lines() do lines[#lines + 1] = line end
  f:close()
  return lines
end

local function write_lines(path, lines)
  local ok, message = require("mtx.whole_file").write(path, table.concat(lines, "\n") .. "\n")
  if ok then return 0 end
  io.stderr:write("mtx keys: ", tostring(message), "\n")
  return 1
end

local function add(path, words)
  local name, scopes = words[2], words[3] or "infer,embed"
  if not name or not name:find("^[%w%-_%.]+$") then return misuse("a name of letters, digits, - and _ is needed") end
  for s in scopes:gmatch("[^,]+") do
    if s ~= "infer" and s ~= "embed" and s ~= "admin" then return misuse("unknown scope " .. s .. "; there are infer, embed and admin") end
  end
  if not scopes:find("[^,]") then return misuse("at least one scope is needed: infer, embed or admin") end
  for i = 4, 5 do
    if words[i] and not words[i]:find("^%d+$") then return misuse("a limit is a whole number a minute, not " .. words[i]) end
  end
  local lines, code = read_lines(path)
  if not lines then return code end
  for _, line in ipairs(lines) do
    if line:match("^%s*(%S+)") == name then return misuse("there is a key named " .. name .. " already") end
  end
  local key = "mtx-" .. require("mtx.ids").random(40)
  lines[#lines + 1] = table.concat({ name, scopes, core.sha256.of(key), words[4] or "", words[5] or "" }, " "):gsub("%s+$", "")
  code = write_lines(path, lines)
  if code == 0 then print(key) end
  return code
end

function command.run(args)
  local flags, words = require("mtx.config").parse_flags(args)
  if not flags then return misuse(words) end
  if flags.help then
    print(command.help)
    return 0
  end
  local path, verb = flags.keys_file, words[1]
  if not path then return misuse("--keys-file is needed") end
  if verb == "add" then return add(path, words) end
  local lines, code = read_lines(path)
  if not lines then return code end
  local kept, found = {}, false
  for _, line in ipairs(lines) do
    local name, scopes = line:match("^%s*([^#%s]%S*)%s+(%S+)")
    if verb == "list" and name then print(name, scopes) end
    if name == words[2] then found = true else kept[#kept + 1] = line end
  end
  if verb == "list" then return 0 end
  if verb ~= "rm" then return misuse("add, list or rm") end
  if not found then return misuse("no key is named " .. tostring(words[2])) end
  return write_lines(path, kept)
end

return command
