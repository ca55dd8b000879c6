-- SPDX-License-Identifier: MIT
-- `mtx quantize IN OUT TYPE`: a model in fewer bits.
local uv = require("luv")
local args = require("mtx.cli.args")
local json = require("mtx.json")
local mixes = require("mtx.quantize.mixes")
local named = require("mtx.cli.named")
local term = require("mtx.cli.term")

local command = { name = "quantize", summary = "write a model in fewer bits: GGUF file or folder to GGUF" }

local options = {
  { name = "imatrix", kind = "string", value = "FILE", help = "importance matrix (GGUF, made by llama-imatrix)" },
  { name = "tensor-type", kind = "list", value = "PATTERN=TYPE", help = "type of tensors whose name matches the Lua pattern; again for more" },
  { name = "rules", kind = "string", value = "FILE.lua", help = "your own rule: function(tensor, type) -> type, \"keep\" or nil" },
  { name = "requantize", kind = "flag", help = "also from weights that are quantised already" },
  { name = "threads", short = "t", kind = "integer", min = 1, max = 1024, help = "threads (default: all cores)" },
  { name = "force", short = "f", kind = "flag", help = "replace OUT when it exists" },
  { name = "dry-run", short = "n", kind = "flag", help = "only say what each tensor would become, and the size" },
  { name = "json", kind = "flag", help = "print JSON" },
  named.option,
}

local function types_text()
  local lines, line = {}, " "
  for _, name in ipairs(mixes.names()) do
    if #line + #name > 76 then
      lines[#lines + 1] = line
      line = " "
    end
    line = line .. " " .. name
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n")
end

command.help = [=[
usage: mtx quantize IN OUT TYPE [options]
       mtx quantize IN TYPE --dry-run [options]

Writes the model IN (a GGUF file, the first of split ones, or a Hugging Face
folder) to the GGUF file OUT. TYPE is a mix as llama-quantize makes it, and the
bytes are the same:
]=] .. types_text() .. [=[

IQ1, IQ2 and IQ3_XS, IQ3_XXS, Q2_K_S need --imatrix. A rule file gives back a function; tensor
has name, type, shape, role, layer, n_layers, architecture, mix:

  return function(tensor, type)
    if tensor.role == "down" and tensor.layer < 4 then return "Q8_0" end
  end

OUT appears when it is complete; Ctrl-C leaves nothing behind.

]=] .. args.help(options)

-- The function that a rule file gives | nil, message
local function rule_of(path)
  local chunk, message = loadfile(path, "t")
  if not chunk then return nil, message end
  local ok, rule = pcall(chunk)
  if not ok then return nil, tostring(rule) end
  if type(rule) ~= "function" then return nil, path .. ": a rule file gives back a function(tensor, type)" end
  return rule
end

local function shape_text(shape) return table.concat(shape, " x ") end

local function print_plan(made)
  for _, t in ipairs(made.tensors) do
    print(("%-40s %-16s %-7s %s%s%s"):format(t.name, shape_text(t.shape), t.from, t.to == t.from and "kept" or "-> " .. t.to,
      t.instead_of and " instead of " .. t.instead_of or "", t.importance and ", with importance" or ""))
  end
end

-- Tensors whose rows do not divide into the blocks of their type: the file is then larger than its type promises.
local function print_misfits(made)
  local count, kinds = {}, {}
  for _, t in ipairs(made.tensors) do
    local kind = t.instead_of and t.to .. " instead of " .. t.instead_of
    if kind and not count[kind] then kinds[#kinds + 1] = kind end
    if kind then count[kind] = (count[kind] or 0) + 1 end
  end
  for i, kind in ipairs(kinds) do kinds[i] = kind .. " (" .. count[kind] .. ")" end
  if kinds[1] then print("rows do not divide into the type's blocks: " .. table.concat(kinds, ", ")) end
end

local function print_result(made, values, name, seconds)
  local kept = 0
  for _, t in ipairs(made.tensors) do kept = kept + (t.to == t.from and 1 or 0) end
  local sizes = ("%s -> %s"):format(term.bytes(made.from_bytes), term.bytes(made.bytes))
  if values.dry_run then
    print(("%s: %s of weights, %d of %d tensors kept as they are"):format(name, sizes, kept, #made.tensors))
    if made.needs_importance then print(("needs --imatrix: tensor '%s' would be garbage without importance"):format(made.needs_importance)) end
  else
    print(("%s: %s, %s of weights, %d of %d tensors kept as they are, %.1f s"):format(values.rest[2], name, sizes, kept, #made.tensors, seconds))
  end
  print_misfits(made)
end

local function print_json(made, values, name)
  local tensors = json.array()
  for i, t in ipairs(made.tensors) do
    tensors[i] = json.object("name", t.name, "shape", json.array(t.shape), "from", t.from, "to", t.to, "from_bytes", t.from_bytes, "bytes", t.bytes,
      "instead_of", t.instead_of, "importance", t.importance or false)
  end
  return args.print_json(json.object("path", not values.dry_run and values.rest[2] or nil, "type", name, "from_bytes", made.from_bytes, "bytes", made.bytes,
    "file_bytes", made.file_bytes, "needs_imatrix", made.needs_importance ~= nil, "tensors", tensors))
end

-- A progress bar that Ctrl-C ends: -> progress(done, total), close()
local function watched(label)
  local bar, stopped, signals = term.progress(label), false, {}
  for i, name in ipairs({ "sigint", "sigterm" }) do
    signals[i] = uv.new_signal()
    signals[i]:start(name, function() stopped = true end)
  end
  local function progress(done, total)
    uv.run("nowait")
    bar(done, total)
    return stopped
  end
  local function close()
    bar(nil)
    for _, s in ipairs(signals) do s:close() end
    uv.run("nowait")
  end
  return progress, close
end

function command.run(list)
  local values, code = args.start(command, options, list, 3)
  if not values then return code end
  local rest = values.rest
  local want = values.dry_run and #rest == 2 and 2 or 3
  if #rest < want then return args.misuse(command, "give IN, OUT and TYPE") end
  local mix = mixes.find(rest[want])
  if not mix then
    local near = require("mtx.nearest")(rest[want]:upper(), mixes.names())
    return args.misuse(command, ("there is no type '%s'%s"):format(rest[want], near and "; did you mean " .. near .. "?" or ""))
  end
  local rules, message
  if values.rules then
    rules, message = rule_of(values.rules)
    if not rules then return args.failure(message) end
  end
  local progress, close = watched(mix.name)
  local started = uv.hrtime()
  local made
  made, message = require("mtx.quantize").run({ from = named.find(rest[1], values.models_dir), to = rest[2], type = mix.name, tensor_types = values.tensor_type, rules = rules,
    imatrix = values.imatrix, requantize = values.requantize, threads = values.threads, force = values.force, dry_run = values.dry_run, progress = progress })
  close()
  if not made then return args.failure(message) end
  if values.json then return print_json(made, values, mix.name) end
  if values.dry_run then print_plan(made) end
  print_result(made, values, mix.name, (uv.hrtime() - started) / 1e9)
  return 0
end

return command
