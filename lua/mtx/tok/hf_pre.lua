-- SPDX-License-Identifier: MIT
-- The pre-tokenizers of tokenizer.json files that mtx has a scanner for: the
-- steps' expressions, joined by newlines -> the name in `tokenizer.ggml.pre`.
--
-- The expressions are those of the models' files (GPT-2, StarCoder, Llama 3,
-- Qwen, Mistral Tekken, GPT-4o, DeepSeek, Falcon, BLOOM). Where a name's rule is
-- llama.cpp's, case outside ASCII is not told apart (tekken, gpt-4o).
local L3 = [[(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+]]
local CASE = [=[[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+]=]
local SUFFIX = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
local GPT2 = [['s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+]]
local DEEPSEEK3 = [=[[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+]=]

local function fill(pattern, ...)
  local args, i = { ... }, 0
  return (pattern:gsub("%%s", function()
    i = i + 1
    return args[i]
  end))
end

-- The pre-tokenizer, its steps joined by newlines -> name in `tokenizer.ggml.pre`.
return {
  ["bytelevel"] = "gpt-2",
  [GPT2] = "gpt-2",
  ["digits\nbytelevel"] = "starcoder",
  [fill(L3, "{1,3}")] = "dbrx",
  [fill(L3, "")] = "qwen2",
  [ [=[(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+]=] ] = "qwen35",
  [fill(CASE, "", "", "")] = "tekken",
  [fill(CASE, SUFFIX, SUFFIX, "{1,3}")] = "gpt-4o",
  ["\\p{N}{1,3}\n[一-龥\u{3040}-ゟ゠-ヿ]+\n" .. DEEPSEEK3] = "deepseek-v3",
  ["[\\r\\n]\n\\s?\\p{L}+\n\\s?\\p{P}+\n[一-龥ࠀ-一가-\u{D7FF}]+\ndigits"] = "deepseek-coder",
  ["punctuation\nbytelevel\n[0-9][0-9][0-9]"] = "falcon",
  [ [=[ ?[^(\s|[.,!?…。，、।۔،])]+]=] ] = "bloom",
}
