-- SPDX-License-Identifier: MIT
-- What the commands print of a model: texts, JSON forms, logits, figures.
local lu = require("luaunit")
local cjson = require("cjson")
local temp = require("temp")
local run = require("cli_run")

local MTX = (os.getenv("BUILD") or "build") .. "/mtx "
local MODELS = os.getenv("MTX_MODELS_DIR") or "models"
local SMOL = MODELS .. "/SmolLM2-135M-Instruct.Q4_1.gguf"

TestAnswers = {}

-- {} and [] are different things to whoever reads them.
function TestAnswers:test_empty_lists_stay_lists()
  lu.assertStrContains((run("generate " .. SMOL .. " -p x -n 0 --logprobs 1 --json")), '"ids":[],')
  lu.assertStrContains((run("generate " .. SMOL .. " -p x -n 0 --logprobs 1 --json")), '"logprobs":[]')
  lu.assertStrContains((run("generate " .. SMOL .. " -p x -n 1 --temp 0 --logprobs 0 --json")), '"top":[]')
  lu.assertEquals((run("tokenize " .. SMOL .. " '' --json")), '{"ids":[],"pieces":[]}\n')
  local path = temp.path()
  run([[-e 'require("mtx.cli.chat").run({ info = function() return {} end }, { values = {}, base = {} })']], "/save " .. path .. "\\n")
  local file = assert(io.open(path))
  lu.assertEquals(file:read("a"), '{"messages":[]}\n')
  file:close()
  os.remove(path)
end

