-- SPDX-License-Identifier: MIT
-- What a file's weights are stored as: the name that its maker gave the mix
-- (general.file_type), and the tensor types that it really holds.
local quantization = {}

-- llama.cpp's numbers of file types (llama_ftype), those of types that this build reads.
local FILE_TYPES = { [0] = "F32", [1] = "F16", [2] = "Q4_0", [3] = "Q4_1", [7] = "Q8_0", [8] = "Q5_0", [9] = "Q5_1", [10] = "Q2_K",
  [11] = "Q3_K_S", [12] = "Q3_K_M", [13] = "Q3_K_L", [14] = "Q4_K_S", [15] = "Q4_K_M", [16] = "Q5_K_S", [17] = "Q5_K_M", [18] = "Q6_K",
  [19] = "IQ2_XXS", [20] = "IQ2_XS", [21] = "Q2_K_S", [22] = "IQ3_XS", [23] = "IQ3_XXS", [24] = "IQ1_S", [25] = "IQ4_NL", [26] = "IQ3_S",
  [27] = "IQ3_M", [28] = "IQ2_S", [29] = "IQ2_M", [30] = "IQ4_XS", [31] = "IQ1_M", [32] = "BF16", [36] = "TQ1_0", [37] = "TQ2_0", [38] = "MXFP4" }

-- Names of the file types this build reads, sorted.
function quantization.names()
  local out = {}
  for _, name in pairs(FILE_TYPES) do out[#out + 1] = name end
  table.sort(out)
  return out
end

-- tensors of a GGUF header -> {{type, bytes, share}}, the type with most bytes first.
function quantization.mix(tensors)
  local mix, of, total = {}, {}, 0
  for _, t in ipairs(tensors) do
    if not of[t.type] then
      of[t.type] = { type = t.type, bytes = 0 }
      mix[#mix + 1] = of[t.type]
    end
    of[t.type].bytes = of[t.type].bytes + t.bytes
    total = total + t.bytes
  end
  table.sort(mix, function(a, b)
    if a.bytes ~= b.bytes then return a.bytes > b.bytes end
    return a.type < b.type
  end)
  for _, m in ipairs(mix) do m.share = m.bytes / math.max(total, 1) end
  return mix
end

-- The one name for lists. A file that names no type, or one unknown here, goes by the tensor type with most bytes.
function quantization.name(file_type, tensors)
  local main = quantization.mix(tensors)[1]
  return FILE_TYPES[file_type] or main and main.type or "none"
end

return quantization
