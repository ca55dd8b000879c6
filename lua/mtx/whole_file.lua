-- SPDX-License-Identifier: MIT
-- Files that are whole or the old one under their name, whatever happens while they
-- are written; and writes that say why they failed.
local uv = require("luv")

local whole_file = {}

-- Writes all of `bytes` at the descriptor's end or, with `at`, there. -> true | nil, reason
function whole_file.put(fd, bytes, at)
  local done = 0
  while done < #bytes do
    local n, message = uv.fs_write(fd, done == 0 and bytes or bytes:sub(done + 1), at and at + done or -1)
    if not n or n == 0 then return nil, message or "no bytes were taken" end
    done = done + n
  end
  return true
end

local function sync_folder(path)
  local dir = uv.fs_open(path:match("^(.*)/") or ".", "r", 0)
  if not dir then return end
  uv.fs_fsync(dir)
  uv.fs_close(dir)
end

-- Ends the file `temporary`, open as fd, and gives it the name `path`; on failure it is removed.
-- sync(fd) -> true | nil, reason: instead of uv.fs_fsync; false: a crash may lose it. -> true | nil, reason
function whole_file.finish(fd, temporary, path, sync)
  local ok, message = true, nil
  if sync ~= false then ok, message = (sync or uv.fs_fsync)(fd) end
  local closed, why = uv.fs_close(fd)
  if ok and not closed then ok, message = nil, why end
  if ok then ok, message = uv.fs_rename(temporary, path) end
  if not ok then
    uv.fs_unlink(temporary)
    return nil, message
  end
  if sync ~= false then sync_folder(path) end
  return true
end

-- A new file of `bytes`; mode: permissions, its owner's alone unless told; sync: as for finish. -> true | nil, reason
function whole_file.write(path, bytes, mode, sync)
  local temporary = path:gsub("[^/]*$", ".%0.part")
  local fd, message = uv.fs_open(temporary, "w", mode or tonumber("600", 8))
  if not fd then return nil, message end
  local ok, why = whole_file.put(fd, bytes, 0)
  if ok then return whole_file.finish(fd, temporary, path, sync) end
  uv.fs_close(fd)
  uv.fs_unlink(temporary)
  return nil, why
end

-- Makes a folder and those above it, for this user alone; that it cannot shows when it is used.
function whole_file.make_dirs(path)
  local at = path:sub(1, 1) == "/" and "" or "."
  for part in path:gmatch("[^/]+") do
    at = at .. "/" .. part
    uv.fs_mkdir(at, tonumber("700", 8))
  end
end

return whole_file
