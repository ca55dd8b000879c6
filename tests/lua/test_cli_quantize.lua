-- SPDX-License-Identifier: MIT
-- `mtx quantize` as a user runs it.
local lu = require("luaunit")
local uv = require("luv")
local core = require("mtx.core")
local fixture = require("quantize_fixture")
local json = require("mtx.json")
local temp = require("temp")

local SOURCE <const>, IMATRIX <const>, FILES <const> = fixture.SOURCE, fixture.IMATRIX, fixture.FILES

TestCommand = {}

local PROGRAM <const> = (arg and arg[-1] or (os.getenv("BUILD") or "build") .. "/mtx")

local function run(line)
  local p = io.popen(PROGRAM .. " quantize " .. line .. " 2>&1")
  local text = p:read("a")
  local _, _, code = p:close()
  return code, text
end

function TestCommand.test_it_writes_and_says_what()
  local to = temp.path(".gguf")
  local code, text = run(SOURCE .. " " .. to .. " q4_k_m -t 2")
  lu.assertEquals(code, 0, text)
  lu.assertStrContains(text, "Q4_K_M, 4.6 MiB -> 716.4 KiB of weights, 5 of 21 tensors kept")
  lu.assertEquals(core.sha256.file(to), FILES.Q4_K_M.sha256)
  code, text = run(SOURCE .. " " .. to .. " q4_k_m")
  lu.assertEquals(code, 1)
  lu.assertStrContains(text, "--force")
  code, text = run(SOURCE .. " " .. to .. " q8_0 --force --json")
  lu.assertEquals(code, 0, text)
  local answer = json.decode(text)
  lu.assertEquals({ answer.type, #answer.tensors, answer.path, answer.needs_imatrix, answer.file_bytes }, { "Q8_0", 21, to, false, uv.fs_stat(to).size })
end

function TestCommand.test_dry_run()
  local code, text = run(SOURCE .. " IQ2_XS --dry-run")
  lu.assertEquals(code, 0, text)
  lu.assertStrContains(text, "blk.0.attn_v.weight")
  lu.assertStrContains(text, "-> Q2_K")
  lu.assertStrContains(text, "needs --imatrix")
  code, text = run(SOURCE .. " IQ2_XS -n --json --imatrix " .. IMATRIX)
  lu.assertEquals(code, 0, text)
  local answer = json.decode(text)
  lu.assertEquals({ answer.needs_imatrix, answer.path, answer.tensors[3].importance }, { false, nil, true })
  lu.assertEquals(answer.tensors[2], { name = "output_norm.weight", shape = { 256 }, from = "F32", to = "F32", from_bytes = 1024, bytes = 1024, importance = false })
end

-- A row of 576 holds no whole blocks of 256: the file is larger than its type promises, and that is said.
function TestCommand.test_rows_that_do_not_fit_are_named()
  local smol = "models/SmolLM2-135M-Instruct.Q4_1.gguf"
  local code, text = run(smol .. " Q4_K_M -n --requantize")
  lu.assertEquals(code, 0, text)
  lu.assertStrMatches(text, ".*blk%.0%.ffn_up%.weight +576 x 1536 +Q4_1 +%-> Q5_0 instead of Q4_K\n.*")
  lu.assertStrMatches(text, ".*\nrows do not divide into the type's blocks: Q5_0 instead of Q4_K %(166%), Q8_0 instead of Q6_K %(14%)\n")
  code, text = run(smol .. " Q8_0 -n --requantize")
  lu.assertEquals(code, 0, text)
  lu.assertNil(text:find("instead of", 1, true))
end

function TestCommand.test_rule_files()
  local rule = temp.file('return function(t, to) if t.role == "value" then return "Q8_0" end end', ".lua")
  local code, text = run(SOURCE .. " Q4_0 -n --rules " .. rule .. " --tensor-type 'ffn_up=BF16'")
  lu.assertEquals(code, 0, text)
  local _, n = text:gsub("attn_v.weight%s+256 x 128%s+F32%s+%-> Q8_0", "")
  lu.assertEquals(n, 2)
  _, n = text:gsub("ffn_up.weight%s+256 x 512%s+F32%s+%-> BF16", "")
  lu.assertEquals(n, 2)
  code, text = run(SOURCE .. " Q4_0 -n --rules " .. temp.file("return 1", ".lua"))
  lu.assertEquals(code, 1)
  lu.assertStrContains(text, "gives back a function")
  code, text = run(SOURCE .. " Q4_0 -n --rules " .. temp.file("return (", ".lua"))
  lu.assertEquals(code, 1, text)
end

function TestCommand.test_wrong_usage()
  for line, part in pairs({ [""] = "give IN, OUT and TYPE", [SOURCE .. " x"] = "give IN, OUT and TYPE", [SOURCE .. " x Q4_K_L"] = "did you mean Q3_K_L",
      ["a b Q8_0 c"] = "unexpected word 'c'", ["a b Q8_0 --threads 0"] = "--threads must be 1 to 1024" }) do
    local code, text = run(line)
    lu.assertEquals(code, 2, line)
    lu.assertStrContains(text, part)
  end
end
