-- SPDX-License-Identifier: MIT
-- The answers of a running batch: lines appended to a file in the folder of files,
-- one write each, so that a restart finds every answer that was given. Their bytes
-- count as the store's until the file is closed.
local uv = require("luv")
local json = require("mtx.json")
local whole_file = require("mtx.whole_file")

local batch_answers = {}

local WHAT = "a batch's answers"

local Answers = {}
Answers.__index = Answers

-- The custom_ids of the lines at `path` go into done. -> their number, bytes of whole lines:
-- one that a crash has cut is no answer.
local function read(path, done)
  local f, n, whole = io.open(path, "rb"), 0, 0
  if not f then return 0, 0 end
  for text in f:lines("L") do
    if text:sub(-1) ~= "\n" then break end
    whole = whole + #text
    local value = json.decode(text)
    if json.is_object(value) and type(value.custom_id) == "string" and not done[value.custom_id] then
      done[value.custom_id], n = true, n + 1
    end
  end
  f:close()
  return n, whole
end

-- store: filestore's; done[custom_id] = true for what is there. -> answers, how many are there.
function batch_answers.open(store, path, done)
  local n, bytes = read(path, done)
  local fd, reason = uv.fs_open(path, "a", tonumber("600", 8))
  if fd then uv.fs_ftruncate(fd, bytes) end
  store.bytes = store.bytes + bytes
  return setmetatable({ store = store, path = path, fd = fd, closed = reason, bytes = bytes }, Answers), n
end

-- text: a line with its end. -> true | nil, message; nothing of it is written then.
function Answers:write(text)
  local store = self.store
  if not self.fd then return nil, store.writes:failed(WHAT, self.path, self.closed).message end
  if store.bytes + #text > store.max then return nil, "the server's room for files is used up" end
  local ok, fault = store.writes:told(WHAT, self.path, whole_file.put(self.fd, text))
  if not ok then
    uv.fs_ftruncate(self.fd, self.bytes)
    return nil, fault.message
  end
  self.bytes, store.bytes = self.bytes + #text, store.bytes + #text
  return true
end

function Answers:close()
  self.store.bytes, self.bytes = self.store.bytes - self.bytes, 0
  if self.fd then uv.fs_close(self.fd) end
  self.fd = nil
end

return batch_answers
