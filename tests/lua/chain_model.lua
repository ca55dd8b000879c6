-- SPDX-License-Identifier: MIT
-- A real model file that says what a test wants: one llama layer that adds nothing,
-- one-hot embeddings, and an output matrix that names each token's successor. The
-- whole path (file, tokenizer, template, engine, sampler, grammar, API) is the real one.
--
--   local chain = require("chain_model")
--   chain.write(path, { scripts = { hello = { "Hel", "lo", chain.EOS } }, template = , kv = })
--
-- A chat whose last user text contains `@hello` is answered with that script at
-- temperature 0: the template ends the prompt with a control token of its own,
-- <|@hello|>, whose successor is the script's first piece. Pieces are texts that
-- occur nowhere else (or the names of SPECIAL tokens); after the last comes <|eos|>, if
-- it is not a name that ends the answer itself. Any byte token is followed by itself, so a raw prompt
-- "aaa" goes on for ever. <|@random|> gives every token the same logit.
local core = require("mtx.core")

local chain = { EOS = "<|eos|>" }

-- Control tokens but for those that models write as text. <|halt|> is control and ends nothing.
local SPECIAL = { "<|eos|>", "<|im_start|>", "<|im_end|>", "<|halt|>", "<think>", "</think>", "<tool_call>", "</tool_call>" }
local USER_DEFINED = { ["<think>"] = true, ["</think>"] = true, ["<tool_call>"] = true, ["</tool_call>"] = true }
local NORMAL, CONTROL, USER = 1, 3, 4
local SIZE = 512 -- tokens and width of the embedding

--- ChatML with tools, a switch for thoughts, and the script's token at the end of the prompt.
chain.TEMPLATE = [[
{%- for t in tools or [] %}{{ t | tojson }}
{% endfor %}
{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content or '' }}
{%- for c in m.tool_calls or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}SCRIPTS{% endif %}]]

