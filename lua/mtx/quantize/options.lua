-- SPDX-License-Identifier: MIT
-- mtx.quantize's options as a script gives them: one of the wrong kind is misuse, never without effect.
local fields = require("mtx.model.fields")
local misuse = require("mtx.model.misuse")

local options = {}

local KIND = { from = "string", to = "string", type = "string", tensor_types = "table", rules = "function", imatrix = "string", threads = "number",
  requantize = "boolean", dry_run = "boolean", force = "boolean", progress = "function" }

local function wrong(name, kind) fields.wrong("mtx.quantize", name, kind) end

-- Raises, at the caller's line, unless opts are good.
function options.check(opts)
  fields.check(opts, "mtx.quantize", fields.QUANTIZE)
  for _, name in ipairs({ "from", "to", "type" }) do
    if type(opts[name]) ~= "string" and not (name == "to" and opts.dry_run) then misuse("mtx.quantize needs a string '" .. name .. "'") end
  end
  fields.check_kinds(opts, "mtx.quantize", fields.QUANTIZE, KIND)
  if opts.threads and (math.type(opts.threads) ~= "integer" or opts.threads < 0) then wrong("threads", "a whole number from 0") end
  for _, text in ipairs(opts.tensor_types or {}) do
    if type(text) ~= "string" then wrong("tensor_types", 'a list of "PATTERN=TYPE"') end
  end
end

return options
