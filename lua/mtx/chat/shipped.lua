-- SPDX-License-Identifier: MIT
-- The chat templates that come with mtx, for models that carry none.
local shipped = {}

local NAMES = { "alpaca", "chatml", "gemma", "llama2", "llama3", "mistral", "phi3", "vicuna", "zephyr" }

-- Architectures whose files often lack a template and whose format is not in doubt.
local BY_ARCHITECTURE = { gemma = "gemma", gemma2 = "gemma", gemma3 = "gemma", qwen2 = "chatml", qwen3 = "chatml", qwen3moe = "chatml", phi3 = "phi3" }

function shipped.names() return NAMES end

-- In the checkout and a `make install`: beside lua/. As a LuaRocks module: in mtx/.
local function open(name)
  local here = package.searchpath("mtx.chat.shipped", package.path) or ""
  local file
  for _, tail in ipairs { "lua/mtx/chat/shipped%.lua$", "chat/shipped%.lua$" } do
    local folder, n = here:gsub(tail, "templates/")
    file = file or n == 1 and io.open(folder .. name .. ".jinja", "rb")
  end
  return file
end

-- The Jinja text of a shipped template | nil.
function shipped.text(name)
  local file = open(name)
  if not file then return nil end
  local text = file:read("a")
  file:close()
  return text
end

-- Name of the template for an architecture | nil.
function shipped.for_architecture(arch) return BY_ARCHITECTURE[arch or ""] end

return shipped
