-- SPDX-License-Identifier: MIT
-- A chat in the terminal and the Lua prompt: their own commands, Ctrl-C, what is kept from turn to turn.
local lu = require("luaunit")
local temp = require("temp")
local run = require("cli_run")

local MODELS = os.getenv("MTX_MODELS_DIR") or "models"
local SMOL = MODELS .. "/SmolLM2-135M-Instruct.Q4_1.gguf"

TestChat = {}

-- The timer fires at the first look at the event loop: that must come before the first token.
function TestChat:test_ctrl_c_ends_the_reading_of_a_long_prompt()
  local _, err, code = run([[-e 'local uv = require("luv") uv.new_timer():start(0, 0, function() uv.kill(uv.os_getpid(), "sigint") end)
    return require("mtx.cli.run").run({ "]] .. SMOL .. [[", ("sea "):rep(3000), "-n", "8", "--stats" })']])
  lu.assertEquals(code, 0)
  lu.assertStrContains(err, "answer 0 tokens")
end

function TestChat:test_a_chats_next_turn_goes_on_from_the_last_one()
  local _, err, code = run([[-e 'local uv = require("luv") local kind = uv.guess_handle
    uv.guess_handle = function(fd) return fd == 0 and "tty" or kind(fd) end
    return require("mtx.cli.run").run({ "]] .. SMOL .. [[", "--stats", "-n", "8" })']], "Hello\\nAnd now?\\n")
  lu.assertEquals(code, 0, err)
  local first, second = err:match("prompt %d+ tokens %((%d+) cached.*prompt %d+ tokens %((%d+) cached")
  lu.assertEquals(first, "0", err)
  lu.assertTrue(tonumber(second) > 30, err)
end

-- The chat's own commands, with a model that is never asked.
function TestChat:test_chat_commands()
  local chat = [[-e 'require("mtx.cli.chat").run({ info = function() return {} end }, { values = {}, base = { temperature = 1 } })']]
  local out, err, code = run(chat, "/?\\n/set foo 1\\n/set temp 0.5\\n/set top-k 3\\n/set mirostat 7\\n/set n 4\\n/set n -1\\n/load\\n/load tests\\n/load README.md\\n/show\\n/bye\\n")
  lu.assertEquals({ err, code }, { "", 0 })
  lu.assertStrMatches(out:match("leaves%.\n(.*)$"), "/set NAME VALUE .*/bye .*")
  lu.assertEquals(out:match("stops an answer%.\n(.*)$"), table.concat({
    "no number is called foo; `mtx run --help` lists them", "temperature 0.5", "top_k 3", "mirostat: 7 is out of range; it must be between 0 and 2", "n 4",
    "n must be a whole number from 0", "usage: /load FILE", "tests: Is a directory",
    "README.md: not a saved conversation: invalid JSON: expected a value at line 1 column 1", "temperature 0.5", "top_k 3", "n 4", "" }, "\n"))
end

function TestChat:test_ctrl_c_ends_what_the_repl_runs_and_not_the_repl()
  local interrupt = [[local uv = require("luv") uv.kill(uv.os_getpid(), "sigint") while true do end]]
  local out, err, code = run("repl", interrupt .. "\\n1 + 1\\n" .. interrupt .. "\\n2 + 2\\n")
  lu.assertEquals({ out, code }, { "2\n4\n", 0 })
  lu.assertEquals(err, "interrupted\ninterrupted\n")
end

-- What lies below the input in the stack is the prompt's own machinery.
function TestChat:test_repl_shows_the_stack_of_the_input_alone()
  local _, err = run("repl", [[pcall(print); (function() error("no") end)()\n]])
  lu.assertEquals(err, "repl:1: no\nstack traceback:\n\t[C]: in function 'error'\n\trepl:1: in function <repl:1>\n\trepl:1: in main chunk\n")
end

function TestChat:test_repl_prints_values()
  local out, _, code = run("repl", "1 + 1\\n{ 1, x = \"y\" }\\nfor i = 1, 2 do\\nprint(i)\\nend\\nmtx.tensor({ 1, 2 })\\n")
  lu.assertEquals(code, 0)
  lu.assertEquals(out, '2\n{ 1, x = "y" }\n1\n2\ntensor 1 x 2 {1, 2}\n')
end

-- What `help` shows works as it stands.
function TestChat:test_repl_help()
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
