-- SPDX-License-Identifier: MIT
-- What a MODEL on the command line may be: a path, a listed name, a Modelfile and what `mtx create` makes of it.
local lu = require("luaunit")
local cjson = require("cjson")
local temp = require("temp")
local run = require("cli_run")

local MTX = (os.getenv("BUILD") or "build") .. "/mtx "
local MODELS = os.getenv("MTX_MODELS_DIR") or "models"
local SMOL = MODELS .. "/SmolLM2-135M-Instruct.Q4_1.gguf"

TestModels = {}

function TestModels:test_a_model_is_a_path_or_a_listed_name()
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

function TestModels:test_run_takes_what_a_modelfile_sets()
  local dir = temp.dir()
  local file = assert(io.open(dir .. "/plain.modelfile", "w"))
  file:write("FROM ", assert(require("luv").fs_realpath(SMOL)), "\nTEMPLATE \"\"\"{{ messages[0].role }}|{{ messages[1].content }}|{{ messages[-1].content }}\"\"\"\nSYSTEM be brief\n",
    "MESSAGE user a river\nMESSAGE assistant runs\nPARAMETER temperature 0\nPARAMETER num_predict 3\nPARAMETER num_ctx 64\n")
  file:close()
  local function json_of(command)
    local out, err, code = run(command .. " --json", nil, "MTX_MODELS_DIR=" .. dir)
    lu.assertEquals(code, 0, err)
    return cjson.decode(out)
  end
  local got = json_of("run plain 'the sea'")
  local more = json_of("run plain 'the sea' -n 5")
  os.execute("rm -r " .. dir)
  local model = assert(require("mtx").load(SMOL, { template = "{{ messages[0].role }}|{{ messages[1].content }}|{{ messages[-1].content }}" }))
  local messages = { { role = "system", content = "be brief" }, { role = "user", content = "a river" }, { role = "assistant", content = "runs" },
    { role = "user", content = "the sea" } }
  local want = assert(model:generate({ messages = messages, temperature = 0, max_tokens = 3 }))
  model:close()
  lu.assertEquals({ got.text, got.n_generated, got.n_prompt, more.n_generated }, { want.text, 3, #want.prompt_ids, 5 })
end

-- What a Modelfile names beside it, what it has of a listed model, and every way it can be wrong.
function TestModels:test_create_makes_a_model_of_a_modelfile()
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
function TestModels:test_a_name_that_cannot_be_run_says_why()
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
function TestModels:test_a_config_file_of_another_kind_says_its_form()
  for _, text in ipairs({ '{"port": 1}', "port: 1", "return 5", "return { port = os.getenv('X') }" }) do
    local path = temp.file(text)
    local _, err, code = run("config --config " .. path)
    lu.assertEquals(code, 2, text)
    lu.assertStrMatches(err, "mtx config: " .. path:gsub("%p", "%%%0") .. ": [^\n]*; it is a Lua table: return { port = 8080 }\n", nil, nil, text)
  end
end

-- What scripts read: every value that the tables show, with numbers as numbers; keys stay hidden.
function TestModels:test_json_of_the_commands_that_list()
  local dir = temp.dir()
  assert(require("luv").fs_symlink(assert(require("luv").fs_realpath(SMOL)), dir .. "/smol.gguf"))
  assert(io.open(dir .. "/broken.gguf", "w")):write("GGUF"):close()
  local function json_of(command, wanted_code)
    local out, err, code = run(command .. " --json --models-dir " .. dir)
    lu.assertEquals({ code, err }, { wanted_code or 0, "" }, command)
    return cjson.decode(out)
  end
  local rows, by_name = json_of("list"), {}
  for _, r in ipairs(rows) do by_name[r.name:match("^[^:]+")] = r end
  lu.assertEquals({ #rows, by_name.smol.architecture, by_name.smol.quantization, by_name.smol.size > 9e7 }, { 2, "llama", "Q4_1", true })
  lu.assertItemsEquals(by_name.smol.capabilities, { "completion" })
  lu.assertEquals({ by_name.broken.size, type(by_name.broken.error) }, { 4, "string" })
  local shown = json_of("show smol")
  lu.assertEquals({ shown.architecture, shown.context_length, shown.file }, { "llama", 8192, dir .. "/smol.gguf" })
  lu.assertStrContains(shown.modelfile, "FROM ")
  local options = {}
  for _, o in ipairs(json_of("config --api-key secret --port 4321")) do options[o.name] = o end
  lu.assertEquals({ options.port.value, options.port.source, options.api_key.value }, { 4321, "--port", "(1 set)" })
  lu.assertEquals(json_of("status --port 1", 1).running, false)
  os.execute("rm -r " .. dir)
  lu.assertStrContains(select(2, run("ps --json --port 1")), "no server answers")
end

-- A folder that somebody names is there, or the name is misspelt; nothing is made of it.
function TestModels:test_a_mistyped_models_folder_is_said()
  local none = temp.path()
  local file = temp.file("FROM " .. assert(require("luv").fs_realpath(SMOL)) .. "\n")
  for _, command in ipairs({ "create x -f " .. file, "list", "show x", "rm x", "cp x y" }) do
    lu.assertEquals({ run(command .. " --models-dir " .. none) }, { "", "mtx " .. command:match("^%a+") .. ": there is no folder " .. none .. "; give one with --models-dir, or `mtx pull` a model\n", 1 }, command)
  end
  lu.assertNil(require("luv").fs_stat(none))
end

function TestModels:test_tokenize_and_detokenize_know_a_models_folder()
  local uv, dir = require("luv"), temp.dir()
  assert(uv.fs_symlink(assert(uv.fs_realpath(SMOL)), dir .. "/elsewhere.gguf"))
  local here = " --models-dir " .. dir
  local ids = cjson.decode((run("tokenize elsewhere 'Hello world' --json" .. here))).ids
  lu.assertEquals(#ids, 2)
  lu.assertEquals({ run("detokenize elsewhere " .. table.concat(ids, " ") .. here) }, { "Hello world", "", 0 })
  lu.assertStrContains(select(2, run("tokenize elsewhere hi --model-dir " .. dir)), "did you mean --models-dir?")
end

function TestModels:test_serve_refuses_a_models_folder_that_is_not_there()
  local _, err, code = run("serve --port 0 --models-dir no-such-folder")
  lu.assertEquals({ err, code }, { "mtx serve: there is no folder no-such-folder; give one with --models-dir\n", 1 })
end

-- A file that does not name its type goes by its tensors.
function TestModels:test_list_names_the_quantization()
  local listed = run("list --models-dir models")
  for name, type in pairs({ minilm = "F32", ["gemma3-270m-q4_k_m"] = "Q4_K_M", ["SmolLM2-135M-Instruct.Q4_1"] = "Q4_1" }) do
    lu.assertStrMatches((listed:match("\n(" .. name:gsub("%p", "%%%0") .. ":latest[^\n]*)")), ".* " .. type .. " .*")
  end
end