function TestAnswers:test_logits_to_standard_output()
  local path = temp.path()
  lu.assertEquals(select(3, run("logits " .. SMOL .. " --tokens 504,3575 -o " .. path)), 0)
  local file = assert(io.open(path, "rb"))
  local rows = file:read("a")
  file:close()
  os.remove(path)
  lu.assertEquals(#rows, 2 * 49152 * 4)
  lu.assertTrue((run("logits " .. SMOL .. " --tokens '[504, 3575]' -o -")) == rows)
end

function TestAnswers:test_a_text_beyond_the_context_names_file_and_option()
  local path = temp.file(("word "):rep(100))
  local _, err, code = run("perplexity " .. SMOL .. " " .. path .. " -c 64")
  os.remove(path)
  lu.assertEquals({ err, code }, { "mtx: " .. path .. ": the text has 101 tokens, the context is 64 tokens; shorten the text or raise --ctx\n", 1 })
end

function TestAnswers:test_an_answer_that_fills_the_context_says_so()
  local _, err, code = run("run " .. SMOL .. " 'The sky is' --raw --temp 0 -c 32 --logit-bias 0=-inf --logit-bias 2=-inf")
  lu.assertEquals({ err, code }, { "[the answer ends where the context of 32 tokens is full; --ctx N makes it larger]\n", 0 })
  lu.assertEquals({ select(2, run("run " .. SMOL .. " 'The sky is' --raw --temp 0 -c 32 -n 4")) }, { "", 0 }) -- asked for
end

-- Standard output has a buffer, standard error none.
function TestAnswers:test_figures_stand_behind_the_answer_in_one_file()
  local path = temp.path()
  os.execute(MTX .. "run " .. SMOL .. " 'The sky is' --raw --temp 0 -n 4 --stats >" .. path .. " 2>&1 </dev/null")
  local file = assert(io.open(path))
  local text = file:read("a")
  file:close()
  os.remove(path)
  lu.assertStrMatches(text, "[^\n]+\n%[prompt 3 tokens [^\n]*%]\n")
end

function TestAnswers:test_info_json()
  local info = cjson.decode((run("info " .. SMOL .. " --json")))
  lu.assertEquals({ info.architecture, info.layers, info.vocabulary, info.context_length }, { "llama", 30, 49152, 8192 })
  local out = run("info " .. SMOL .. " --metadata general.architecture")
  lu.assertEquals(out, "llama\n")
  lu.assertStrContains((run("info " .. SMOL .. " --tensors")), "blk.0.attn_q.weight")
end

function TestAnswers:test_tokenize_and_back()
  local t = cjson.decode((run("tokenize " .. SMOL .. " 'Hello world' --json")))
  lu.assertEquals(t.pieces, { "Hello", " world" })
  lu.assertEquals((run(("detokenize %s %d,%d"):format(SMOL, t.ids[1], t.ids[2]))):gsub("\n$", ""), "Hello world")
end

function TestAnswers:test_generate_json()
  local out, err, code = run("generate " .. SMOL .. " -p 'The capital of France is' -n 6 --temp 0 --logprobs 2 --json")
  lu.assertEquals({ code, err }, { 0, "" })
  local g = cjson.decode(out)
  lu.assertEquals({ #g.prompt_ids, #g.ids, g.finish_reason, #g.logprobs }, { 5, 6, "length", 6 })
  lu.assertStrContains(g.text, "Paris")
  lu.assertTrue(g.timings.decode_per_second > 0)
  local again = cjson.decode((run(("generate %s --tokens %s -n 6 --temp 0 --json"):format(SMOL, table.concat(g.prompt_ids, ",")):gsub("%.0", ""))))
  lu.assertEquals(again.ids, g.ids)
end

function TestAnswers:test_generate_beams()
  local base = "generate " .. SMOL .. " -p 'The capital of France is' -n 6"
  local out, err, code = run(base .. " --beams 3 --n-best 2 --json")
  lu.assertEquals({ code, err }, { 0, "" })
  local g = cjson.decode(out)
  lu.assertEquals({ #g.prompt_ids, #g.beams }, { 5, 2 })
  lu.assertTrue(g.beams[1].score > g.beams[2].score)
  lu.assertEquals((run(base .. " --beams 3")), g.beams[1].text .. "\n")
  for _, bad in ipairs({ "--beams 3 --temp 1", "--beams 0", "--beams 40", "--beams 2 --n-best 3", "--beams 2 -n 0", "--beams 2 --n-best 0", "--beams 2 --length-penalty nan", "--beams 2 --length-penalty 1e9", "--n-best 2", "--length-penalty 1", "--beams 2 --stop x", "--beams 2 --logprobs 1" }) do
    out, err, code = run(base .. " " .. bad)
    lu.assertEquals({ out, code }, { "", 2 }, bad)
    lu.assertTrue(#err > 0, bad)
  end
end

function TestAnswers:test_logits_equal_in_chunks_and_scalar_agrees()
  local a, b = temp.path(), temp.path()
  lu.assertEquals(select(3, run("logits " .. SMOL .. " --tokens 504,3575,282 -o " .. a)), 0)
  lu.assertEquals(select(3, run("logits " .. SMOL .. " --tokens 504,3575,282 --chunk 1 --threads 1 --cpu scalar -o " .. b)), 0)
  local x, y = assert(io.open(a, "rb")):read("a"), assert(io.open(b, "rb")):read("a")
  lu.assertEquals(#x, 3 * 49152 * 4)
  lu.assertTrue(x == y, "whole on the best tier and token by token in plain C give other bits")
  os.remove(a)
  os.remove(b)
end

function TestAnswers:test_run_streams_pipes_and_reports()
  local out, err, code = run("run " .. SMOL .. " --temp 0 -n 8 --stats", "What is the capital of Italy?")
  lu.assertEquals(code, 0)
  lu.assertTrue(#out > 3)
  lu.assertStrContains(err, "tokens/s")
  local raw = run("run " .. SMOL .. " 'The capital of France is' --raw --temp 0 -n 3")
  lu.assertStrContains(raw, "Paris")
end

function TestAnswers:test_bench_json()
  local rows = cjson.decode((run("bench " .. SMOL .. " -p 16 -n 4 -r 1 --json")))
  lu.assertEquals({ rows[1].test, rows[2].test }, { "pp16", "tg4" })
  for _, r in ipairs(rows) do lu.assertTrue(r.tokens_per_second > 0 and r.threads >= 1 and #r.tier > 0) end
end

function TestAnswers:test_perplexity_json()
  local path = temp.file("The cat sat on the mat and looked at the moon.")
  local p = cjson.decode((run("perplexity " .. SMOL .. " " .. path .. " --json")))
  lu.assertTrue(p.ppl > 1 and p.ppl < 200 and p.n_tokens > 5)
  lu.assertAlmostEquals(math.exp(p.nll), p.ppl, 1e-6)
  os.remove(path)
end

function TestAnswers:test_template()
  local messages = temp.file('[{"role":"user","content":"Hi <|im_end|>"}]')
  local out, err, code = run("template templates/chatml.jinja --messages " .. messages)
  lu.assertEquals({ out, err, code }, { "<|im_start|>user\nHi <|im_end|><|im_end|>\n", "", 0 })
  local tokens = run("template " .. SMOL .. " --messages " .. messages .. " --tokens")
  lu.assertEquals(select(2, tokens:gsub('%* "<|im_end|>"', "")), 2) -- the user's own stays plain text
  local refusing = temp.file("{{ raise_exception('no thanks') }}", ".jinja")
  out, err, code = run("template " .. refusing .. " --messages " .. messages)
  lu.assertEquals({ out, err, code }, { "", "no thanks\n", 1 })
  for name, wrong in pairs({ messages = '{"role":"user","content":"Hi"}', tools = '{"type":"function"}', kwargs = "[1]" }) do
    local file = temp.file(wrong, ".json")
    out, err, code = run(("template templates/chatml.jinja %s --%s %s"):format(name == "messages" and "" or "--messages " .. messages, name, file))
    lu.assertEquals({ out, err, code }, { "", ("mtx: %s: --%s needs a JSON %s\n"):format(file, name, name == "kwargs" and "object" or "list"), 1 })
  end
  local cases = temp.file(('{"template_file":"%s","messages":[],"tools":null,"kwargs":{}}\n{"template_file":"templates/chatml.jinja","messages":[{"role":"a","content":"b"}],"kwargs":{"add_generation_prompt":true}}\nx\n'):format(refusing))
  lu.assertEquals((run("template --batch " .. cases)),
    '{"error":"no thanks"}\n{"text":"<|im_start|>a\\nb<|im_end|>\\n<|im_start|>assistant\\n"}\n{"error":"the line is no JSON object with a template_file"}\n')
end

function TestAnswers:test_threads_beyond_cores_still_answer()
  local one = run("generate " .. SMOL .. " -p 'One two three' -n 4 --temp 0 --threads 1")
  for _, threads in ipairs({ 16, 1000000, 2147483647 }) do
    local out, _, code = run("generate " .. SMOL .. " -p 'One two three' -n 4 --temp 0 --threads " .. threads)
    lu.assertEquals({ out, code }, { one, 0 })
  end
end
