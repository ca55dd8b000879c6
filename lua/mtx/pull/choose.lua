-- SPDX-License-Identifier: MIT
-- Which files of a repository make the model that was asked for. Pure functions on a
-- listing: {{path, size, ...}} -> files in order, or what there is to choose from.
local choose = {}

-- Tried in this order when nothing is asked for.
local PREFERRED = { "Q4_K_M", "Q4_K_S", "Q4_K_L", "Q4_0", "Q4_1", "IQ4_NL", "IQ4_XS", "MXFP4", "Q5_K_M", "Q5_K_S", "Q8_0", "Q6_K", "BF16", "F16" }

local QUANT = { "^I?Q%d[%w_]*$", "^TQ%d[%w_]*$", "^B?F16$", "^F32$", "^MXFP4[%w_]*$", "^NVFP4[%w_]*$" }

local function is_quant(word)
  for _, pattern in ipairs(QUANT) do
    if word:find(pattern) then return true end
  end
end

-- The quantisation that a file's or folder's name ends with ("Q4_K_M", "UD-Q4_K_XL") | nil.
local function quant_in(text)
  local found, before
  for word in text:gmatch("[^%-%.]+") do
    if is_quant(word:upper()) then found = (before == "UD" and "UD-" or "") .. word end
    before = word:upper()
  end
  return found
end

-- The models of a listing, parts of one together: {{stem = path without ending, quant, files = {..}, n = parts there should be}}
local function models_of(files)
  local list, by_stem = {}, {}
  for _, f in ipairs(files) do
    local stem = f.path:match("^(.*)%.[gG][gG][uU][fF]$")
    local base = stem and stem:match("[^/]+$"):lower()
    if stem and not base:find("mmproj", 1, true) and not base:find("imatrix", 1, true) then
      local whole, i, n = stem:match("^(.*)%-(%d%d%d%d%d)%-of%-(%d%d%d%d%d)$")
      local key = whole and whole .. "-of-" .. n or stem
      local m = by_stem[key]
      if not m then
        m = { stem = whole or stem, n = tonumber(n or 1), files = {} }
        m.quant = quant_in(m.stem:match("[^/]+$")) or quant_in(m.stem:match("([^/]+)/[^/]+$") or "")
        by_stem[key], list[#list + 1] = m, m
      end
      m.files[tonumber(i or 1)] = f
    end
  end
  table.sort(list, function(a, b) return a.stem < b.stem end)
  return list
end

local function tags(list)
  local out, seen = {}, {}
  for _, m in ipairs(list) do
    local tag = m.quant or m.stem
    if seen[tag] then tag = m.stem end
    if not seen[tag] then out[#out + 1] = tag end
    seen[tag] = true
  end
  return table.concat(out, ", ")
end

local function where(list, fits)
  local out = {}
  for _, m in ipairs(list) do
    if fits(m) then out[#out + 1] = m end
  end
  return out
end

-- -> a model | nil, message. Spelling does not matter; a beginning that only one tag has is enough.
local function pick(list, want)
  if not want then
    if #list == 1 then return list[1] end
    for _, quant in ipairs(PREFERRED) do
      local m = where(list, function(m) return m.quant and m.quant:upper() == quant end)
      if #m == 1 then return m[1] end
    end
    return nil, "which of its models? Add one of these behind a colon: " .. tags(list)
  end
  local text = want:lower():gsub("%.gguf$", ""):gsub("%-%d%d%d%d%d%-of%-%d%d%d%d%d$", "")
  local found
  for _, fits in ipairs({
    function(m) return m.stem:lower() == text end,
    function(m) return m.stem:lower():match("[^/]+$") == text end,
    function(m) return m.quant and m.quant:lower() == text end,
    function(m) return m.quant and m.quant:lower():sub(1, #text) == text end,
    function(m) return m.stem:lower():match("[^/]+$"):sub(1, #text) == text end,
  }) do
    found = where(list, fits)
    if #found == 1 then return found[1] end
    if #found > 1 then return nil, ("'%s' fits more than one of its models; there are: %s"):format(want, tags(found)) end
  end
  return nil, ("it has no '%s'; there are: %s"):format(want, tags(list))
end

-- want: nil, a quantisation or a file -> the files of one GGUF model in order | nil, message; nil alone: there is none.
function choose.gguf(files, want)
  local list = models_of(files)
  if not list[1] then return nil end
  local m, message = pick(list, want)
  if not m then return nil, message end
  for i = 1, m.n do
    if not m.files[i] then return nil, ("%s-%05d-of-%05d.gguf is missing at the hub"):format(m.stem, i, m.n) end
  end
  if #m.files ~= m.n then return nil, m.stem .. ": more parts at the hub than the names say" end
  return m.files
end

-- What a model folder may consist of besides its weights.
local FOLDER = {}
for _, path in ipairs({ "config.json", "generation_config.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "chat_template.jinja",
  "chat_template.json", "modules.json", "1_Pooling/config.json" }) do FOLDER[path] = true end

-- -> the files of a model folder, weights last | nil, message
function choose.folder(files)
  local small, weights, by = {}, {}, {}
  for _, f in ipairs(files) do
    by[f.path] = f
    if FOLDER[f.path] then small[#small + 1] = f end
  end
  if by["model.safetensors"] then
    weights[1] = by["model.safetensors"]
  elseif by["model.safetensors.index.json"] then
    small[#small + 1] = by["model.safetensors.index.json"]
    local stem, n
    for _, f in ipairs(files) do
      local s, i, of = f.path:match("^(model)%-(%d%d%d%d%d)%-of%-(%d%d%d%d%d)%.safetensors$")
      if s then stem, n, weights[tonumber(i)] = s, of, f end
    end
    for i = 1, tonumber(n or 0) do
      if not weights[i] then return nil, ("%s-%05d-of-%s.safetensors is missing at the hub"):format(stem, i, n) end
    end
  end
  if not weights[1] or not by["config.json"] then
    return nil, "it holds neither GGUF files nor a model folder that mtx reads (config.json, model.safetensors or its shards, tokenizer.json)"
  end
  table.sort(small, function(a, b) return a.path < b.path end)
  return table.move(weights, 1, #weights, #small + 1, small)
end

return choose
