-- SPDX-License-Identifier: MIT
-- The program as a user and as a script meets it: commands, exit codes, JSON forms,
-- errors on bad input.
local lu = require("luaunit")
local cjson = require("cjson")
local temp = require("temp")

local MTX = (os.getenv("BUILD") or "build") .. "/mtx "
local MODELS = os.getenv("MTX_MODELS_DIR") or "models"
local SMOL = MODELS .. "/SmolLM2-135M-Instruct.Q4_1.gguf"

local function run(command, input)
  local out, err = temp.path(), temp.path()
  local feed = input and ("printf '%b' '" .. input .. "' | ") or ""
  local _, _, code = os.execute(feed .. MTX .. command .. " >" .. out .. " 2>" .. err .. (input and "" or " </dev/null"))
  local function take(path)
    local file = assert(io.open(path, "rb"))
    local text = file:read("a")
    file:close()
    os.remove(path)
    return text
  end
  return take(out), take(err), code
end

TestCli = {}

function TestCli:test_help_lists_every_command_and_each_explains_itself()
  local out, _, code = run("--help")
  lu.assertEquals(code, 0)
  local n = 0
  for name in out:gmatch("\n  (%a+)  ") do
    n = n + 1
    local help, err, c = run(name .. " --help")
    lu.assertEquals({ c, err }, { 0, "" }, name)
    lu.assertStrContains(help, "usage: mtx " .. name)
  end
  lu.assertTrue(n >= 12, "only " .. n .. " commands")
end

