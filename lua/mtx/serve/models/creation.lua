-- SPDX-License-Identifier: MIT
-- The last steps of making a model of another one, for /api/create and `mtx create`: what is checked once all that was
-- asked for is known, and what it has from the model it is made of.
local render = require("mtx.chat.render")
local settings = require("mtx.serve.models.settings")

local creation = {}

-- What `m` has of the entry it is made of. to: the new name (names.parse's result), m: a manifest, changed; base: a catalog's entry.
function creation.from(base, to, m)
  m.from, m.parent = base.path, base.key == to.key and base.parent or base.name
end

-- Checks m's template and file, and gives it what base (its entry, or nil) sets and m does not, so that it stands without it.
-- -> true | nil, message, the field that is wrong or nil
function creation.complete(catalog, m, base)
  if m.template then
    local usable, why = render.new({ template = m.template, name = "template" })
    if not usable then return nil, why, "template" end
  end
  if base and base.manifest then settings.inherit(m, base.manifest) end
  local info, message = catalog.describe(m.from)
  if not info then return nil, "not a usable model file: " .. tostring(message) end
  return true
end

return creation
