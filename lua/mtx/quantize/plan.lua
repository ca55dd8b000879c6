-- SPDX-License-Identifier: MIT
-- What quantising a model will do: the type of each tensor, before anything is written.
local core = require("mtx.core")
local mixes = require("mtx.quantize.mixes")
local nearest = require("mtx.nearest")

local plan = {}

local TYPES <const> = core.gguf.types()  -- name -> {block, bytes, reads, writes}

local function block_of(name) return TYPES[name].block end

-- A tensor type that can be written, by its name in any case -> name | nil, message
function plan.type(text)
  local name, names = tostring(text):upper(), {}
  if TYPES[name] and TYPES[name].writes then return name end
  for known, t in pairs(TYPES) do
    if t.writes then names[#names + 1] = known end
  end
  table.sort(names)
  local near = nearest(name, names)
  return nil, ("there is no tensor type '%s' to write%s"):format(text, near and "; did you mean " .. near .. "?" or "")
end

local function bytes_of(shape, type_name)
  local n = 1
  for _, d in ipairs(shape) do n = n * d end
  return n // TYPES[type_name].block * TYPES[type_name].bytes
end

local function layer_of(name) return math.tointeger(tonumber(name:match("^blk%.(%d+)%."))) end

-- llama-quantize's order: what belongs to no layer, then layer by layer, by name.
local function sorted(tensors)
  local out = table.move(tensors, 1, #tensors, 1, {})
  table.sort(out, function(a, b)
    local la, lb = layer_of(a.name) or -1, layer_of(b.name) or -1
    if la ~= lb then return la < lb end
    return a.name < b.name
  end)
  return out
end

local function first(value) return type(value) == "table" and value[1] or value end

local function number(g, key) return math.tointeger(first((g:metadata(key)))) or 0 end

local function model_of(g, mix, tensors, has_imatrix)
  local arch = g:metadata("general.architecture")
  arch = type(arch) == "string" and arch or ""
  local m = { architecture = arch, n_layers = number(g, arch .. ".block_count"), n_heads = number(g, arch .. ".attention.head_count"),
    n_kv_heads = number(g, arch .. ".attention.head_count_kv"), n_experts = number(g, arch .. ".expert_count"), has_imatrix = has_imatrix, mix = mix,
    is_tied = true }
  if g:metadata(arch .. ".attention.head_count_kv") == nil then m.n_kv_heads = m.n_heads end
  m.n_values = 0
  for _, t in ipairs(tensors) do
    local role = mixes.role(t.name)
    if role == "value" then m.n_values = m.n_values + 1 end
    if role == "output" then m.is_tied = false end
  end
  return m
end

-- Roles whose tensors are counted by layer.
local BY_LAYER <const> = { down = true, up = true, gate = true }

-- Which one of how many of its role. Experts' files may list layers in any order, so there the name says it.
local function place(m, seen, role, name)
  local i = seen[role] or 0
  seen[role] = i + 1
  if not BY_LAYER[role] then return i, m.n_values end
  if m.n_experts <= 1 then return i, m.n_layers end
  local layer = layer_of(name)
  if not layer or layer >= m.n_layers then return nil, ("tensor '%s': its layer is not one of the model's %d"):format(name, m.n_layers) end
  return layer, m.n_layers
end

-- -> the type that the first pattern in the name asks for | nil | nil, message
local function by_pattern(patterns, name)
  for _, p in ipairs(patterns) do
    local ok, at = pcall(string.find, name, p.pattern)
    if not ok then return nil, ("--tensor-type %s: that is no Lua pattern: %s"):format(p.text, at) end
    if at then
      p.used = true
      return p.type
    end
  end
end

local function by_rules(rules, t, role, m, to)
  local ok, answer = pcall(rules, { name = t.name, type = t.type, shape = table.move(t.shape, 1, #t.shape, 1, {}), role = role, layer = layer_of(t.name),
    n_layers = m.n_layers, architecture = m.architecture, mix = m.mix.name }, to)
  if not ok then return nil, "the rule failed at tensor '" .. t.name .. "': " .. tostring(answer) end
  if answer == nil then return to end
  if answer == "keep" then return t.type end
  local type_name, message = plan.type(answer)
  if not type_name then return nil, "the rule's answer for tensor '" .. t.name .. "': " .. message end
  return type_name
end

-- What keeps its type in a GGUF file; of a folder, whose vectors have the weights' 16 bits, it becomes F32, as in every GGUF file.
local function unchanged(t, opts)
  local is_float = TYPES[t.type].reads and TYPES[t.type].block == 1
  return opts.from_folder and is_float and "F32" or t.type
end

-- -> the tensor's type, and the one that its rows do not divide into when it stands for that | nil, message
local function decide(m, seen, t, opts)
  if not mixes.may_change(t) then return unchanged(t, opts) end
  local role = mixes.role(t.name)
  local to, wrong = by_pattern(opts.patterns, t.name)
  if wrong then return nil, wrong end
  if not to then
    local i, n = place(m, seen, role, t.name)
    if not i then return nil, n end
    to = mixes.choose(m, t, role, i, n, block_of(m.mix.base))
  end
  if opts.rules then
    local message
    to, message = by_rules(opts.rules, t, role, m, to)
    if not to then return nil, message end
  end
  if to == t.type then return to end
  local fits = mixes.that_fits(to, t.shape[1], block_of)
  return fits, fits ~= to and to or nil
end

-- Is there importance for the tensor? -> true | false | nil, message
local function importance(opts, t, role, mix, to)
  local size = opts.imatrix and opts.imatrix:size(t.name)
  local needs = mixes.needs_importance(mix, role, to)
  local want = t.shape[1] * (t.shape[3] or 1) * (t.shape[4] or 1)
  if size and size ~= want and role ~= "embedding" then
    return nil, ("the importance of tensor '%s' has %d weights, its columns are %d; was it measured on this model?"):format(t.name, size, want)
  end
  if size == want then return true end
  if needs and opts.imatrix then return nil, ("tensor '%s' has no importance in the file, and in %s it would be garbage without"):format(t.name, to) end
  return false, needs
end

-- g: an opened model; opts: mix (mixes.find), patterns {{pattern, type, text}}, rules(tensor, type) -> type or nil, imatrix, requantize,
-- from_folder
-- -> {tensors = {{name, shape, from, to, instead_of, from_bytes, bytes, importance}}, bytes, from_bytes, needs_importance = a tensor's name or nil} | nil, message
function plan.make(g, opts)
  local list = sorted(g:tensors())
  local m, seen = model_of(g, opts.mix, list, opts.imatrix ~= nil), {}
  local out = { tensors = {}, bytes = 0, from_bytes = 0 }
  for _, t in ipairs(list) do
    local to, other = decide(m, seen, t, opts)
    if not to then return nil, other end
    local entry = { name = t.name, shape = t.shape, from = t.type, to = to, instead_of = other, from_bytes = t.bytes, bytes = t.bytes }
    if to ~= t.type then
      if not TYPES[t.type].reads then return nil, ("tensor '%s' of type %s cannot be converted"):format(t.name, t.type) end
      if TYPES[t.type].block > 1 and not opts.requantize then
        return nil, ("tensor '%s' is already quantised (%s); quantising again loses more than starting from F16 or F32 (--requantize does it all the same)"):format(t.name, t.type)
      end
      entry.bytes = bytes_of(t.shape, to)
      local needs
      entry.importance, needs = importance(opts, t, mixes.role(t.name), opts.mix, to)
      if entry.importance == nil then return nil, needs end
      if needs then out.needs_importance = out.needs_importance or t.name end
    end
    out.tensors[#out.tensors + 1] = entry
    out.bytes, out.from_bytes = out.bytes + entry.bytes, out.from_bytes + t.bytes
  end
  for _, p in ipairs(opts.patterns) do
    if not p.used then return nil, ("--tensor-type %s: no tensor that may change its type has a name with that in it"):format(p.text) end
  end
  return out
end

return plan
