-- SPDX-License-Identifier: MIT
-- The SHA-256 of a file of any size, made on a thread slice by slice.
local core = require("mtx.core")
local check = require("mtx.api.check")
local wait = require("mtx.pull.wait")
local when_ended = require("mtx.serve.models.loading").when_ended

local hash = {}

local SLICE_BYTES = 32 << 20

-- -> 64 hex digits; raises a Fault.
function hash.file(job, path)
  local sum, at = core.sha256.new(), 0
  while true do
    local n, message = wait.on(job, function(go)
      local task = assert(sum:start(path, at, SLICE_BYTES))
      when_ended(task, function() go(task:take()) end)
      return function() end -- a slice ends soon
    end)
    if not n then check.fail(500, (message:gsub("/%S*/", ""))) end
    at = at + n
    if n < SLICE_BYTES then return sum:hex() end
  end
end

return hash
