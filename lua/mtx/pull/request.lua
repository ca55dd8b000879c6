-- SPDX-License-Identifier: MIT
-- A request of a pull: redirects are followed one by one to allowed origins only, and
-- the token goes to the hub's own origin and nowhere else: by HTTPS, or on loopback,
-- where no proxy is asked, since it could read it.
local check = require("mtx.api.check")
local curl = require("mtx.pull.curl")
local loop = require("mtx.loop")
local origins = require("mtx.pull.origins")
local wait = require("mtx.pull.wait")

local request = {}

local MAX_HOPS = 6
local HOPELESS = { [51] = true, [60] = true, [77] = true } -- curl's codes for certificates that are not to be trusted
local REDIRECT = { [301] = true, [302] = true, [303] = true, [307] = true, [308] = true }

local function headers_for(client, u, extra)
  local list = table.move(extra or {}, 1, #(extra or {}), 1, {})
  local safe = u.scheme == "https" or origins.is_loopback(u)
  if client.token and safe and origins.same(u, client.token_origin) then list[#list + 1] = "Authorization: Bearer " .. client.token end
  return list
end

-- One answer -> {status, headers, location | nil, error | nil}; accept(status, headers) gives the taker of the
-- body, a function(bytes, transfer), or nil: the body is not wanted.
local function single(job, u, o)
  local client, reply = job.client, {}
  local failed
  local ended = wait.on(job, function(go)
    local transfer, taker
    local function head(status, headers)
      reply.status, reply.headers = status, headers
      reply.location = REDIRECT[status] and headers.location
      taker = not reply.location and o.accept(status, headers)
      if not taker then transfer:stop() end
    end
    transfer, failed = curl.start({ url = u.url, headers = headers_for(client, u, o.headers), from = o.from, compressed = o.compressed,
      head_only = o.head_only, direct = origins.is_loopback(u), stall_s = client.stall_s, program = client.program }, {
      head = head,
      data = function(bytes) taker(bytes, transfer) end,
      done = function(message, code)
        if not transfer.stopped or not reply.status then reply.error, reply.hopeless = message, HOPELESS[code] end
        go(true)
      end })
    if not transfer then
      local turn = loop.soon(function() go(false) end) -- the wait has to have begun before it ends
      return function() turn:close() end
    end
    return function() transfer:stop() end
  end)
  if not ended then check.fail(501, failed) end
  return reply
end

-- options: {url, from, compressed, head_only, headers, accept(status, headers) -> taker | nil}
-- -> {status, headers, error = text when the connection failed or ended early, hopeless = another try will not help, url = the
-- last one, parsed}; raises a Fault
function request.run(job, options)
  local u, message = origins.parse(options.url)
  for _ = 1, MAX_HOPS do
    if not u then check.fail(502, "a redirect cannot be followed: " .. message) end
    if not origins.allowed(job.client.rules, u) then
      check.fail(502, ("%s://%s is not among the places that models may come from; add it with --pull-hosts"):format(u.scheme, u.shown))
    end
    local reply = single(job, u, options)
    reply.url = u
    if not reply.location then return reply end
    u, message = origins.resolve(u, reply.location)
  end
  check.fail(502, "more than " .. MAX_HOPS .. " redirects")
end

-- Answers that are worth another try.
function request.passing(status) return status == 408 or status == 425 or status == 429 or status >= 500 end

-- How long to wait before try n (1, 2, ...): doubled each time, or as the server says; ms.
function request.pause_ms(client, n, headers)
  local said = tonumber(headers and headers["retry-after"])
  local ms = client.retry_ms * 2 ^ (n - 1)
  if said and said > 0 then ms = math.max(ms, said * 1000) end
  return math.floor(math.min(ms, 60000))
end

-- A small document: the body's text, or nil and the status of an answer that is no 200; the server is asked up to
-- three times. max: bytes.
function request.text(job, url, max, headers)
  local why
  for n = 1, 3 do
    local parts, bytes = {}, 0
    local reply = request.run(job, { url = url, compressed = true, headers = headers, accept = function(status)
      return status == 200 and function(data, transfer)
        bytes = bytes + #data
        if bytes > max then transfer:stop() end
        parts[#parts + 1] = data
      end
    end })
    if bytes > max then check.fail(502, reply.url.shown .. ": the answer has more than " .. max .. " bytes") end
    if reply.status == 200 and not reply.error then return table.concat(parts), 200 end
    if reply.status and not reply.error and not request.passing(reply.status) then return nil, reply.status end
    why = reply.error or "status " .. reply.status
    if reply.hopeless then break end
    if n < 3 then wait.ms(job, request.pause_ms(job.client, n, reply.headers)) end
  end
  check.fail(502, "cannot reach " .. (origins.parse(url) or {}).shown .. ": " .. why, { unreachable = true })
end

return request
