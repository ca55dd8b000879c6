-- SPDX-License-Identifier: MIT
-- The command line: picks the command and runs it. Returns main(arg, root), which
-- gives the process's exit code (0 fine, 1 failure, 2 wrong usage).
--
-- A command is a module mtx.cli.NAME with `name`, `summary` (one line), `help`
-- (the whole text) and run(args) -> exit code.
local VERSION = "0.1.0"

local COMMANDS = {
  "run", "repl", "serve", "pull", "create", "list", "show", "verify", "ps", "rm", "cp", "keys", "stop", "status", "info", "generate", "tokenize", "detokenize", "logits", "perplexity",
  "embed", "bench", "quantize", "template", "grammar", "config",
}

-- Other programs' words for them.
local ALIASES = { ls = "list", ["-v"] = "--version" }

local function command(name)
  for _, known in ipairs(COMMANDS) do
    if known == name then
      local path = package.searchpath("mtx.cli." .. name, package.path)
      return path and require("mtx.cli." .. name)
    end
  end
end

local function usage()
  local lines = {
    "mtx: run, serve and script large language models",
    "",
    "usage: mtx COMMAND [ARGS]      one of the commands below",
    "       mtx FILE.lua [ARGS]     run a script (require \"mtx\" works in it)",
    "       mtx -e 'CODE'           run one line of Lua",
    "       mtx COMMAND --help      what a command does and its options",
    "",
    "commands:",
  }
  for _, name in ipairs(COMMANDS) do
    local c = command(name)
    if c then lines[#lines + 1] = ("  %-12s %s"):format(name, c.summary) end
  end
  lines[#lines + 1] = ""
  lines[#lines + 1] = "MODEL is the path of a GGUF file or a model folder (config.json, model.safetensors, tokenizer.json), or a name that\n`mtx list` shows. First steps:"
  lines[#lines + 1] = "  mtx pull hf.co/Qwen/Qwen3-0.6B-GGUF:Q8_0\n  mtx run hf.co/Qwen/Qwen3-0.6B-GGUF:Q8_0 \"Why is the sky blue?\""
  return table.concat(lines, "\n")
end

local function run_chunk(chunk, message, args)
  if not chunk then
    io.stderr:write("mtx: ", message, "\n")
    return 1
  end
  _G.arg = args
  local results = table.pack(chunk(table.unpack(args)))
  local code = math.type(results[1]) == "integer" and results[1] or 0
  return code
end

local function script(arg)
  local args = { [0] = arg[1] }
  table.move(arg, 2, #arg, 1, args)
  local chunk, message = loadfile(arg[1], "t")
  return run_chunk(chunk, message, args)
end

return function(arg, root)
  package.loaded["mtx.root"] = root
  local first = ALIASES[arg[1]] or arg[1]
  if not first or first == "--help" or first == "-h" or first == "help" then
    local topic = first == "help" and arg[2] and command(ALIASES[arg[2]] or arg[2])
    local out = first and io.stdout or io.stderr
    out:write(topic and topic.help or usage(), "\n")
    return first and 0 or 2
  end
  if first == "--version" or first == "-V" or first == "version" then
    print("mtx " .. VERSION)
    return 0
  end
  if first == "-e" then
    if not arg[2] then
      io.stderr:write("mtx: -e needs a line of Lua\n")
      return 2
    end
    local chunk, message = load(arg[2], "=(command line)", "t")
    local args = { [0] = "-e" }
    table.move(arg, 3, #arg, 1, args)
    return run_chunk(chunk, message, args)
  end
  local c = command(first)
  if c then return c.run(table.move(arg, 2, #arg, 1, {})) end
  if first:match("%.lua$") then return script(arg) end
  local near = require("mtx.nearest")(first, COMMANDS)
  io.stderr:write("mtx: no command '", first, "'", near and "; did you mean " .. near .. "?" or ".", " `mtx --help` lists them; a script's name ends in .lua.\n")
  return 2
end
