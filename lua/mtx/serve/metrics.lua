-- SPDX-License-Identifier: MIT
-- Counters, gauges and histograms, printed in Prometheus's text format. Series
-- are declared before use with their label sets bounded, so that no client can
-- create series by sending odd values.
local sorted_keys = require("mtx.sorted_keys")

local metrics = {}

local Metrics = {}
Metrics.__index = Metrics

local MAX_SERIES = 200

function metrics.new() return setmetatable({ order = {}, families = {} }, Metrics) end

local function family(self, name, kind, help, extra)
  local f = self.families[name]
  if not f then
    f = { name = name, kind = kind, help = help, series = {}, n = 0 }
    for k, v in pairs(extra or {}) do f[k] = v end
    self.families[name] = f
    self.order[#self.order + 1] = f
  end
  return f
end

-- read, if given: () -> value, or values by label.
function Metrics:counter(name, help, read) return family(self, name, "counter", help, { read = read }) end
function Metrics:gauge(name, help, read) return family(self, name, "gauge", help, { read = read }) end
function Metrics:histogram(name, help, buckets) return family(self, name, "histogram", help, { buckets = buckets }) end

-- Another program's name for the series of `of`.
function Metrics:alias(name, of) return family(self, name, of.kind, of.help, { read = function() return next(of.series) and of.series or { [""] = 0 } end }) end

-- labels: text such as 'endpoint="chat",status="2xx"' made from bounded values, or nil.
function metrics.add(f, labels, n)
  labels = labels or ""
  local v = f.series[labels]
  if not v then
    if f.n >= MAX_SERIES then labels, v = "", f.series[""] or 0 else f.n, v = f.n + 1, 0 end
  end
  f.series[labels] = v + (n or 1)
end

function metrics.observe(f, value, labels)
  labels = labels or ""
  local s = f.series[labels]
  if not s then
    s = { sum = 0, count = 0 }
    for i = 1, #f.buckets do s[i] = 0 end
    f.series[labels] = s
  end
  s.sum, s.count = s.sum + value, s.count + 1
  for i = #f.buckets, 1, -1 do
    if value > f.buckets[i] then break end
    s[i] = s[i] + 1
  end
end

local function num(v)
  if math.type(v) == "integer" then return tostring(v) end
  if v == math.floor(v) and v > -1e15 and v < 1e15 then return string.format("%d", v) end
  return string.format("%.9g", v)
end

function Metrics:text()
  local out = {}
  for _, f in ipairs(self.order) do
    out[#out + 1] = "# HELP " .. f.name .. " " .. f.help
    out[#out + 1] = "# TYPE " .. f.name .. " " .. f.kind
    local series = f.series
    if f.read then
      local v = f.read()
      series = type(v) == "table" and v or { [""] = v }
    elseif next(series) == nil and f.kind == "counter" then
      series = { [""] = 0 }
    end
    for _, labels in ipairs(sorted_keys(series)) do
      local v = series[labels]
      if f.kind == "histogram" then
        local comma = labels == "" and "" or labels .. ","
        local braces = labels == "" and "" or "{" .. labels .. "}"
        for i, b in ipairs(f.buckets) do
          out[#out + 1] = string.format('%s_bucket{%sle="%s"} %d', f.name, comma, num(b), v[i])
        end
        out[#out + 1] = string.format('%s_bucket{%sle="+Inf"} %d', f.name, comma, v.count)
        out[#out + 1] = f.name .. "_sum" .. braces .. " " .. num(v.sum)
        out[#out + 1] = f.name .. "_count" .. braces .. " " .. num(v.count)
      else
        out[#out + 1] = f.name .. (labels == "" and "" or "{" .. labels .. "}") .. " " .. num(v)
      end
    end
  end
  return table.concat(out, "\n") .. "\n"
end

return metrics
