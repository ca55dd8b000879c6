-- SPDX-License-Identifier: MIT
-- LoRA adapters as callers name them, and the sets of them that the engine takes.
local adapters = {}

-- "FILE" or "FILE=SCALE" of a command line -> {path, scale}
function adapters.spec(text)
  local path, scale = text:match("^(.+)=([%+%-]?[%d%.][%w%.%+%-]*)$")
  scale = scale and tonumber(scale)
  if scale then return { path, scale } end
  return { text, 1.0 }
end

local function is_adapter(x) return type(x) == "userdata" end

-- An adapter, or one by the path of its file, which the model opens once. -> adapter | nil, message, code
local function opened(model, x)
  if is_adapter(x) then return x end
  if type(x) ~= "string" then error("lora: an adapter, a path or {adapter or path, scale} is needed, not " .. type(x), 0) end
  model.by_path = model.by_path or {}
  local adapter, message, code = model.by_path[x], nil, nil
  if not adapter then
    adapter, message, code = model:adapter(x)
    model.by_path[x] = adapter
  end
  return adapter, message, code
end

-- value: false or {} = none; an adapter, a path, or a list of these and of {adapter or path, scale}.
-- -> set | nil, message, code. Misuse raises.
function adapters.set(model, value)
  local list = {}
  if value == false then value = {} end
  if type(value) ~= "table" then value = { value } end
  for i, item in ipairs(value) do
    if type(item) == "number" then error("lora: a scale stands with its adapter: {{adapter, scale}}", 0) end
    local x, scale = item, 1.0
    if type(item) == "table" then
      x, scale = item[1], item[2] or 1.0
      if type(scale) ~= "number" then error("lora: a scale must be a number", 0) end
    end
    local adapter, message, code = opened(model, x)
    if not adapter then return nil, message, code end
    list[i] = { adapter, scale }
  end
  return model.handle:lora(list)
end

return adapters
