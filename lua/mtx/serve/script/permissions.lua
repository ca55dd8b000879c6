-- SPDX-License-Identifier: MIT
-- What the operator lets a script do beyond looking at requests and answering
-- them: --script-allow A,B. Nothing of this is allowed by default.
--   models          mtx.generate
--   storage         mtx.store
--   file=DIR        mtx.file: plain files directly in that folder
--   net=HOST:PORT   mtx.fetch: HTTP requests to that server (repeatable)
local permissions = {}

-- list of texts -> {models, storage, file = folder, net = {["host:port"] = true}} | nil, message
function permissions.parse(list)
  local out = { net = {} }
  for _, item in ipairs(list) do
    local name, value = item:match("^([^=]*)=?(.*)$")
    if (name == "models" or name == "storage") and item == name then
      out[name] = true
    elseif name == "file" and value ~= "" then
      if out.file then return nil, "script_allow: only one folder can be given with file=" end
      out.file = value:gsub("(.)/+$", "%1")
    elseif name == "net" and value:match("^[^:]+:%d+$") then
      out.net[value:lower()] = true
    else
      return nil, "script_allow: '" .. item .. "' is no permission; there are models, storage, file=DIR and net=HOST:PORT"
    end
  end
  return out
end

local function refusal(what, name)
  return what .. " needs a permission that the operator has not given: start the server with --script-allow " .. name
end

-- A function that only says what is missing.
function permissions.denied(what, name)
  return function() error(refusal(what, name), 2) end
end

-- The same for a table.
function permissions.denied_table(what, name)
  local function refuse() error(refusal(what, name), 2) end
  return setmetatable({}, { __index = refuse, __newindex = refuse, __pairs = refuse, __len = refuse })
end

return permissions
