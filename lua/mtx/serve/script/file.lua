-- SPDX-License-Identifier: MIT
-- mtx.file of scripts: whole files directly in the folder the operator named.
-- Names have no slash and do not begin with a dot, so nothing leaves the folder.
local uv = require("luv")
local whole_file = require("mtx.whole_file")

local M = {}

local MAX_BYTES = 8 << 20

local function path_of(dir, name)
  if type(name) ~= "string" or #name > 100 or not name:find("^[%w_][%w%._%-]*$") then
    error("mtx.file: a name is letters, digits, '_', '-' and '.', and begins with none of the last two", 3)
  end
  return dir .. "/" .. name
end

-- writes: who hears of those that fail (serve/writes.lua). -> {read, write, list}
function M.new(dir, writes)
  local file = {}

  -- read(name) -> text | nil, message
  function file.read(name)
    local path = path_of(dir, name)
    local stat = uv.fs_stat(path)
    if not stat or stat.type ~= "file" then return nil, "there is no file " .. name end
    if stat.size > MAX_BYTES then return nil, name .. " has " .. stat.size .. " bytes, the limit is " .. MAX_BYTES end
    local f, message = io.open(path, "rb")
    if not f then return nil, message end
    local text = f:read(MAX_BYTES) or ""
    f:close()
    return text
  end

  -- write(name, text) -> true | nil, message. Under its name a file is whole or the old one.
  function file.write(name, text)
    local path = path_of(dir, name)
    if type(text) ~= "string" or #text > MAX_BYTES then error("mtx.file.write: a text of at most " .. MAX_BYTES .. " bytes is needed", 2) end
    local ok, fault = writes:told("a script's file", path, whole_file.write(path, text))
    return ok, fault and fault.message
  end

  -- list() -> names in order, those of other programs that read() would not take left out
  function file.list()
    local names, dir_handle = {}, uv.fs_scandir(dir)
    while dir_handle and #names < 10000 do
      local name, kind = uv.fs_scandir_next(dir_handle)
      if not name then break end
      if kind == "file" and name:find("^[%w_][%w%._%-]*$") then names[#names + 1] = name end
    end
    table.sort(names)
    return names
  end

  return file
end

return M
