-- SPDX-License-Identifier: MIT
-- `mtx create NAME -f MODELFILE`: a model made of another one, with settings of its own.
local adapters = require("mtx.serve.models.adapters")
local creation = require("mtx.serve.models.creation")
local infile = require("mtx.infile")
local local_models = require("mtx.cli.local_models")
local modelfile = require("mtx.serve.models.modelfile")
local names = require("mtx.serve.models.names")
local uv = require("luv")

local command = { name = "create", summary = "make a model of another one, as a Modelfile says", makes_folder = true }

command.help = [[
usage: mtx create NAME [-f MODELFILE] [--models-dir DIR]

Reads MODELFILE (default ./Modelfile) and puts the model NAME into the models folder: a small
description; the weights stay where they are. Lines of a Modelfile:

  FROM MODEL                 a name of `mtx list`, or a path beside the Modelfile
  PARAMETER temperature 0.3  an option of Ollama's requests (num_ctx, num_predict, stop, seed, ...)
  SYSTEM """..."""           the system message
  MESSAGE user ...           a turn that every chat begins with (user, assistant, system)
  TEMPLATE """..."""         a chat template (Jinja)
  ADAPTER FILE               a LoRA adapter (GGUF)
  LICENSE """..."""

A file NAME.Modelfile in the models folder does the same, and follows the model it names.

  -f, --file MODELFILE]]

-- Takes -f FILE, --file FILE and --file=FILE out of the arguments. -> file | nil, the other arguments (-f is one when no file follows)
local function take_file(args)
  local file, rest, i = nil, {}, 1
  while i <= #args do
    local value = args[i]:match("^%-%-file=(.*)$")
    if value then
      file = value
    elseif (args[i] == "-f" or args[i] == "--file") and args[i + 1] then
      file, i = args[i + 1], i + 1
    else
      rest[#rest + 1] = args[i]
    end
    i = i + 1
  end
  return file, rest
end

-- A path as the Modelfile in `dir` has it -> absolute path | nil when there is nothing
local function beside(dir, path) return uv.fs_realpath(path:find("^/") and path or dir .. path) end

-- -> manifest | nil, message
local function read(cat, to, file)
  local text, message = infile.read(file)
  if not text then return nil, message end
  local m
  m, message = modelfile.parse(text)
  if not m then return nil, file .. ": " .. message end
  local dir, base = file:match("^.*/") or "", nil
  local path = beside(dir, m.from)
  if path then
    m.from = path
  else
    local reason
    base, message, reason = cat:find(m.from)
    if not base then return nil, ("%s: FROM %s: %s"):format(file, m.from, reason or "there is no such model (`mtx list`) or file") end
    creation.from(base, to, m)
  end
  for i, adapter in ipairs(m.adapters or {}) do
    m.adapters[i] = beside(dir, adapter)
    if not m.adapters[i] then return nil, ("%s: ADAPTER %s: there is no such file"):format(file, adapter) end
    local info
    info, message = adapters.describe(m.adapters[i])
    if not info then return nil, file .. ": ADAPTER " .. message end
  end
  local ok
  ok, message = creation.complete(cat, m, base)
  if not ok then return nil, file .. ": " .. message end
  return m
end

function command.run(args)
  local file, rest = take_file(args)
  local cat, words = local_models.open(command, rest, 1)
  if not cat then return words end
  local function failure(message, code)
    io.stderr:write("mtx create: ", message, "\n")
    return code
  end
  local to, message = names.parse(words[1])
  if not to then return failure(message, 2) end
  local m
  m, message = read(cat, to, file or "Modelfile")
  if not m then return failure(message .. (file and "" or "; give the Modelfile with -f FILE"), 1) end
  local ok
  ok, message = cat:store(to, m)
  if not ok then return failure(tostring(message), 1) end
  print(("created %s; `mtx run %s` runs it"):format(to.full, to.short))
  return 0
end

return command
