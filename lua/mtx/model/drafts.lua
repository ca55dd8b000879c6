-- SPDX-License-Identifier: MIT
-- The field `draft` of a request: what is guessed of the reply and evaluated ahead (csrc/engine/draft_rows.c). It
-- changes when tokens come, never which.
local misuse = require("mtx.model.misuse")
local nearest = require("mtx.nearest")

local drafts = {}

drafts.KINDS = { "lookup" }

local FIELDS = { "kind", "max", "min_match", "adaptive", "reference" }

-- value: nil or false = none; true, "lookup", or {kind = "lookup", max = tokens of a draft, min_match = tokens that must
-- have stood before, adaptive = false: always as long as can be, reference = a text (or ids) that the reply may repeat}.
-- -> the engine's table and the reference's ids, or false | nil, message, code
function drafts.of(model, value)
  if not value then return false end
  if value == true then value = {} end
  if type(value) == "string" then value = { kind = value } end
  if type(value) ~= "table" then misuse("draft must be \"lookup\", a table or false, not a " .. type(value)) end
  for field in pairs(value) do
    local known = false
    for _, name in ipairs(FIELDS) do known = known or name == field end
    if not known then
      local near = type(field) == "string" and nearest(field, FIELDS)
      misuse(("draft has no field '%s'%s"):format(tostring(field), near and "; did you mean " .. near .. "?" or ""))
    end
  end
  if value.kind ~= nil and value.kind ~= "lookup" then misuse("draft: no kind is called '" .. tostring(value.kind) .. "'; there is lookup") end
  if value.adaptive ~= nil and type(value.adaptive) ~= "boolean" then misuse("draft.adaptive must be true or false") end
  local reference, message, code = value.reference, nil, nil
  if type(reference) == "string" then
    reference, message, code = model:tokenize(reference, { add_special = false, parse_special = false })
    if not reference then return nil, message, code end
  elseif reference ~= nil and type(reference) ~= "table" then
    misuse("draft.reference must be a text or a list of ids")
  end
  return { max = value.max, min_match = value.min_match, fixed = value.adaptive == false }, reference
end

return drafts