function TestCli:test_usage_errors_exit_2()
  for _, command in ipairs({ "", "nonsense", "run", "info", "generate " .. SMOL, "run " .. SMOL .. " --no-such-option", "run " .. SMOL .. " hi --temp hot", "-e" }) do
    local _, err, code = run(command)
    lu.assertEquals(code, 2, command)
    lu.assertTrue(#err > 0, command)
  end
end

function TestCli:test_a_full_disk_is_a_failure()
  for _, command in ipairs({ "logits " .. SMOL .. " --tokens 504,3575 -o /dev/full", "logits " .. MODELS .. "/minilm.gguf --embeddings --tokens 101,102 -o /dev/full" }) do
    local _, err, code = run(command)
    lu.assertEquals(code, 1, command)
    lu.assertStrContains(err, "No space left on device")
  end
  local err = temp.path()
  for _, command in ipairs({ "tokenize " .. SMOL .. " hello", "info " .. SMOL, "config" }) do
    local _, _, code = os.execute(MTX .. command .. " >/dev/full 2>" .. err .. " </dev/null")
    local file <close> = assert(io.open(err))
    lu.assertEquals({ code, file:read("a") }, { 1, "mtx: the output could not be written whole\n" }, command)
  end
end

function TestCli:test_failures_exit_1_and_name_the_file()
  for _, command in ipairs({ "run no.gguf hi", "info no.gguf", "tokenize no.gguf hi", "generate no.gguf -p x", "bench no.gguf", "embed no.gguf x" }) do
    local _, err, code = run(command)
    lu.assertEquals(code, 1, command .. ": " .. err)
    lu.assertStrContains(err, "no.gguf", false, command)
    lu.assertEquals(select(2, err:gsub("\n", "")), 1, "one line: " .. err)
  end
  local _, err, code = run("run README.md hi")
  lu.assertEquals(code, 1)
  lu.assertStrContains(err, "README.md")
end

function TestCli:test_a_model_is_a_path_or_a_listed_name()
  local function ids(out) return cjson.decode(out).ids end
  local by_path = ids((run("tokenize " .. SMOL .. " hello --json")))
  lu.assertTrue(#by_path > 0)
  lu.assertEquals(ids((run("tokenize smollm2-135m-instruct.q4_1 hello --json"))), by_path)
  lu.assertEquals(cjson.decode((run("info SmolLM2-135M-Instruct.Q4_1 --json"))).architecture, "llama")
  local _, err, code = run("run no-such-model hi")
  lu.assertEquals(code, 1)
  lu.assertStrContains(err, "no-such-model")
  lu.assertStrContains(err, "mtx list")
end

function TestCli:test_run_takes_what_a_modelfile_sets()
  local dir = temp.dir()
  local file = assert(io.open(dir .. "/plain.modelfile", "w"))
  file:write("FROM ", assert(require("luv").fs_realpath(SMOL)), "\nTEMPLATE \"\"\"{{ messages[0].role }}|{{ messages[1].content }}|{{ messages[-1].content }}\"\"\"\nSYSTEM be brief\n",
    "MESSAGE user a river\nMESSAGE assistant runs\nPARAMETER temperature 0\nPARAMETER num_predict 3\nPARAMETER num_ctx 64\n")
  file:close()
  local function json_of(command)
    local out, err, code = run(command .. " --json")
    lu.assertEquals(code, 0, err)
    return cjson.decode(out)
  end
  local env = "MTX_MODELS_DIR=" .. dir .. " "
  local old = MTX
  MTX = env .. MTX
  local got = json_of("run plain 'the sea'")
  local more = json_of("run plain 'the sea' -n 5")
  MTX = old
  os.execute("rm -r " .. dir)
  local model = assert(require("mtx").load(SMOL, { template = "{{ messages[0].role }}|{{ messages[1].content }}|{{ messages[-1].content }}" }))
  local messages = { { role = "system", content = "be brief" }, { role = "user", content = "a river" }, { role = "assistant", content = "runs" },
    { role = "user", content = "the sea" } }
  local want = assert(model:generate({ messages = messages, temperature = 0, max_tokens = 3 }))
  model:close()
  lu.assertEquals({ got.text, got.n_generated, got.n_prompt, more.n_generated }, { want.text, 3, #want.prompt_ids, 5 })
end

-- What a Modelfile names beside it, what it has of a listed model, and every way it can be wrong.
function TestCli:test_create_makes_a_model_of_a_modelfile()
  local dir, uv = temp.dir(), require("luv")
  local function write(name, text) assert(io.open(dir .. "/" .. name, "w")):write(text):close() end
  assert(uv.fs_symlink(assert(uv.fs_realpath(SMOL)), dir .. "/weights.gguf"))
  assert(uv.fs_mkdir(dir .. "/models", tonumber("755", 8)))
  local here = " --models-dir " .. dir .. "/models"
  write("Modelfile", "FROM weights.gguf\nPARAMETER temperature 0\nPARAMETER num_predict 3\n")
  lu.assertEquals({ run("create calm -f " .. dir .. "/Modelfile" .. here) }, { "created calm:latest; `mtx run calm` runs it\n", "", 0 })
  write("child", "FROM calm\nSYSTEM be brief\nPARAMETER num_predict 2\n")
  lu.assertEquals(select(3, run("create brief --file=" .. dir .. "/child" .. here)), 0)
  lu.assertEquals(select(3, run("rm calm" .. here)), 0) -- it stands by itself
  lu.assertStrMatches((run("show brief" .. here)), ".*FROM calm:latest\nSYSTEM be brief\n.*")
  local out, err, code = run("run brief hi --json" .. here)
  lu.assertEquals({ code, err, cjson.decode(out).n_generated }, { 0, "", 2 })
  for text, says in pairs({
    ["FROM nothing\n"] = "FROM nothing: there is no such model (`mtx list`) or file", ["FROM brief\nADAPTER x.gguf\n"] = "ADAPTER x.gguf: there is no such file",
    ["FROM brief\nADAPTER weights.gguf\n"] = "this is no LoRA adapter", ["FROM child\n"] = "this is not a GGUF file", ["FROM brief\nPARAMETER warmth 1\n"] = 'line 2: unknown parameter "warmth"',
    ["FROM brief\nTEMPLATE {% if %}\n"] = "template", ["SYSTEM x\n"] = "a Modelfile needs FROM",
  }) do
    write("wrong", text)
    out, err, code = run("create x -f " .. dir .. "/wrong" .. here)
    lu.assertEquals({ out, code }, { "", 1 }, text)
    lu.assertStrContains(err, "mtx create: " .. dir .. "/wrong: ", false, text)
    lu.assertStrContains(err, says)
  end
  lu.assertStrContains(select(2, run("create x" .. here)), "mtx create: Modelfile: No such file or directory; give the Modelfile with -f FILE")
  lu.assertEquals(select(3, run("create 'a b' -f " .. dir .. "/Modelfile" .. here)), 2)
  os.execute("rm -r " .. dir)
end

-- A name whose description cannot be used says why; one that is nowhere says where to look.
function TestCli:test_a_name_that_cannot_be_run_says_why()
  local dir = temp.dir()
  for name, text in pairs({ bad = "FROM x\nPARAMETER warmth 1\n", lost = "FROM nothing\n" }) do assert(io.open(dir .. "/" .. name .. ".Modelfile", "w")):write(text):close() end
  for command, says in pairs({
    ["run bad hi"] = dir .. '/bad.Modelfile: line 2: unknown parameter "warmth"', ["embed lost hi"] = dir .. "/lost.Modelfile: FROM nothing: there is no such model or file",
    ["run other hi"] = "other is not here; `mtx list` shows the models there are, `mtx pull other` looks for it in Ollama's registry",
  }) do
    local _, err, code = run(command .. " --models-dir " .. dir)
    lu.assertEquals({ err, code }, { "mtx: " .. says .. "\n", 1 })
  end
  os.execute("rm -r " .. dir)
  lu.assertEquals({ select(2, run("run other hi --models-dir " .. dir)) }, { "mtx: there is no folder " .. dir .. "\n", 1 })
end

-- Who brings JSON or YAML learns what a config file is.
function TestCli:test_a_config_file_of_another_kind_says_its_form()
  for _, text in ipairs({ '{"port": 1}', "port: 1", "return 5", "return { port = os.getenv('X') }" }) do
    local path = temp.file(text)
    local _, err, code = run("config --config " .. path)
    lu.assertEquals(code, 2, text)
    lu.assertStrMatches(err, "mtx config: " .. path:gsub("%p", "%%%0") .. ": [^\n]*; it is a Lua table: return { port = 8080 }\n", nil, nil, text)
  end
end

function TestCli:test_list_without_a_folder_says_what_makes_one()
  lu.assertEquals({ run("list --models-dir no-such-folder") }, { "", "mtx list: there is no folder no-such-folder; give one with --models-dir, or `mtx pull` a model\n", 1 })
end

function TestCli:test_words_of_other_programs()
  lu.assertEquals((run("ls --models-dir " .. MODELS)), (run("list --models-dir " .. MODELS)))
  lu.assertEquals((run("-v")), (run("--version")))
  lu.assertEquals((run("help ls")), (run("list --help")))
  lu.assertStrContains(select(2, run("keys add x infer,chat --keys-file " .. temp.path())), "unknown scope chat; there are infer, embed and admin")
end

function TestCli:test_serve_refuses_a_models_folder_that_is_not_there()
  local _, err, code = run("serve --port 0 --models-dir no-such-folder")
  lu.assertEquals({ err, code }, { "mtx serve: there is no folder no-such-folder; give one with --models-dir\n", 1 })
end

function TestCli:test_script_and_line()
  lu.assertEquals({ run("-e 'print(#arg, ...)' a b") }, { "2\ta\tb\n", "", 0 })
  local path = temp.path(".lua")
  local file = assert(io.open(path, "w"))
  file:write("print(arg[0] ~= nil, ...) return 3")
  file:close()
  lu.assertEquals({ run(path .. " x y") }, { "true\tx\ty\n", "", 3 })
  file = assert(io.open(path, "w"))
  file:write("error('broken')")
  file:close()
  local _, err, code = run(path)
  lu.assertEquals(code, 1)
  lu.assertStrContains(err, "broken")
  os.remove(path)
end

-- Handles that are closing and work under way when the script ends would be touched after they are freed.
function TestCli:test_a_script_may_leave_the_event_loop_busy()
  local line = [[local uv = require("luv"); uv.new_timer():close(); uv.spawn("sleep", { args = { "0.1" } }, function() end):close()
    uv.new_timer():start(100000, 0, function() end); uv.queue_work(uv.new_work(function() return 1 end, function() end))]]
  for _, ending in ipairs({ "", "; return 3", "; error('gone', 0)" }) do
    for _ = 1, 3 do
      local _, err, code = run(("-e '%s %s'"):format(line, (ending:gsub("'", '"'))))
      lu.assertEquals({ code, err:match("^[^\n]*") }, { ending == "" and 0 or ending:find("3") and 3 or 1, ending:find("error") and "mtx: gone" or "" }, ending)
    end
  end
end

function TestCli:test_a_folder_where_a_file_belongs_is_one_clear_line()
  for _, command in ipairs({
    "run tests hi", "perplexity " .. SMOL .. " tests", "template tests --messages tests", "template --batch tests", "tokenize " .. SMOL .. " --file tests",
    "tokenize " .. SMOL .. " --batch tests", "grammar check tests", "keys list --keys-file tests", "keys add x --keys-file tests", "stop --pid-file tests",
    "serve --port 0 --script tests", "serve --port 0 --policy tests", "serve --port 0 --keys-file tests", "serve --port 0 --config tests",
    "serve --port 0 --files-dir README.md --models-dir tests", "serve --port 0 --slot-save-path README.md --models-dir tests",
  }) do
    local _, err, code = run(command)
    lu.assertTrue(code == 1 or code == 2, command)
    lu.assertEquals(select(2, err:gsub("\n", "")), 1, command .. ": " .. err)
    lu.assertStrContains(err, command:find("README.md", 1, true) and "README.md" or "tests", false, command)
  end
end

function TestCli:test_values_that_no_option_has_are_wrong_usage()
  for command, says in pairs({
    ["run " .. SMOL .. " hi --cpu avx9"] = "--cpu must be one of scalar,", ["run " .. SMOL .. " hi --kv-type q4"] = "--kv-type must be one of f32,",
    ["embed " .. SMOL .. " hi --pooling most"] = "--pooling must be one of mean, cls, last,", ["run " .. SMOL .. " hi --samplers foo"] = "no sampler is called 'foo'",
    ["generate " .. SMOL .. " -p x --mirostat 7"] = "mirostat: 7 is out of range", ["serve --port 0 --cpu avx9"] = "cpu must be one of auto, scalar,",
    ["serve --port 0 --kv-type q4"] = "mtx serve: --kv-type must be one of f32,", ["serve --port 0 --log-level loud"] = "--log-level must be one of error,",
    ["serve --port 0 --device gpu"] = "device must be one of cpu",
  }) do
    local _, err, code = run(command)
    lu.assertEquals(code, 2, command .. ": " .. err)
    lu.assertStrContains(err, says)
    lu.assertNil(err:find("traceback", 1, true), err)
  end
end

-- A value that is none, one out of its range, a word too many: never taken for something else.
function TestCli:test_values_out_of_range_and_words_too_many_are_wrong_usage()
  for command, says in pairs({
    ["logits " .. SMOL .. " -o /dev/null --tokens 1,2,x"] = "--tokens needs token ids (1,2,3); 'x' is none",
    ["generate " .. SMOL .. " --tokens x,1"] = "--tokens needs token ids (1,2,3); 'x' is none", ["detokenize " .. SMOL .. " 1,x"] = "'x' is no token id",
    ["logits " .. SMOL .. " -o /dev/null --tokens ''"] = "--tokens names no token", ["logits " .. SMOL .. " -o /dev/null --tokens 1 --chunk 0"] = "--chunk must be at least 1, not 0",
    ["generate " .. SMOL .. " -p x -n -1"] = "-n must be at least 0, not -1", ["run " .. SMOL .. " hi -n -1"] = "-n must be at least 0",
    ["run " .. SMOL .. " hi -c -1"] = "-c must be 0 to 2147483647, not -1", ["run " .. SMOL .. " hi --ctx 99999999999"] = "--ctx must be 0 to 2147483647, not 99999999999",
    ["generate " .. SMOL .. " -p x --threads=-3"] = "--threads must be at least 0", ["generate " .. SMOL .. " -p x --logprobs 1001"] = "--logprobs must be 0 to 1000",
    ["bench " .. SMOL .. " -p -5"] = "-p must be at least 0", ["bench " .. SMOL .. " -r 0"] = "-r must be at least 1", ["bench " .. SMOL .. " -p 0 -n 0"] = "nothing to measure",
    ["generate " .. SMOL .. " -p x more words"] = "unexpected word 'more'", ["info " .. SMOL .. " more"] = "unexpected word 'more'",
    ["info " .. SMOL .. " --metadata general.name more"] = "unexpected word 'more'", ["logits " .. SMOL .. " more -o /dev/null --tokens 1"] = "unexpected word 'more'",
    ["bench " .. SMOL .. " more"] = "unexpected word 'more'", ["perplexity " .. SMOL .. " README.md more"] = "unexpected word 'more'",
    ["repl " .. SMOL .. " more"] = "unexpected word 'more'", ["template templates/chatml.jinja more"] = "unexpected word 'more'",
  }) do
    local out, err, code = run(command)
    lu.assertEquals({ out, code }, { "", 2 }, command .. ": " .. err)
    lu.assertStrContains(err, says, false, command)
  end
end

-- {} and [] are different things to whoever reads them.
function TestCli:test_empty_lists_stay_lists()
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

function TestCli:test_logits_to_standard_output()
  local path = temp.path()
  lu.assertEquals(select(3, run("logits " .. SMOL .. " --tokens 504,3575 -o " .. path)), 0)
  local file = assert(io.open(path, "rb"))
  local rows = file:read("a")
  file:close()
  os.remove(path)
  lu.assertEquals(#rows, 2 * 49152 * 4)
  lu.assertTrue((run("logits " .. SMOL .. " --tokens '[504, 3575]' -o -")) == rows)
end

function TestCli:test_a_text_beyond_the_context_names_file_and_option()
  local path = temp.file(("word "):rep(100))
  local _, err, code = run("perplexity " .. SMOL .. " " .. path .. " -c 64")
  os.remove(path)
  lu.assertEquals({ err, code }, { "mtx: " .. path .. ": the text has 101 tokens, the context is 64 tokens; shorten the text or raise --ctx\n", 1 })
end

function TestCli:test_an_answer_that_fills_the_context_says_so()
  local _, err, code = run("run " .. SMOL .. " 'The sky is' --raw --temp 0 -c 32 --logit-bias 0=-inf --logit-bias 2=-inf")
  lu.assertEquals({ err, code }, { "[the answer ends where the context of 32 tokens is full; --ctx N makes it larger]\n", 0 })
  lu.assertEquals({ select(2, run("run " .. SMOL .. " 'The sky is' --raw --temp 0 -c 32 -n 4")) }, { "", 0 }) -- asked for
end

-- Standard output has a buffer, standard error none.
function TestCli:test_figures_stand_behind_the_answer_in_one_file()
  local path = temp.path()
  os.execute(MTX .. "run " .. SMOL .. " 'The sky is' --raw --temp 0 -n 4 --stats >" .. path .. " 2>&1 </dev/null")
  local file = assert(io.open(path))
  local text = file:read("a")
  file:close()
  os.remove(path)
  lu.assertStrMatches(text, "[^\n]+\n%[prompt 3 tokens [^\n]*%]\n")
end

function TestCli:test_misspelt_commands_and_names_are_met_halfway()
  for word, meant in pairs({ rn = "run", srve = "serve", tokenise = "tokenize", lsit = "list", ebmed = "embed" }) do
    lu.assertStrContains(select(2, run(word)), "did you mean " .. meant .. "?")
  end
  for _, word in ipairs({ "push", "x", "quantize" }) do lu.assertNil(select(2, run(word)):find("did you mean", 1, true), word) end
  local _, err, code = run("run " .. MODELS .. "/minilm.gguf hi")
  lu.assertEquals({ err, code }, { "mtx: this model gives embeddings, no text; use embed (in the shell `mtx embed`)\n", 1 })
end

function TestCli:test_misspelt_options_are_met_halfway()
  for command, says in pairs({
    ["run x --temperature 1"] = "unknown option --temperature; did you mean --temp?", ["run x --thread=2"] = "did you mean --threads?",
    ["run x --max-tokens 4"] = "unknown option --max-tokens; did you mean --n?", ["run x --ctx-size=100"] = "did you mean --ctx?", ["run x -s 1"] = "did you mean --seed?",
    ["run -m x.gguf hi"] = "unknown option -m; the model is a word: mtx run MODEL PROMPT", ["run x --prompt hi"] = "the prompt is a word behind the model",
    ["run x --repeat 1"] = "unknown option --repeat\n", ["serve --prot 1"] = "did you mean --port?", ["serve --frob"] = "; `mtx config` lists them",
    ["serve --port abc"] = "mtx serve: --port: a whole number is needed, not 'abc'\n", ["serve --parallel 0"] = "mtx serve: --parallel must be",
    ["grammar --schema x.json"] = "write `mtx grammar check FILE.gbnf` or `mtx grammar check --schema FILE.json`",
    ["show"] = "a name is needed", ["cp a"] = "2 names are needed", ["serve m.gguf"] = "unexpected word m.gguf; models come from the folder --models-dir DIR", ["list m"] = "--models-dir DIR",
  }) do
    local _, err, code = run(command)
    lu.assertStrContains(err, says)
    lu.assertEquals(code, 2, command)
  end
end

function TestCli:test_errors_say_what_comes_next()
  for command, says in pairs({
    ["serve --insecure --port 0 --host 192.0.2.1"] = "cannot listen on 192.0.2.1, port 0: ", 
    ["ps --port 1"] = "no server answers at 127.0.0.1:1 (ECONNREFUSED); start one with `mtx serve`",
    ["run " .. SMOL .. " hi --lora " .. MODELS .. "/minilm.gguf"] = "general.type: the key is not there; this file is no adapter",
    ["run tests/golden/hf/llama hi"] = "tokenizer.json",
    ["-e 'local mtx = require \"mtx\"; mtx.load()'"] = "(command line):1: mtx.load needs the path of a model, not nil",
  }) do
    local _, err, code = run(command)
    lu.assertStrContains(err, says)
    lu.assertEquals(code, 1, command)
  end
end

function TestCli:test_stop_leaves_what_is_no_pid_file()
  local path = temp.file("precious\n")
  local _, err, code = run("stop --pid-file " .. path)
  lu.assertEquals(code, 1)
  lu.assertStrContains(err, "this is no PID file")
  file = assert(io.open(path))
  lu.assertEquals(file:read("a"), "precious\n")
  file:close()
  os.remove(path)
end

-- The timer fires at the first look at the event loop: that must come before the first token.
function TestCli:test_ctrl_c_ends_the_reading_of_a_long_prompt()
  local _, err, code = run([[-e 'local uv = require("luv") uv.new_timer():start(0, 0, function() uv.kill(uv.os_getpid(), "sigint") end)
    return require("mtx.cli.run").run({ "]] .. SMOL .. [[", ("sea "):rep(3000), "-n", "8", "--stats" })']])
  lu.assertEquals(code, 0)
  lu.assertStrContains(err, "answer 0 tokens")
end

function TestCli:test_a_chats_next_turn_goes_on_from_the_last_one()
  local _, err, code = run([[-e 'local uv = require("luv") local kind = uv.guess_handle
    uv.guess_handle = function(fd) return fd == 0 and "tty" or kind(fd) end
    return require("mtx.cli.run").run({ "]] .. SMOL .. [[", "--stats", "-n", "8" })']], "Hello\\nAnd now?\\n")
  lu.assertEquals(code, 0, err)
  local first, second = err:match("prompt %d+ tokens %((%d+) cached.*prompt %d+ tokens %((%d+) cached")
  lu.assertEquals(first, "0", err)
  lu.assertTrue(tonumber(second) > 30, err)
end

-- The chat's own commands, with a model that is never asked.
function TestCli:test_chat_commands()
  local chat = [[-e 'require("mtx.cli.chat").run({ info = function() return {} end }, { values = {}, base = { temperature = 1 } })']]
  local out, err, code = run(chat, "/?\\n/set foo 1\\n/set temp 0.5\\n/set top-k 3\\n/set mirostat 7\\n/set n 4\\n/set n -1\\n/load\\n/load tests\\n/load README.md\\n/show\\n/bye\\n")
  lu.assertEquals({ err, code }, { "", 0 })
  lu.assertStrMatches(out:match("leaves%.\n(.*)$"), "/set NAME VALUE .*/bye .*")
  lu.assertEquals(out:match("stops an answer%.\n(.*)$"), table.concat({
    "no number is called foo; `mtx run --help` lists them", "temperature 0.5", "top_k 3", "mirostat: 7 is out of range; it must be between 0 and 2", "n 4",
    "n must be a whole number from 0", "usage: /load FILE", "tests: Is a directory",
    "README.md: not a saved conversation: invalid JSON: expected a value at line 1 column 1", "temperature 0.5", "top_k 3", "n 4", "" }, "\n"))
end

function TestCli:test_ctrl_c_ends_what_the_repl_runs_and_not_the_repl()
  local interrupt = [[local uv = require("luv") uv.kill(uv.os_getpid(), "sigint") while true do end]]
  local out, err, code = run("repl", interrupt .. "\\n1 + 1\\n" .. interrupt .. "\\n2 + 2\\n")
  lu.assertEquals({ out, code }, { "2\n4\n", 0 })
  lu.assertEquals(err, "interrupted\ninterrupted\n")
end

-- What lies below the input in the stack is the prompt's own machinery.
function TestCli:test_repl_shows_the_stack_of_the_input_alone()
  local _, err = run("repl", [[pcall(print); (function() error("no") end)()\n]])
  lu.assertEquals(err, "repl:1: no\nstack traceback:\n\t[C]: in function 'error'\n\trepl:1: in function <repl:1>\n\trepl:1: in main chunk\n")
end

function TestCli:test_repl_prints_values()
  local out, _, code = run("repl", "1 + 1\\n{ 1, x = \"y\" }\\nfor i = 1, 2 do\\nprint(i)\\nend\\nmtx.tensor({ 1, 2 })\\n")
  lu.assertEquals(code, 0)
  lu.assertEquals(out, '2\n{ 1, x = "y" }\n1\n2\ntensor 1 x 2 {1, 2}\n')
end

-- What `help` shows works as it stands.
function TestCli:test_repl_help()
  local out = run("repl", "help\\n")
  for _, line in ipairs({ 'assert(mtx.load("FILE.gguf"))', "model:generate{ prompt = \"...\", max_tokens = 20 }",
    's = model:session(); l = s:eval(model:tokenize("..."))', "l:argmax()", "l:topk(5)", "l:softmax()" }) do
    lu.assertStrContains(out, line)
    if not line:find("FILE", 1, true) then
      local _, err, code = run("-e '" .. ("model = assert(mtx_load(...)); s = model:session(); l = s:eval({ 1 }); "):gsub("mtx_load", 'require("mtx").load') ..
        (line:find("^s =") and line or "local _ = " .. line) .. "' " .. SMOL)
      lu.assertEquals({ code, err }, { 0, "" }, line)
    end
  end
  local call = out:match("(mtx%.quantize(%b{}))")
  local _, err = run("-e 'mtx = require(\"mtx\"); print(" .. call .. ")'")
  lu.assertEquals(err, "")
end

-- A file that does not name its type goes by its tensors.
function TestCli:test_list_names_the_quantization()
  local listed = run("list --models-dir models")
  for name, type in pairs({ minilm = "F32", ["gemma3-270m-q4_k_m"] = "Q4_K_M", ["SmolLM2-135M-Instruct.Q4_1"] = "Q4_1" }) do
    lu.assertStrMatches((listed:match("\n(" .. name:gsub("%p", "%%%0") .. ":latest[^\n]*)")), ".* " .. type .. " .*")
  end
end

function TestCli:test_info_json()
  local info = cjson.decode((run("info " .. SMOL .. " --json")))
  lu.assertEquals({ info.architecture, info.layers, info.vocabulary, info.context_length }, { "llama", 30, 49152, 8192 })
  local out = run("info " .. SMOL .. " --metadata general.architecture")
  lu.assertEquals(out, "llama\n")
  lu.assertStrContains((run("info " .. SMOL .. " --tensors")), "blk.0.attn_q.weight")
end

function TestCli:test_tokenize_and_back()
  local t = cjson.decode((run("tokenize " .. SMOL .. " 'Hello world' --json")))
  lu.assertEquals(t.pieces, { "Hello", " world" })
  lu.assertEquals((run(("detokenize %s %d,%d"):format(SMOL, t.ids[1], t.ids[2]))):gsub("\n$", ""), "Hello world")
end

function TestCli:test_generate_json()
  local out, err, code = run("generate " .. SMOL .. " -p 'The capital of France is' -n 6 --temp 0 --logprobs 2 --json")
  lu.assertEquals({ code, err }, { 0, "" })
  local g = cjson.decode(out)
  lu.assertEquals({ #g.prompt_ids, #g.ids, g.finish_reason, #g.logprobs }, { 5, 6, "length", 6 })
  lu.assertStrContains(g.text, "Paris")
  lu.assertTrue(g.timings.decode_per_second > 0)
  local again = cjson.decode((run(("generate %s --tokens %s -n 6 --temp 0 --json"):format(SMOL, table.concat(g.prompt_ids, ",")):gsub("%.0", ""))))
  lu.assertEquals(again.ids, g.ids)
end

function TestCli:test_generate_beams()
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

function TestCli:test_logits_equal_in_chunks_and_scalar_agrees()
  local a, b = temp.path(), temp.path()
  lu.assertEquals(select(3, run("logits " .. SMOL .. " --tokens 504,3575,282 -o " .. a)), 0)
  lu.assertEquals(select(3, run("logits " .. SMOL .. " --tokens 504,3575,282 --chunk 1 --threads 1 --cpu scalar -o " .. b)), 0)
  local x, y = assert(io.open(a, "rb")):read("a"), assert(io.open(b, "rb")):read("a")
  lu.assertEquals(#x, 3 * 49152 * 4)
  lu.assertTrue(x == y, "whole on the best tier and token by token in plain C give other bits")
  os.remove(a)
  os.remove(b)
end

function TestCli:test_run_streams_pipes_and_reports()
  local out, err, code = run("run " .. SMOL .. " --temp 0 -n 8 --stats", "What is the capital of Italy?")
  lu.assertEquals(code, 0)
  lu.assertTrue(#out > 3)
  lu.assertStrContains(err, "tokens/s")
  local raw = run("run " .. SMOL .. " 'The capital of France is' --raw --temp 0 -n 3")
  lu.assertStrContains(raw, "Paris")
end

function TestCli:test_bench_json()
  local rows = cjson.decode((run("bench " .. SMOL .. " -p 16 -n 4 -r 1 --json")))
  lu.assertEquals({ rows[1].test, rows[2].test }, { "pp16", "tg4" })
  for _, r in ipairs(rows) do lu.assertTrue(r.tokens_per_second > 0 and r.threads >= 1 and #r.tier > 0) end
end

function TestCli:test_perplexity_json()
  local path = temp.file("The cat sat on the mat and looked at the moon.")
  local p = cjson.decode((run("perplexity " .. SMOL .. " " .. path .. " --json")))
  lu.assertTrue(p.ppl > 1 and p.ppl < 200 and p.n_tokens > 5)
  lu.assertAlmostEquals(math.exp(p.nll), p.ppl, 1e-6)
  os.remove(path)
end

function TestCli:test_template()
  local messages = temp.file('[{"role":"user","content":"Hi <|im_end|>"}]')
  local out, err, code = run("template templates/chatml.jinja --messages " .. messages)
  lu.assertEquals({ out, err, code }, { "<|im_start|>user\nHi <|im_end|><|im_end|>\n", "", 0 })
  local tokens = run("template " .. SMOL .. " --messages " .. messages .. " --tokens")
  lu.assertEquals(select(2, tokens:gsub('%* "<|im_end|>"', "")), 2) -- the user's own stays plain text
  local refusing = temp.file("{{ raise_exception('no thanks') }}", ".jinja")
  out, err, code = run("template " .. refusing .. " --messages " .. messages)
  lu.assertEquals({ out, err, code }, { "", "no thanks\n", 1 })
  local cases = temp.file(('{"template_file":"%s","messages":[],"tools":null,"kwargs":{}}\n{"template_file":"templates/chatml.jinja","messages":[{"role":"a","content":"b"}],"kwargs":{"add_generation_prompt":true}}\nx\n'):format(refusing))
  lu.assertEquals((run("template --batch " .. cases)),
    '{"error":"no thanks"}\n{"text":"<|im_start|>a\\nb<|im_end|>\\n<|im_start|>assistant\\n"}\n{"error":"the line is no JSON object with a template_file"}\n')
end

function TestCli:test_threads_beyond_cores_still_answer()
  local out, _, code = run("generate " .. SMOL .. " -p 'One two three' -n 4 --temp 0 --threads 16")
  lu.assertEquals(code, 0)
  lu.assertEquals(out, (run("generate " .. SMOL .. " -p 'One two three' -n 4 --temp 0 --threads 1")))
end
