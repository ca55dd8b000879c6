-- SPDX-License-Identifier: MIT
-- The adapters of POST /admin/loras, kept for the next server over the same models folder DIR: DIR/.mtx/loras.json, a list of
-- {name, path (below DIR), scale}. Anybody who may write into the folder may write it, so it is read as a client's words are.
local infile = require("mtx.infile")
local json = require("mtx.json")
local whole_file = require("mtx.whole_file")

local kept = {}

local MAX_BYTES = 1 << 20

function kept.path(dir) return dir .. "/.mtx/loras.json" end

-- May an adapter of POST /admin/loras be called so?
function kept.good_name(name) return type(name) == "string" and #name <= 128 and name:find("^[%w][%w._%-]*$") ~= nil end

-- -> list of {name, path, scale}, what is none of these left out
function kept.read(dir)
  local text = infile.read(kept.path(dir), MAX_BYTES)
  local list, out = text and json.decode(text), {}
  for _, e in ipairs(json.is_array(list) and list or {}) do
    if json.is_object(e) and kept.good_name(e.name) and type(e.path) == "string" and type(e.scale) == "number" and e.scale == e.scale and math.abs(e.scale) <= 1e6 then
      out[#out + 1] = { name = e.name, path = e.path, scale = e.scale }
    end
  end
  return out
end

-- -> true | nil, reason
function kept.write(dir, list)
  local out = json.array()
  for i, e in ipairs(list) do out[i] = json.object("name", e.name, "path", e.path, "scale", e.scale) end
  whole_file.make_dirs(dir .. "/.mtx")
  return whole_file.write(kept.path(dir), json.encode(out))
end

return kept
