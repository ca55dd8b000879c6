-- SPDX-License-Identifier: MIT
-- Macros whose text depends on their arguments alone. Templates write their frames (<|open|>message<|sep|>)
-- through such macros, hundreds of times with the same arguments, so a call of one with constants
-- is run once and its output kept with the compiled template.
local Scope = require("mtx.chat.jinja.scope")
local reads = require("mtx.chat.jinja.reads")
local text = require("mtx.chat.jinja.text")
local S = require("mtx.chat.jinja.state")

local pure = {}
local type, getmetatable, MARKED = type, getmetatable, text.MARKED

--- The names of such macros: defined at the top of the template, set nowhere else, reading nothing but each other.
function pure.names(body)
  local times, outside = {}, {}
  for _, name in ipairs(Scope.set_names(body, {})) do times[name] = (times[name] or 0) + 1 end
  for _, node in ipairs(body) do
    if node.t == "macro" and times[node.name] == 1 then outside[node.name] = reads({ node }) end
  end
  local changed
  repeat
    changed = false
    for name, found in pairs(outside) do
      for other in pairs(found) do
        if not outside[other] then outside[name], changed = nil, true end
      end
    end
  until not changed
  return outside
end

-- Writes a text that was kept, and takes from the budget what making it took.
local function write_kept(kept, steps, bytes)
  local left, room, at = S.steps - steps, S.bytes - bytes, S.n + 1
  S.steps, S.bytes = left, room
  if left < 0 then S.step(0) end
  if room < 0 then S.charge(0) end
  S.n = at
  S.out[at] = kept
end

-- Runs write(F); returns what it wrote and what that took of the budget.
local function written(write, F)
  local base, steps, bytes = S.n, S.steps, S.bytes
  write(F)
  return text.join(S.out, base + 1, S.n), steps - S.steps, bytes - S.bytes
end

--- write(F), whose output is always the same, as a function that runs it once. What it costs of
--- the budget is taken each time.
function pure.once(write)
  local kept, steps, bytes
  return function(F)
    if kept then return write_kept(kept, steps, bytes) end
    kept, steps, bytes = written(write, F)
  end
end

local MAX_TEXTS, MAX_BYTES = 64, 64 -- kept for one call, and the longest of them
local COUNT = {} -- their number's key, which no value of a template is

--- Whether looking at an expression twice is the same as once: a name and what hangs on it.
function pure.is_look_up(node)
  if node.t == "attr" then return pure.is_look_up(node.obj) end
  if node.t == "item" then return node.key.t == "const" and pure.is_look_up(node.obj) end
  return node.t == "name"
end

--- write(F), whose output depends on the text that get(F) looks up alone, as a function that runs it once per text and render.
function pure.by_text(write, get)
  return function(F)
    local texts = S.kept[write]
    if not texts then
      texts = {}
      texts[COUNT] = 0
      S.kept[write] = texts
    end
    local v = get(F)
    local kept = texts[v]
    if kept then return write_kept(kept[1], kept[2], kept[3]) end
    local n = texts[COUNT]
    if n == MAX_TEXTS or type(v) ~= "string" and getmetatable(v) ~= MARKED or #(v[0] or v) > MAX_BYTES then return write(F) end
    texts[COUNT], texts[v] = n + 1, { written(write, F) }
  end
end

return pure
