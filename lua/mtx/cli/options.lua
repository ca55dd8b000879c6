-- SPDX-License-Identifier: MIT
-- The server's options as commands read them: flags and words, then the config file.
local config = require("mtx.config")

local options = {}

-- command: {name, help, no_words: what to say of a word too many, flags: set of flags of its own, tells_unknown: it says itself which
-- variables of the environment mean nothing}. n_words: how many names it
-- wants (0 when nil). -> config.load's result, words, its own flags that were given; or nil, exit code (already said why).
function options.read(command, args, n_words)
  local function misuse(message)
    io.stderr:write("mtx ", command.name, ": ", message, "\nTry `mtx ", command.name, " --help`.\n")
    return nil, 2
  end
  local own, others = {}, {}
  for _, word in ipairs(args) do
    local name = word:match("^%-%-(.+)$")
    if name and command.flags and command.flags[name] then own[name] = true else others[#others + 1] = word end
  end
  local flags, words = config.parse_flags(others)
  if not flags then return misuse(words) end
  if flags.help then
    print(command.help)
    return nil, 0
  end
  n_words = n_words or 0
  if #words > n_words then return misuse("unexpected word " .. words[n_words + 1] .. (command.no_words or "")) end
  if #words < n_words then return misuse(n_words == 1 and "a name is needed" or n_words .. " names are needed") end
  local file = flags.config
  flags.config = nil
  local c, message = config.load({ file = file, flags = flags })
  if c then
    for _, v in ipairs(command.tells_unknown and {} or c.unknown) do io.stderr:write("mtx ", command.name, ": ", config.unknown_text(v), "\n") end
    return c, words, own
  end
  io.stderr:write("mtx ", command.name, ": ", message, "\n")
  return nil, 2
end

return options
