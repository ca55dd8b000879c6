-- SPDX-License-Identifier: MIT
-- Reads a SentencePiece tokenizer.model: the few fields of its protocol buffer
-- that encoding needs. Format: sentencepiece_model.proto.
local sentencepiece = {}

-- Limits: a file is read whole; a field must lie inside it.
local function varint(s, i)
  local v, shift = 0, 0
  repeat
    local b = s:byte(i)
    if not b or shift > 63 then error("a number runs past the end", 0) end
    v = v | (b & 0x7F) << shift
    shift, i = shift + 7, i + 1
  until b < 0x80
  return v, i
end

-- Calls each(field, value) for every field of the message s; strings and nested
-- messages as bytes, numbers as integers or (32 bits) packed bytes.
local function fields(s, each)
  local i = 1
  while i <= #s do
    local tag, n
    tag, i = varint(s, i)
    local wire = tag & 7
    if wire == 0 then
      n, i = varint(s, i)
      each(tag >> 3, n)
    elseif wire == 2 or wire == 5 or wire == 1 then
      n = wire == 5 and 4 or 8
      if wire == 2 then n, i = varint(s, i) end
      if n < 0 or n > #s - i + 1 then error("a field runs past the end", 0) end
      each(tag >> 3, s:sub(i, i + n - 1))
      i = i + n
    else
      error("unknown wire type " .. wire, 0)
    end
  end
end

-- A collector of one message: names by field number.
local function message(s, names)
  local t = {}
  fields(s, function(k, v)
    if names[k] then t[names[k]] = v end
  end)
  return t
end

local PIECE = { [1] = "piece", [2] = "score", [3] = "type" }
local TRAINER = { [3] = "model_type", [24] = "suffix", [35] = "byte_fallback", [40] = "unk", [41] = "bos", [42] = "eos", [43] = "pad" }
local NORMALIZER = { [2] = "charsmap", [3] = "dummy_prefix", [4] = "remove_extra", [5] = "escape" }
local TYPE = { [1] = 1, [2] = 2, [3] = 3, [4] = 4, [5] = 5, [6] = 6 }  -- the same numbers as GGUF's

local function float(bytes)
  if bytes == nil then return 0.0 end
  if type(bytes) ~= "string" or #bytes ~= 4 then error("a score is no 32-bit float", 0) end
  return (string.unpack("<f", bytes))
end

local function parse(s)
  local tokens, scores, types, trainer, normalizer = {}, {}, {}, {}, {}
  fields(s, function(k, v)
    if k == 1 then
      local p = message(v, PIECE)
      local n = #tokens + 1
      tokens[n], scores[n], types[n] = p.piece or "", float(p.score), TYPE[p.type or 1] or 1
    elseif k == 2 then
      trainer = message(v, TRAINER)
    elseif k == 3 then
      normalizer = message(v, NORMALIZER)
    end
  end)
  if #tokens == 0 then error("it holds no pieces", 0) end
  return tokens, scores, types, trainer, normalizer
end

local function id(kv, key, value, n)
  value = math.tointeger(value)
  if value and value >= 0 and value < n then kv[#kv + 1] = { "tokenizer.ggml." .. key, "u32", value } end
end

function sentencepiece.read(path)
  local f, message_ = io.open(path, "rb")
  if not f then return nil, message_, "notfound" end
  local ok, tokens, scores, types, trainer, normalizer = pcall(parse, f:read("a") or "")
  f:close()
  if not ok then return nil, "no SentencePiece model: " .. tostring(tokens), "format" end
  local kind = ({ [1] = "t5", [2] = "llama" })[trainer.model_type or 1]
  if not kind then return nil, "SentencePiece model type " .. trainer.model_type .. " (word or char) is not supported", "unsupported" end
  if trainer.suffix == 1 then return nil, "spaces as suffix are not supported", "unsupported" end
  local kv = {
    { "tokenizer.ggml.model", "string", kind },
    { "tokenizer.ggml.tokens", "array:string", tokens },
    { "tokenizer.ggml.scores", "array:f32", scores },
    { "tokenizer.ggml.token_type", "array:i32", types },
    { "tokenizer.ggml.add_space_prefix", "bool", normalizer.dummy_prefix ~= 0 },
    { "tokenizer.ggml.remove_extra_whitespaces", "bool", normalizer.remove_extra ~= 0 },
  }
  local bos, eos = trainer.bos or 1, trainer.eos or 2
  kv[#kv + 1] = { "tokenizer.ggml.add_bos_token", "bool", kind == "llama" and bos >= 0 and bos < #tokens }
  kv[#kv + 1] = { "tokenizer.ggml.add_eos_token", "bool", kind == "t5" and eos >= 0 and eos < #tokens }
  id(kv, "bos_token_id", bos, #tokens)
  id(kv, "eos_token_id", eos, #tokens)
  id(kv, "unknown_token_id", trainer.unk or 0, #tokens)
  id(kv, "padding_token_id", trainer.pad, #tokens)
  if normalizer.charsmap and #normalizer.charsmap > 0 then
    kv[#kv + 1] = { "tokenizer.ggml.precompiled_charsmap", "array:u8", normalizer.charsmap }
  end
  return kv
end

return sentencepiece
