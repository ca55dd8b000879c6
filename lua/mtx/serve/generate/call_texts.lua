-- SPDX-License-Identifier: MIT
-- The arguments of calls as the model wrote them, by the call's id. When a client sends a call
-- back, its history gets the model's own spelling (blanks, escapes, forms of numbers) again, so the
-- prompt goes on with the tokens that are in the cache. Ids are unguessable, so they are the right to it.
local json = require("mtx.json")

local call_texts = {}

-- Two generations, the older dropped when the younger is full.
local MAX_CALLS, MAX_BYTES = 50000, 8 << 20

local PYTHON = { item_separator = ", ", key_separator = ": " }

function call_texts.new() return { young = {}, old = {}, n = 0, bytes = 0 } end

-- Keeps what a template would not write by itself.
function call_texts.keep(store, id, text)
  local value = json.decode(text)
  if not json.is_object(value) or json.encode(value, PYTHON) == text then return end
  if store.n >= MAX_CALLS or store.bytes + #text > MAX_BYTES then store.young, store.old, store.n, store.bytes = {}, store.young, 0, 0 end
  if #text > MAX_BYTES then return end
  store.young[id], store.n, store.bytes = text, store.n + 1, store.bytes + #text
end

-- Gives calls of the messages their own text where the arguments are still the same (json.encode's `source`).
function call_texts.recall(store, messages)
  if store.n == 0 and next(store.old) == nil then return end
  for _, m in ipairs(messages) do
    for _, c in ipairs(m.tool_calls or {}) do
      local text, arguments = store.young[c.id] or store.old[c.id], c["function"].arguments
      if text and json.is_object(arguments) and json.encode(json.decode(text)) == json.encode(arguments) then getmetatable(arguments).source = text end
    end
  end
end

return call_texts
