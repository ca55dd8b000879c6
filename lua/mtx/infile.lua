-- SPDX-License-Identifier: MIT
-- Files that are read. A folder opens like a file and only fails when it is read:
-- io.open alone does not notice, and lines() raises.
local infile = {}

-- -> an open file that can be read | nil, "PATH: why not"
function infile.open(path)
  local file, message = io.open(path, "rb")
  if not file then return nil, message end
  local _, why = file:read(0)
  if not why then return file end
  file:close()
  return nil, path .. ": " .. why
end

-- -> the file's bytes (at most max) | nil, "PATH: why not"
function infile.read(path, max)
  local file, message = infile.open(path)
  if not file then return nil, message end
  local text, why = file:read(max or "a")
  file:close()
  if why then return nil, path .. ": " .. why end
  return text or ""
end

return infile
