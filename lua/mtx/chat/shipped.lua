-- SPDX-License-Identifier: MIT
-- The chat templates that come with mtx, for models that carry none.
local shipped = {}

local NAMES = { "alpaca", "chatml", "gemma", "llama2", "llama3", "mistral", "phi3", "vicuna", "zephyr" }

-- Architectures whose files often lack a template and whose format is not in doubt.
local BY_ARCHITECTURE = { gemma = "gemma", gemma2 = "gemma", gemma3 = "gemma", qwen2 = "chatml", qwen3 = "chatml", qwen3moe = "chatml", phi3 = "phi3" }

function shipped.names() return NAMES end

-- Installed beside the Lua files, or in the checkout.
local function folder()
  local here = package.searchpath("mtx.chat.shipped", package.path)
  return here and here:gsub("lua/mtx/chat/shipped%.lua$", "templates/")
end

-- The Jinja text of a shipped template | nil.
function shipped.text(name)
  local path = folder()
  local file = path and io.open(path .. name .. ".jinja", "rb")
  if not file then return nil end
  local text = file:read("a")
  file:close()
  return text
end

-- Name of the template for an architecture | nil.
function shipped.for_architecture(arch) return BY_ARCHITECTURE[arch or ""] end

return shipped
