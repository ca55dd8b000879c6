-- SPDX-License-Identifier: MIT
-- Which tokens a conversation has, for those whose requests carry a cache_tag while
-- prompts are saved: a small file beside the saved prompts, so that one conversation
-- can be taken out of them, also after a restart. The tag finds nothing, it only drops.
local uv = require("luv")
local core = require("mtx.core")
local json = require("mtx.json")
local whole_file = require("mtx.whole_file")

local chats = {}

-- Files kept; the oldest go.
local MAX_FILES = 1024

local function hash(text) return core.sha256.of(text):sub(1, 16) end

local function prefix_of(tag) return "chat-" .. hash(tag) .. "-" end

-- Calls f(path, name) for the files whose names begin so.
local function each(dir, prefix, f)
  local handle = uv.fs_scandir(dir)
  while handle do
    local name = uv.fs_scandir_next(handle)
    if not name then break end
    if name:sub(1, #prefix) == prefix and name:find("^chat%-%x+%-%x+%.json$") then f(dir .. "/" .. name) end
  end
end

-- model: a catalog key; key: the cache_key; ids: the whole conversation so far. -> path, true | nil, reason
function chats.remember(dir, tag, model, key, ids)
  local path = dir .. "/" .. prefix_of(tag) .. hash(key .. "\0" .. model) .. ".json"
  local list = json.array(table.move(ids, 1, #ids, 1, {}))
  return path, whole_file.write(path, json.encode(json.object("tag", tag, "model", model, "key", key, "ids", list)), nil, false)
end

-- Forgets the conversations of this tag -> list of {model, key, ids}.
function chats.take(dir, tag)
  local out = {}
  each(dir, prefix_of(tag), function(path)
    local f = io.open(path)
    local r = f and json.decode(f:read("a") or "")
    if f then f:close() end
    if json.is_object(r) and r.tag == tag and type(r.key) == "string" and type(r.model) == "string" and type(r.ids) == "table" then
      for _, id in ipairs(r.ids) do
        if math.type(id) ~= "integer" then r.ids = {} end
      end
      out[#out + 1] = { model = r.model, key = r.key, ids = table.move(r.ids, 1, #r.ids, 1, {}) }
    end
    uv.fs_unlink(path)
  end)
  return out
end

-- Removes what is older than ttl_s, then the oldest beyond the number kept.
function chats.trim(dir, ttl_s)
  local list = {}
  each(dir, "chat-", function(path)
    local stat = uv.fs_stat(path)
    if stat and stat.mtime.sec + ttl_s < os.time() then uv.fs_unlink(path) elseif stat then list[#list + 1] = { path = path, time = stat.mtime.sec } end
  end)
  table.sort(list, function(a, b) return a.time > b.time end)
  for i = MAX_FILES + 1, #list do uv.fs_unlink(list[i].path) end
end

return chats
