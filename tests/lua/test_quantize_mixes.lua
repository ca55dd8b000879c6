-- SPDX-License-Identifier: MIT
-- Which tensor becomes what: the mixes on models of other shapes than the golden one, and rules of one's own.
local lu = require("luaunit")
local fixture = require("quantize_fixture")
local mixes = require("mtx.quantize.mixes")
local plan = require("mtx.quantize.plan")
local temp = require("temp")

local SOURCE <const> = fixture.SOURCE
local refused = fixture.refused

TestMixes = {}

-- A model of `layers` layers as the plan sees it.
local function header(meta, tensors)
  return { metadata = function(_, key) return meta[key] end, tensors = function() return tensors end }
end

local function types_of(mix, meta, tensors, more)
  local opts = { mix = mixes.find(mix), patterns = {} }
  for k, v in pairs(more or {}) do opts[k] = v end
  local p = assert(plan.make(header(meta, tensors), opts))
  local out = {}
  for _, t in ipairs(p.tensors) do out[t.name] = t.to end
  return out, p
end

local function matrix(name, n, type_name) return { name = name, type = type_name or "F16", shape = { n or 256, 256 }, bytes = (n or 256) * 512 } end

local function layers(n, names)
  local out = { matrix("token_embd.weight") }
  for i = 0, n - 1 do
    for _, name in ipairs(names) do out[#out + 1] = matrix(("blk.%d.%s.weight"):format(i, name)) end
  end
  return out
end

local function llama(n, heads, kv, experts)
  return { ["general.architecture"] = "llama", ["llama.block_count"] = n, ["llama.attention.head_count"] = heads, ["llama.attention.head_count_kv"] = kv,
    ["llama.expert_count"] = experts }
end

-- The first and last eighth and every third layer between get more bits (llama-quant.cpp, use_more_bits).
function TestMixes.test_layers_with_more_bits()
  local got = types_of("Q4_K_M", llama(32, 32, 8), layers(32, { "ffn_down", "attn_v" }))
  local more = {}
  for i = 0, 31 do
    if got[("blk.%d.ffn_down.weight"):format(i)] == "Q6_K" then more[#more + 1] = i end
    lu.assertEquals(got[("blk.%d.attn_v.weight"):format(i)], got[("blk.%d.ffn_down.weight"):format(i)])
  end
  lu.assertEquals(more, { 0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31 })
  lu.assertEquals(got["token_embd.weight"], "Q6_K")  -- there is no output.weight: it is the output, too
end

function TestMixes.test_shared_heads_experts_and_70b()
  lu.assertEquals(types_of("Q2_K", llama(4, 32, 8), layers(4, { "attn_v" }))["blk.0.attn_v.weight"], "Q4_K")
  lu.assertEquals(types_of("Q2_K", llama(4, 32, 32), layers(4, { "attn_v" }))["blk.0.attn_v.weight"], "Q3_K")
  local eight = types_of("Q4_K_M", llama(4, 32, 8, 8), layers(4, { "attn_v", "attn_k", "attn_q", "attn_output" }))
  lu.assertEquals({ eight["blk.1.attn_v.weight"], eight["blk.1.attn_k.weight"], eight["blk.1.attn_q.weight"], eight["blk.1.attn_output.weight"] },
    { "Q8_0", "Q8_0", "Q4_K", "Q5_K" })
  lu.assertEquals(types_of("Q4_K_M", llama(80, 64, 8), layers(80, { "attn_v" }))["blk.20.attn_v.weight"], "Q5_K")
end

-- Of models with experts the layer is read from the name, whatever order they come in.
function TestMixes.test_layers_of_experts()
  local tensors = {}
  for i = 0, 15 do tensors[#tensors + 1] = { name = ("blk.%d.ffn_down_exps.weight"):format(i), type = "F16", shape = { 256, 4, 60 }, bytes = 122880 } end
  local got = types_of("Q2_K_S", llama(16, 16, 16, 60), tensors, { imatrix = { size = function() return 256 * 60 end } })
  lu.assertEquals({ got["blk.1.ffn_down_exps.weight"], got["blk.2.ffn_down_exps.weight"], got["blk.10.ffn_down_exps.weight"] }, { "Q4_K", "Q2_K", "Q2_K" })
  local p, message = plan.make(header(llama(4, 16, 16, 60), tensors), { mix = mixes.find("Q4_K_M"), patterns = {} })
  lu.assertNil(p)
  lu.assertStrContains(message, "blk.4.ffn_down_exps.weight")
end

function TestMixes.test_widths_that_do_not_divide()
  local got = types_of("Q4_K_M", llama(1, 1, 1), { matrix("a.weight", 96), matrix("b.weight", 40), matrix("output.weight", 96) })
  lu.assertEquals(got, { ["a.weight"] = "Q5_0", ["b.weight"] = "F16", ["output.weight"] = "Q8_0" })
  lu.assertEquals(types_of("IQ4_XS", llama(1, 1, 1), { matrix("a.weight", 96) })["a.weight"], "IQ4_NL")
  lu.assertEquals(types_of("Q4_0", llama(1, 1, 1), { matrix("a.weight", 40) })["a.weight"], "F16")
end

function TestMixes.test_what_is_kept()
  local kept = { { name = "blk.0.attn_norm.weight", type = "F32", shape = { 256 }, bytes = 1024 }, matrix("blk.0.ffn_gate_inp.weight", 256, "F32"),
    matrix("blk.0.ssm_conv1d.weight", 256, "F32"), matrix("position_embd.weight", 256, "F32"), matrix("blk.0.attn_q.bias", 256, "F32"),
    { name = "blk.0.odd.weight", type = "F32", shape = { 256, 1 }, bytes = 1024 } }
  for name, to in pairs(types_of("Q4_K_M", llama(1, 1, 1), kept)) do lu.assertEquals(to, "F32", name) end
  lu.assertEquals(types_of("F16", llama(1, 1, 1), { matrix("a.weight", 256, "BF16") })["a.weight"], "F16")
end

function TestMixes.test_names()
  lu.assertEquals(mixes.find("q4_k"), mixes.find("Q4_K_M"))
  lu.assertNil(mixes.find("Q4_K_X"))
  lu.assertEquals(plan.type("mxfp4"), "MXFP4")
  local _, message = plan.type("Q4_L")
  lu.assertStrContains(message, "did you mean Q4_")
end

TestRules = {}

function TestRules.test_a_rule_decides_last()
  local seen = {}
  local got = types_of("Q4_K_M", llama(2, 4, 4), layers(2, { "ffn_down", "attn_q" }), { patterns = { { pattern = "attn_q", type = "Q8_0", text = "" } },
    rules = function(tensor, to)
      seen[tensor.name] = { tensor.role, tensor.layer, tensor.n_layers, tensor.mix, to }
      if tensor.role == "down" then return tensor.layer == 0 and "iq4_nl" or "keep" end
    end })
  lu.assertEquals(got, { ["token_embd.weight"] = "Q6_K", ["blk.0.attn_q.weight"] = "Q8_0", ["blk.1.attn_q.weight"] = "Q8_0", ["blk.0.ffn_down.weight"] = "IQ4_NL",
    ["blk.1.ffn_down.weight"] = "F16" })
  lu.assertEquals(seen["blk.1.attn_q.weight"], { "query", 1, 2, "Q4_K_M", "Q8_0" })
  lu.assertEquals(seen["token_embd.weight"][1], "embedding")
end

function TestRules.test_faults_of_rules_name_the_tensor()
  local opts = { from = SOURCE, to = temp.path(), type = "Q4_K_M" }
  opts.rules = function() return "Q9" end
  refused(opts, "output.weight", "no tensor type 'Q9'")
  opts.rules = function() error("oh") end
  refused(opts, "rule failed", "oh")
  opts.rules, opts.tensor_types = nil, { "attn_q=Q8" }
  refused(opts, "no tensor type 'Q8'")
  opts.tensor_types = { "nothing=Q8_0" }
  refused(opts, "--tensor-type nothing=Q8_0: no tensor")
  opts.tensor_types = { "attn_norm=Q8_0" }
  refused(opts, "no tensor that may change")
  opts.tensor_types = { "a[=Q8_0" }
  refused(opts, "no Lua pattern")
  opts.tensor_types = { "Q8_0" }
  refused(opts, "PATTERN=TYPE")
end
