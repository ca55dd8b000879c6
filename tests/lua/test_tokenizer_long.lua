-- SPDX-License-Identifier: MIT
-- Long words are merged in chunks: with random merge lists, whose tokens depend on each other over long distances as
-- no trained list's do, the ids are those of the plain rule - the best pair first, of equal ones the leftmost.
local lu = require("luaunit")
local core = require("mtx.core")
local gguf = require("gguf_bytes")

local P = "tokenizer.ggml."

local function open(kv)
  local path = gguf.save("long", kv)
  local t = assert(core.tokenizer.open(path))
  os.remove(path)
  return t
end

-- rank(a, b): of the pair of two texts, the lowest first, or nil. Returns the texts that are left.
local function merged(symbols, rank)
  local ranks = {}
  for i = 1, #symbols - 1 do ranks[i] = rank(symbols[i], symbols[i + 1]) or math.huge end
  while true do
    local best, at = math.huge, nil
    for i = 1, #symbols - 1 do
      if ranks[i] < best then best, at = ranks[i], i end
    end
    if not at then return symbols end
    symbols[at] = symbols[at] .. table.remove(symbols, at + 1)
    table.remove(ranks, at)
    if at > 1 then ranks[at - 1] = rank(symbols[at - 1], symbols[at]) or math.huge end
    ranks[at] = symbols[at + 1] and (rank(symbols[at], symbols[at + 1]) or math.huge)
  end
end

local function random_text(letters, n, next_random)
  local out = {}
  for i = 1, n do out[i] = letters[next_random(#letters)] end
  return table.concat(out)
end

-- A generator of its own: the same texts in every Lua.
local function generator(seed)
  local state = seed
  return function(n)
    state = (state * 6364136223846793005 + 1442695040888963407)
    return (state >> 33) % n + 1
  end
end

local function letters_of(text)
  local out = {}
  for c in text:gmatch(utf8.charpattern) do out[#out + 1] = c end
  return out
end

local function check(t, tokens, text, rank)
  local id_of, want = {}, {}
  for i, token in ipairs(tokens) do id_of[token] = i - 1 end
  for i, s in ipairs(merged(letters_of(text), rank)) do want[i] = id_of[s] end
  local same = table.concat(t:encode(text), " ") == table.concat(want, " ") -- a list of thousands shows nothing
  lu.assertTrue(same, ("other ids for %d bytes: %s..."):format(#text, text:sub(1, 60)))
end

local function spm(tokens, scores, types)
  return { { P .. "model", "string", "llama" }, { P .. "add_space_prefix", "bool", false }, { P .. "tokens", "array:string", tokens },
    { P .. "scores", "array:f32", scores }, { P .. "token_type", "array:i32", types } }
end

TestLongWords = {}

-- Texts whose pieces shift with every letter: one letter, a period, all at random; with the first chunk's end in the middle.
local function texts(letters, next_random)
  return { letters[1]:rep(4999), (letters[1] .. letters[2] .. letters[2]):rep(1700), random_text(letters, 6000, next_random),
    random_text({ letters[1], letters[1], letters[1], letters[2] }, 7000, next_random) }
end

function TestLongWords:test_random_merge_lists()
  for seed = 1, 6 do
    local next_random = generator(seed)
    local tokens, merges, ranks = { "a", "b" }, {}, {}
    while #tokens < 14 do
      local l, r = tokens[next_random(#tokens)], tokens[next_random(#tokens)]
      if not ranks[l .. " " .. r] and #l + #r <= 12 then
        table.insert(merges, next_random(#merges + 1), l .. " " .. r) -- not in the order they are made
        ranks[l .. " " .. r] = true
        local known = false
        for _, token in ipairs(tokens) do known = known or token == l .. r end
        if not known then tokens[#tokens + 1] = l .. r end
      end
    end
    for i, m in ipairs(merges) do ranks[m] = i end
    local t = open{ { P .. "model", "string", "gpt2" }, { P .. "pre", "string", "gpt-2" }, { P .. "tokens", "array:string", tokens },
      { P .. "merges", "array:string", merges } }
    for _, text in ipairs(texts({ "a", "b" }, next_random)) do
      check(t, tokens, text, function(a, b) return ranks[a .. " " .. b] end)
    end
  end
end

function TestLongWords:test_random_scores()
  for seed = 11, 16 do
    local next_random = generator(seed)
    local letters = { "\u{E9}", "b" }
    local tokens, scores, types, score_of = { "<unk>", "\u{2581}", letters[1], letters[2] }, { 0, 0, 0, 0 }, { 2, 1, 1, 1 }, {}
    while #tokens < 16 do
      local text = random_text(letters, 1 + next_random(5), next_random)
      if not score_of[text] then
        score_of[text] = -next_random(6) -- several have the same
        tokens[#tokens + 1], scores[#scores + 1], types[#types + 1] = text, score_of[text], 1
      end
    end
    local t = open(spm(tokens, scores, types))
    for _, text in ipairs(texts(letters, next_random)) do
      check(t, tokens, text, function(a, b) return score_of[a .. b] and -score_of[a .. b] end)
    end
  end
end

-- Each pair of neighbours in an alphabet merges before the pair to its left: how its first letters are cut depends on
-- where the row of letters ends, be it far behind the chunk.
function TestLongWords:test_what_follows_decides()
  for _, n in ipairs{ 25, 26, 999, 9001 } do
    local tokens, scores, types, score_of = { "<unk>", "\u{2581}" }, { 0, 0 }, { 2, 1 }, {}
    local function add(text, score)
      tokens[#tokens + 1], scores[#scores + 1], types[#types + 1], score_of[text] = text, score, 1, score
    end
    for i = 1, n do add(utf8.char(0x4E00 + i), 0) end
    for i = 1, n - 1 do add(utf8.char(0x4E00 + i, 0x4E01 + i), i) end
    local alphabet = table.concat(tokens, "", 3, 2 + n)
    check(open(spm(tokens, scores, types)), tokens, alphabet:rep(math.max(1, 9001 // n)), function(a, b) return score_of[a .. b] and -score_of[a .. b] end)
  end
end
