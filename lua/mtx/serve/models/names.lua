-- SPDX-License-Identifier: MIT
-- Model names as Ollama writes them: [host/][namespace/]model[:tag], tag default
-- "latest", looked up without regard to case (api.md, 1.1).
local names = {}

-- Parts are letters, digits and -_. ; no part may begin with a dot or be a path.
local function good_part(s, max)
  return #s >= 1 and #s <= max and s:find("^[%w_][%w%._%-]*$") ~= nil and not s:find("..", 1, true)
end

-- text -> {full = "ns/model:tag", key = lower case}, or nil, message. The
-- default registry and the namespace "library" are dropped.
function names.parse(text)
  if type(text) ~= "string" or text == "" then return nil, "model is required" end
  local rest, tag = text, "latest"
  local colon = text:match(".*():")
  if colon and not text:find("/", colon, true) then
    rest, tag = text:sub(1, colon - 1), text:sub(colon + 1)
  end
  local parts = {}
  for p in (rest .. "/"):gmatch("([^/]*)/") do parts[#parts + 1] = p end
  if #parts > 2 and (parts[1] == "registry.ollama.ai" or parts[1] == "registry") then table.remove(parts, 1) end
  if #parts == 2 and parts[1] == "library" then table.remove(parts, 1) end
  local bad = not good_part(tag, 80) or #parts > 8
  for i, p in ipairs(parts) do
    local host = i == 1 and #parts > 2
    if not good_part(host and p:gsub(":%d+$", "") or p, host and 350 or 80) then bad = true end
  end
  if bad then return nil, "invalid model name" end
  local full = table.concat(parts, "/") .. ":" .. tag
  return { full = full, key = full:lower(), short = tag == "latest" and table.concat(parts, "/") or full }
end

return names
