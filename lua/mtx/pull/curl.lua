-- SPDX-License-Identifier: MIT
-- One HTTP transfer by the program curl, which has the TLS that libuv has not. It is
-- told everything through its standard input: no shell, and neither addresses nor
-- tokens show in the list of processes. Redirects are not followed here.
local uv = require("luv")

local curl = {}

local MAX_HEAD_BYTES, MAX_ERROR_BYTES = 64 << 10, 4096

curl.MISSING = "the program curl is needed to pull models and is not there; install it (Debian, Ubuntu: apt install curl)"

local function quoted(text) return '"' .. text:gsub('[\\"]', "\\%0") .. '"' end

local function config_of(o)
  local lines = { "silent", "show-error", "include", "globoff", "path-as-is", "http1.1", "no-buffer", "suppress-connect-headers",
    "connect-timeout = 20", "speed-limit = 1", "speed-time = " .. (o.stall_s or 60), 'proto = "=http,https"', 'user-agent = "mtx"',
    "url = " .. quoted(o.url) }
  if o.direct then lines[#lines + 1] = 'noproxy = "*"' end
  if o.head_only then lines[#lines + 1] = "head" end
  lines[#lines + 1] = o.compressed and "compressed" or 'header = "Accept-Encoding: identity"'
  if o.from then lines[#lines + 1] = 'range = "' .. o.from .. '-"' end
  for _, h in ipairs(o.headers or {}) do lines[#lines + 1] = "header = " .. quoted(h) end
  return table.concat(lines, "\n") .. "\n"
end

local Transfer = {}
Transfer.__index = Transfer

-- The head(s) at the start of the output: those of 1xx answers are passed over.
local function take_head(self)
  while true do
    local head, rest = self.early:match("^(.-)\r?\n\r?\n(.*)$")
    if not head then return #self.early <= MAX_HEAD_BYTES end
    self.early = rest
    local status = math.tointeger(tonumber(head:match("^HTTP/[%d%.]+ (%d%d%d)")))
    if not status then return false end
    if status >= 200 then
      local headers = {}
      for k, v in head:gmatch("\n([%w%-_]+):[ \t]*([^\r\n]*)") do headers[k:lower()] = v end
      self.status = status
      self.on.head(status, headers)
      return true
    end
  end
end

local function take(self, bytes)
  if self.stopped then return end
  if not self.status then
    self.early = self.early .. bytes
    if not take_head(self) then
      self.error = "this is no HTTP answer"
      return self:stop()
    end
    if not self.status then return end
    bytes, self.early = self.early, ""
  end
  if bytes ~= "" and not self.stopped then self.on.data(bytes) end
end

-- options: {url, headers = {"Name: value"}, from (first byte wanted), compressed (curl decodes), head_only, direct (past every proxy),
--   stall_s, program}
-- on: head(status, headers), data(bytes), done(message | nil, curl's exit code); done comes once, also after stop.
-- -> transfer | nil, message
function curl.start(options, on)
  local self = setmetatable({ on = on, early = "" }, Transfer)
  local input, output, errors = uv.new_pipe(false), uv.new_pipe(false), uv.new_pipe(false)
  local open, code, said = 3, nil, ""
  local deaf = uv.new_signal() -- a curl that ends before it has read everything is a failed transfer, not our end
  local function ended()
    open = open - 1
    if open > 0 then return end
    deaf:close()
    local message = self.error
    if not message and code ~= 0 then message = (said:match("[^\r\n]+") or ""):gsub("^curl: ", "") end
    on.done(message ~= "" and message or (code ~= 0 and "curl ended with code " .. code) or nil, code)
  end
  local process, message = uv.spawn(options.program or "curl", { args = { "--disable", "--config", "-" }, stdio = { input, output, errors } }, function(exit, signal)
    code = signal ~= 0 and 128 + signal or exit
    if self.process then self.process:close() end
    self.process = nil
    ended()
  end)
  if not process then
    for _, p in ipairs({ input, output, errors, deaf }) do p:close() end
    return nil, message:find("ENOENT", 1, true) and curl.MISSING or "cannot start curl: " .. message
  end
  deaf:start("sigpipe", function() end)
  self.process, self.output = process, output
  input:write(config_of(options), function() input:close() end)
  errors:read_start(function(_, bytes)
    if bytes then
      said = (said .. bytes):sub(1, MAX_ERROR_BYTES)
    else
      errors:close()
      ended()
    end
  end)
  self.reader = function(_, bytes)
    if bytes then return take(self, bytes) end
    output:close()
    ended()
  end
  output:read_start(self.reader)
  return self
end

-- Ends it; what still comes is dropped.
function Transfer:stop()
  if self.stopped then return end
  self.stopped = true
  self:resume()
  if self.process then self.process:kill("sigterm") end
end

-- Takes nothing more from the pipe, until resume: curl, and so the sender, has to wait.
function Transfer:pause()
  if self.paused or self.output:is_closing() then return end
  self.paused = true
  self.output:read_stop()
end

function Transfer:resume()
  if not self.paused or self.output:is_closing() then return end
  self.paused = false
  self.output:read_start(self.reader)
end

return curl
