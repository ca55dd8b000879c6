-- SPDX-License-Identifier: MIT
-- A model that loads on a thread of its own: what mtx.start_load gives.
local loading = {}

local Loading = {}
Loading.__index = Loading

-- made(handle, opts) -> model | nil, message, code
function loading.new(task, opts, made) return setmetatable({ task = task, opts = opts, made = made }, Loading) end

-- A descriptor that is readable once loading has ended; closed by take.
function Loading:fd() return self.task:fd() end

-- -> bytes of weights packed, of how many (0, 0 while the header is read)
function Loading:progress() return self.task:progress() end

-- Ends it soon, with code "cancelled".
function Loading:cancel() self.task:cancel() end

-- Waits for the end. -> model | nil, message, code
function Loading:take()
  local handle, message, code = self.task:take()
  if not handle then return nil, message, code end
  for _, line in ipairs(self.opts.warn and message or {}) do self.opts.warn(line) end
  return self.made(handle, self.opts)
end

return loading
