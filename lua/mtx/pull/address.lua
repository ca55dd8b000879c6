-- SPDX-License-Identifier: MIT
-- A GGUF file at an address (all parts of a split one). Nobody tells its hash but the
-- user (#sha256=..., of the file that the address names), so what came is pinned and a changed ETag means a new file.
local check = require("mtx.api.check")
local request = require("mtx.pull.request")
local wait = require("mtx.pull.wait")

local address = {}

-- -> size, etag; raises a Fault
local function ask(job, url)
  local reply
  for n = 1, 3 do
    reply = request.run(job, { url = url, head_only = true, accept = function() end })
    if reply.status and not request.passing(reply.status) then break end
    if n == 3 or reply.hopeless then check.fail(502, "cannot reach " .. reply.url.shown .. ": " .. (reply.error or "status " .. reply.status), { unreachable = true }) end
    wait.ms(job, request.pause_ms(job.client, n, reply.headers))
  end
  if reply.status ~= 200 then check.fail(reply.status == 404 and 404 or 502, reply.url.shown .. " answers with status " .. reply.status) end
  local size = math.tointeger(tonumber(reply.headers["content-length"]))
  if not size then check.fail(502, reply.url.shown .. " does not tell the size of the file") end
  local etag = reply.headers.etag
  return size, etag and etag:find('^"[!-~]*"$') and etag or nil -- a weak one (W/"...") does not stand for the bytes
end

-- As hub.plan.
function address.plan(job, name)
  local stem, n = name.url.url:match("^(.*)%-00001%-of%-(%d%d%d%d%d)%.gguf$")
  n = stem and tonumber(n) or 1
  if n < 1 or n > 1000 then check.fail(400, "a model has at most 1000 parts") end
  local files = {}
  for i = 1, n do
    local url, file = name.url.url, name.file
    if stem then
      local tail = ("-%05d-of-%05d.gguf"):format(i, n)
      url, file = stem .. tail, file:gsub("%-%d+%-of%-%d+%.gguf$", (tail:gsub("%%", "%%%%")))
    end
    local size, etag = ask(job, url)
    files[i] = { path = file:gsub("[^%w%._%-]", "-"), size = size, etag = etag, url = url, sha256 = i == 1 and name.sha256 or nil }
    files[i].unsure = not etag and not files[i].sha256
  end
  return { files = files, from = files[1].path }
end

return address
