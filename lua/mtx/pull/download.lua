-- SPDX-License-Identifier: MIT
-- Fetches one file whose size is known, going on from what is there, until its bytes
-- are right: short answers, lost connections and busy servers are tried again, ranges
-- that come out wrong are done without, and a wrong hash costs one fresh try.
local uv = require("luv")
local check = require("mtx.api.check")
local hash = require("mtx.pull.hash")
local part = require("mtx.pull.part")
local request = require("mtx.pull.request")
local wait = require("mtx.pull.wait")

local download = {}

local MAX_TRIES = 6 -- in a row without a new byte

-- What an answer means -> byte that its body begins at | nil, why not, kind: "again" (as it is, later), "whole" (without
-- a range), "decode" (let curl decode it), "fatal".
local function start_of(file, options, status, headers)
  local encoding = headers["content-encoding"]
  local packed = encoding and encoding:lower() ~= "identity"
  if status == 200 then
    if packed and not options.compressed then return nil, "it comes compressed", "decode" end
    local n = math.tointeger(tonumber(headers["content-length"]))
    if n and not packed and n ~= file.size then
      return nil, ("the server has %d bytes of it, %d were announced"):format(n, file.size), "fatal"
    end
    return 0
  end
  if status == 206 and not packed then
    local from, total = (headers["content-range"] or ""):match("^bytes (%d+)%-%d+/([%d*]+)$")
    if options.from and tonumber(from) == options.from and (total == "*" or tonumber(total) == file.size) then return options.from end
    return nil, "the server sent another range than asked for", "whole"
  end
  if status == 206 or status == 416 then return nil, "the server gives no range", "whole" end
  if request.passing(status) then return nil, "status " .. status, "again" end
  if status == 401 or status == 403 then return nil, "the server refuses it (status " .. status .. "); a private or gated model needs a token in HF_TOKEN", "fatal" end
  return nil, "status " .. status, "fatal"
end

-- One transfer. -> why it is not complete, kind, headers (as start_of); "again" also for lost connections
local function transfer(job, file, path, options)
  local out, why, kind, opened, fault
  local ran, reply = pcall(request.run, job, { url = file.url, from = options.from, compressed = options.compressed,
    headers = options.from and file.etag and { "If-Range: " .. file.etag } or nil,
    accept = function(status, headers)
      local at
      at, why, kind = start_of(file, options, status, headers)
      if not at then return nil end
      opened, out = pcall(part.open, path, at) -- a Fault must not pass through curl's callbacks
      if not opened then
        fault = out
        return nil
      end
      file.done = at
      return function(bytes, t)
        if file.done + #bytes > file.size then
          why, kind = "the server sends more than the " .. file.size .. " bytes announced", "fresh"
          return t:stop()
        end
        file.done = file.done + #bytes
        out:put(bytes, t)
        job:progress(file)
      end
    end })
  if opened then out:close() end
  if fault or not ran then error(fault or reply, 0) end
  if reply.error then return reply.error, reply.hopeless and "fatal" or "again" end
  return why, kind, reply.headers
end

-- The bytes are all there: are they right? Without a known hash theirs becomes it.
local function verified(job, file, path)
  job:say({ status = "verifying sha256 digest" })
  local hex = hash.file(job, path)
  if file.sha256 and hex ~= file.sha256 then return false end
  file.sha256 = hex
  return true
end

-- file: {path (shown), url, size, sha256 | nil, etag | nil, unsure (nothing would tell that the file has changed between two
-- requests, so it comes whole), done}; path: where it is written. Raises a Fault.
function download.file(job, file, path)
  local tries, fresh, options = 0, false, { whole = file.unsure }
  if file.unsure then os.remove(path) end
  local function start_afresh(why)
    os.remove(path)
    if fresh then check.fail(502, file.path .. ": " .. why .. ", twice; the wrong bytes are removed") end
    fresh = true
    job:say({ status = file.path .. ": " .. why .. "; fetching it once more" })
  end
  while true do
    local have = part.size(path)
    if have > file.size then
      os.remove(path)
      have = 0
    end
    file.done = have
    local why, kind, headers
    if have < file.size or not uv.fs_stat(path) then
      options.from = have > 0 and not options.whole and have or nil
      job:progress(file)
      why, kind, headers = transfer(job, file, path, options)
      have = part.size(path)
    end
    if kind == "fatal" then
      check.fail(502, file.path .. ": " .. why)
    elseif kind == "fresh" then
      start_afresh(why)
    elseif kind == "whole" then
      if not options.from then check.fail(502, file.path .. ": " .. why) end
      options.whole = true
    elseif kind == "decode" then
      options.compressed, options.whole = true, true
    elseif have == file.size then
      job:progress(file, true)
      if verified(job, file, path) then return part.sync(job, path) end
      start_afresh("its bytes do not hash to sha256:" .. file.sha256)
    else
      if have > (options.from or 0) and not options.whole then tries = 0 end
      tries = tries + 1
      if tries >= MAX_TRIES then
        check.fail(502, ("%s: %s (%d of %d bytes are here; the next pull goes on from them)"):format(file.path, why or "the connection ended early", have, file.size))
      end
      wait.ms(job, request.pause_ms(job.client, tries, headers))
    end
  end
end

return download
