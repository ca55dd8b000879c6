-- SPDX-License-Identifier: MIT
-- Importance of weights, as llama-imatrix measures it: GGUF files with NAME.in_sum2 (sums of squared inputs of each column, one
-- row a matrix) and NAME.counts.
local source = require("mtx.model.source")

local imatrix = {}

local Imatrix = {}
Imatrix.__index = Imatrix

local NAME_BYTES <const> = 127  -- of the file's and the data set's name that a model file keeps

-- -> imatrix | nil, message
function imatrix.open(path)
  local g, message = source.open(path)
  if not g then return nil, message end
  local by_name, n = {}, 0
  for _, t in ipairs(g:tensors()) do by_name[t.name] = t end
  for name, sums in pairs(by_name) do
    if name:find("%.in_sum2$") then
      local counts = by_name[name:gsub("in_sum2$", "counts")]
      local rows = sums.shape[2] or 1
      if #sums.shape > 2 or not counts or sums.type ~= "F32" or counts.type ~= "F32" or counts.bytes ~= 4 * rows then
        return nil, ("%s: %s is not as llama-imatrix writes it"):format(path, name)
      end
      n = n + 1
    end
  end
  if n == 0 then return nil, path .. ": no importance matrix (GGUF, as llama-imatrix writes it); its older .dat form is not read" end
  return setmetatable({ file = g, path = path, of = by_name, n = n }, Imatrix)
end

-- Weights a tensor's importance holds | nil: there is none
function Imatrix:size(name)
  local sums = self.of[name .. ".in_sum2"]
  return sums and sums.bytes // 4
end

-- What core.gguf.write takes as a tensor's importance.
function Imatrix:weights(name) return { from = self.file, sums = name .. ".in_sum2", counts = name .. ".counts" } end

-- Metadata of a model that was made with it, in llama-quantize's order.
function Imatrix:metadata()
  local out = { { key = "quantize.imatrix.file", type = "string", value = self.path:sub(1, NAME_BYTES) } }
  local sets, chunks = self.file:metadata("imatrix.datasets"), self.file:metadata("imatrix.chunk_count")
  if type(sets) == "table" and type(sets[1]) == "string" then
    out[#out + 1] = { key = "quantize.imatrix.dataset", type = "string", value = sets[1]:sub(1, NAME_BYTES) }
  end
  out[#out + 1] = { key = "quantize.imatrix.entries_count", type = "u32", value = self.n }
  if math.type(chunks) == "integer" and chunks > 0 then
    out[#out + 1] = { key = "quantize.imatrix.chunks_count", type = "u32", value = chunks }
  end
  return out
end

return imatrix
