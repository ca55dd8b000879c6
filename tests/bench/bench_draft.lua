-- SPDX-License-Identifier: MIT
-- Decoding with drafts by lookup beside decoding without, in turn: tokens/s (medians), their ratio, and how many drafted
-- tokens were accepted. mtx tests/bench/bench_draft.lua MODEL.gguf [TOKENS] [REPEATS] [STREAMS]
-- What is asked: an answer that repeats its prompt, code, and free text; and random ids with a high temperature,
-- where nothing that is guessed comes true. Both runs must give the same tokens.
local mtx = require("mtx")

local path = assert(arg[1], "which model?")
local n_tokens, repeats, n_streams = tonumber(arg[2] or 200), tonumber(arg[3] or 5), tonumber(arg[4] or 1)

local function read(name) return io.open(name):read("a") end
local text, code = read("README.md"):sub(1, 1500), read("lua/mtx/sched/fair.lua")

local model = assert(mtx.load(path, { ctx = 4096, n_parallel = n_streams }))
local n_vocab, noise = model:info().n_vocab, {}
for i = 1, 400 do noise[i] = (i * 7919 + 13) % n_vocab end

local TASKS = {
  { "rewrite", { prompt = "This text:\n\n" .. text .. "\n\nThe same text once more:\n\n" .. text:sub(1, 200) } },
  { "code", { prompt = code .. "\n\nThe same file, with better comments:\n\n-- SPDX" } },
  { "prose", { prompt = "Write a long story about a river and a small town in the mountains, with many surprises." } },
  { "noise", { tokens = noise, temperature = 3 } },
}

-- All streams to their ends -> tokens/s of all, ids, drafted, accepted
local function run(task, temperature, draft)
  local streams, ids, rate, drafted, accepted = {}, {}, 0, 0, 0
  for s = 1, n_streams do
    local request = { max_tokens = n_tokens, temperature = temperature, seed = s, ignore_eos = true, draft = draft }
    for k, v in pairs(task) do request[k] = v end
    streams[s] = assert(model:stream(request))
  end
  for s, stream in ipairs(streams) do
    local r = assert(stream:result())
    ids[s] = table.concat(r.ids, " ")
    rate = rate + r.timings.decode_per_second
    drafted, accepted = drafted + (r.timings.n_drafted or 0), accepted + (r.timings.n_draft_accepted or 0)
  end
  return rate, table.concat(ids, "\n"), drafted, accepted
end

local function median(list)
  table.sort(list)
  return list[#list // 2 + 1]
end

for _, task in ipairs(TASKS) do
  for _, temperature in ipairs(task[2].temperature and { task[2].temperature } or { 0, 0.8 }) do
    local plain, drafts, ids, same, drafted, accepted = {}, {}, nil, nil, 0, 0
    run(task[2], temperature, false)
    for i = 1, repeats do
      plain[i], ids = run(task[2], temperature, false)
      drafts[i], same, drafted, accepted = run(task[2], temperature, "lookup")
      assert(ids == same, "other tokens with drafts")
    end
    local a, b = median(plain), median(drafts)
    print(("%-8s temperature %-3g  %7.1f tokens/s, with drafts %7.1f: x%.2f  (%d of %d accepted)"):format(task[1], temperature, a, b, b / a, accepted, drafted))
  end
end
