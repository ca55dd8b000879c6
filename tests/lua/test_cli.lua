-- SPDX-License-Identifier: MIT
-- The program as a user and as a script meets it: commands, exit codes, errors on bad input.
local lu = require("luaunit")
local temp = require("temp")
local run = require("cli_run")

local MTX = (os.getenv("BUILD") or "build") .. "/mtx "
local MODELS = os.getenv("MTX_MODELS_DIR") or "models"
local SMOL = MODELS .. "/SmolLM2-135M-Instruct.Q4_1.gguf"

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

function TestCli:test_words_of_other_programs()
  lu.assertEquals((run("ls --models-dir " .. MODELS)), (run("list --models-dir " .. MODELS)))
  lu.assertEquals((run("-v")), (run("--version")))
  lu.assertEquals((run("help ls")), (run("list --help")))
  lu.assertStrContains(select(2, run("keys add x infer,chat --keys-file " .. temp.path())), "unknown scope chat; there are infer, embed and admin")
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

function TestCli:test_misspelt_commands_and_names_are_met_halfway()
  for word, meant in pairs({ rn = "run", srve = "serve", tokenise = "tokenize", lsit = "list", ebmed = "embed" }) do
    lu.assertStrContains(select(2, run(word)), "did you mean " .. meant .. "?")
  end
  for _, word in ipairs({ "push", "x", "quantize" }) do lu.assertNil(select(2, run(word)):find("did you mean", 1, true), word) end
  local _, err, code = run("run " .. MODELS .. "/minilm.gguf hi")
  lu.assertEquals({ err, code }, { "mtx: this model gives embeddings, no text; use embed (in the shell `mtx embed`)\n", 1 })
end

function TestCli:test_misspelt_variables_are_said()
  local out, err, code = run("config", nil, "MTX_PROT=7 MTX_KERNELS=scalar")
  lu.assertEquals({ err, code }, { "", 0 })
  lu.assertStrMatches(out, ".*\nMTX_PROT +%(ignored%) +MTX_PROT is no option; did you mean MTX_PORT%?\n")
  _, err, code = run("list --models-dir " .. temp.dir(), nil, "MTX_PROT=7")
  lu.assertEquals({ err:match("^[^\n]*"), code }, { "mtx list: MTX_PROT is no option; did you mean MTX_PORT?", 0 })
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
