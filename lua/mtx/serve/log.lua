-- SPDX-License-Identifier: MIT
-- Structured log lines on standard error: `time level event key=value ...`, or
-- one JSON object per line. Values are escaped, so that no client text can
-- start a line of its own or send control codes to a terminal.
local sorted_keys = require("mtx.sorted_keys")
local wire = require("mtx.api.wire")

local log = {}

local LEVELS = { error = 1, warn = 2, info = 3, debug = 4, trace = 5 }

local function text_value(v)
  v = tostring(v)
  if v == "" or v:find('[^%w%.%-_/:@%%+]') then
    v = wire.quote(v)
  end
  return v
end

-- options: level (name), format "text" | "json", out = file-like with write.
-- Gives log(level, event, fields) as a callable with .on(level) and .set_level(level).
function log.new(options)
  local max = LEVELS[options.level or "info"] or 3
  local out, json = options.out or io.stderr, options.format == "json"
  local self = {}
  function self.on(level) return LEVELS[level] <= max end
  function self.set_level(level) max = LEVELS[level] or max end
  return setmetatable(self, { __call = function(_, level, event, fields)
    if (LEVELS[level] or 3) > max then return end
    local time = os.date("!%Y-%m-%dT%H:%M:%SZ")
    if json then
      local o = { time = time, level = level, event = tostring(event) }
      for k, v in pairs(fields or {}) do o[k] = v end
      out:write(wire.encode(o), "\n")
      return
    end
    local parts = { time, level, text_value(event) }
    for _, k in ipairs(sorted_keys(fields or {})) do parts[#parts + 1] = k .. "=" .. text_value(fields[k]) end
    out:write(table.concat(parts, " "), "\n")
  end })
end

return log