-- The 256 byte tokens as byte-level BPE writes them (GPT-2's bytes_to_unicode).
local function byte_texts()
  local texts, extra = {}, 0
  for b = 0, 255 do
    if (b >= 33 and b <= 126) or (b >= 161 and b <= 172) or b >= 174 then
      texts[b] = utf8.char(b)
    else
      texts[b] = utf8.char(256 + extra)
      extra = extra + 1
    end
  end
  return texts
end

-- { ids by text, tokens, types } with room for the scripts' pieces.
local function vocabulary(scripts)
  local bytes, v = byte_texts(), { ids = {}, tokens = {}, types = {} }
  local function add(text, type)
    assert(not v.ids[text], "twice in the vocabulary: " .. text)
    v.tokens[#v.tokens + 1], v.types[#v.types + 1] = text, type
    v.ids[text] = #v.tokens - 1
    return v.ids[text]
  end
  for b = 0, 255 do add(bytes[b], NORMAL) end
  for _, text in ipairs(SPECIAL) do add(text, USER_DEFINED[text] and USER or CONTROL) end
  add("<|@random|>", CONTROL)
  v.next = {}
  for b = 0, 255 do v.next[b] = b end
  for name, pieces in pairs(scripts) do
    local at = add("<|@" .. name .. "|>", CONTROL)
    for _, piece in ipairs(pieces) do
      local id = v.ids[piece]
      if not id or #piece == 1 then
        local text = piece:gsub(".", function(c) return bytes[c:byte()] end)
        id = v.ids[text] or add(text, NORMAL)
      end
      assert(v.next[at] == nil or v.next[at] == at, "two scripts go on differently from one piece: " .. piece)
      v.next[at], at = id, id
    end
    if pieces[#pieces] ~= chain.EOS then v.next[at] = v.ids[chain.EOS] end
  end
  assert(#v.tokens <= SIZE, "too many pieces")
  while #v.tokens < SIZE do add("<|unused" .. #v.tokens .. "|>", CONTROL) end
  return v
end

local function template_of(opts)
  local parts = { "{% set said = messages[-1].content | string %}", "{% if '@random' in said %}<|@random|>" }
  for name in pairs(opts.scripts) do parts[#parts + 1] = "{% elif '@" .. name .. "' in said %}<|@" .. name .. "|>" end
  parts[#parts + 1] = "{% endif %}"
  local text = table.concat(parts)
  return ((opts.template or chain.TEMPLATE):gsub("SCRIPTS", function() return text end))
end

local function rows(n, f)
  local out = {}
  for i = 0, n - 1 do out[#out + 1] = f(i) end
  return table.concat(out)
end

local ZERO = string.pack("<f", 0)
-- Row i holds value at column at(i), or nothing.
local function one_hot(at, value)
  local v = string.pack("<f", value)
  return rows(SIZE, function(i)
    local c = at(i)
    return c and ZERO:rep(c) .. v .. ZERO:rep(SIZE - 1 - c) or ZERO:rep(SIZE)
  end)
end

--- Writes the model. opts: scripts {name = pieces}, template (with the word SCRIPTS where
--- the script's token goes), kv (more or other metadata entries), n_ctx, nan (a token id
--- whose logit is always NaN). Gives the ids by token text.
function chain.write(path, opts)
  local v = vocabulary(opts.scripts)
  local before = {}
  for from, to in pairs(v.next) do
    before[to] = before[to] or {}
    table.insert(before[to], from)
  end
  -- output[to][from] = 50 for every from that leads to `to`
  local fifty = string.pack("<f", 50)
  local output = rows(SIZE, function(to)
    if to == opts.nan then return string.pack("<f", 0 / 0):rep(SIZE) end
    local from, out, at = before[to] or {}, {}, 0
    table.sort(from)
    for _, c in ipairs(from) do
      out[#out + 1] = ZERO:rep(c - at) .. fifty
      at = c + 1
    end
    return table.concat(out) .. ZERO:rep(SIZE - at)
  end)
  local ones, zeros, n_ff = string.pack("<f", 1):rep(SIZE), ZERO:rep(SIZE * SIZE), 32
  local tensors = {
    { name = "token_embd.weight", data = one_hot(function(i) return i end, 1), shape = { SIZE, SIZE } },
    { name = "output.weight", data = output, shape = { SIZE, SIZE } },
    { name = "output_norm.weight", data = ones, shape = { SIZE } },
    { name = "blk.0.attn_norm.weight", data = ones, shape = { SIZE } },
    { name = "blk.0.ffn_norm.weight", data = ones, shape = { SIZE } },
    { name = "blk.0.ffn_gate.weight", data = ZERO:rep(SIZE * n_ff), shape = { SIZE, n_ff } },
    { name = "blk.0.ffn_up.weight", data = ZERO:rep(SIZE * n_ff), shape = { SIZE, n_ff } },
    { name = "blk.0.ffn_down.weight", data = ZERO:rep(SIZE * n_ff), shape = { n_ff, SIZE } },
  }
  for _, w in ipairs({ "attn_q", "attn_k", "attn_v", "attn_output" }) do
    tensors[#tensors + 1] = { name = "blk.0." .. w .. ".weight", data = zeros, shape = { SIZE, SIZE } }
  end
  for _, t in ipairs(tensors) do t.type = "F32" end
  local kv, given = {}, {}
  for _, e in ipairs(opts.kv or {}) do given[e.key] = e end
  local function add(key, type, value, item_type)
    kv[#kv + 1] = given[key] or { key = key, type = type, value = value, item_type = item_type }
    given[key] = nil
  end
  add("general.architecture", "string", "llama")
  add("general.name", "string", "chain")
  add("llama.context_length", "u32", opts.n_ctx or 4096)
  add("llama.embedding_length", "u32", SIZE)
  add("llama.block_count", "u32", 1)
  add("llama.feed_forward_length", "u32", n_ff)
  add("llama.attention.head_count", "u32", 8)
  add("llama.attention.layer_norm_rms_epsilon", "f32", 1e-5)
  add("tokenizer.ggml.model", "string", "gpt2")
  add("tokenizer.ggml.pre", "string", "gpt-2")
  add("tokenizer.ggml.tokens", "array", v.tokens, "string")
  add("tokenizer.ggml.token_type", "array", v.types, "i32")
  add("tokenizer.ggml.merges", "array", {}, "string")
  add("tokenizer.ggml.eos_token_id", "u32", v.ids[chain.EOS])
  add("tokenizer.chat_template", "string", template_of(opts))
  for _, e in pairs(given) do kv[#kv + 1] = e end
  assert(core.gguf.write({ path = path, kv = kv, tensors = tensors }))
  return v.ids
end

return chain
