-- SPDX-License-Identifier: MIT
-- Quantising what cannot be: damaged weights, importance of another model, options of the wrong kind.
local lu = require("luaunit")
local uv = require("luv")
local core = require("mtx.core")
local fixture = require("quantize_fixture")
local mtx = require("mtx")
local quantize = require("mtx.quantize")
local temp = require("temp")

local SOURCE <const> = fixture.SOURCE
local refused = fixture.refused

local function model_with(values, type_name)
  local path = temp.path(".gguf")
  local data = {}
  for i = 1, 32 * 64 do data[i] = string.pack("<f", values[i] or 0.5) end
  data = table.concat(data)
  assert(core.gguf.write({ path = path, kv = { { key = "general.architecture", type = "string", value = "llama" } },
    tensors = { { name = "a.weight", type = type_name or "F32", shape = { 32, 64 }, data = data }, { name = "b.weight", type = "F32", shape = { 32, 64 }, data = data } } }))
  return path
end

TestHostile = {}

function TestHostile.test_nan_and_infinity_are_named()
  local to = temp.path(".gguf")
  for _, bad in ipairs({ 0 / 0, math.huge, -math.huge }) do
    local from = model_with({ [32 * 50 + 8] = bad, [32 * 61 + 3] = bad })
    for _, mix in ipairs({ "Q8_0", "Q4_0", "IQ4_NL", "F16" }) do
      refused({ from = from, to = to, type = mix, threads = 3 }, from, "a.weight", "row 50 holds a NaN or infinity at column 7")
      lu.assertNil(uv.fs_stat(to))
    end
  end
end

function TestHostile.test_values_too_large_for_the_type()
  for _, mix in ipairs({ "F16", "Q8_0", "Q5_1", "IQ4_NL" }) do
    refused({ from = model_with({ [1] = 3e38, [2] = -3e38 }), to = temp.path(), type = mix }, "a.weight", "row 0", "too large for " .. mix)
  end
end

-- The search meets sums that overflow and scales that underflow.
function TestHostile.test_extremes_end()
  local tiny, wide = {}, {}
  for i = 1, 32 * 64 do tiny[i], wide[i] = 1e-45 * (i % 7), (i % 5 - 2) * 2.0 ^ (i % 200 - 120) end
  for _, values in ipairs({ tiny, wide }) do
    for _, type_name in ipairs({ "Q4_0", "Q5_1", "IQ4_NL", "MXFP4" }) do
      local result, message = quantize.run({ from = model_with(values), to = temp.path(), type = "Q8_0", tensor_types = { "weight=" .. type_name } })
      lu.assertTrue(result ~= nil or message:find("too large", 1, true) ~= nil, message)
    end
  end
end

local function imatrix_with(tensors)
  local path, list = temp.path(".gguf"), {}
  for name, t in pairs(tensors) do
    local data = {}
    for i, v in ipairs(t.values) do data[i] = string.pack("<f", v) end
    list[#list + 1] = { name = name, type = "F32", shape = t.shape, data = table.concat(data) }
  end
  assert(core.gguf.write({ path = path, tensors = list }))
  return path
end

function TestHostile.test_importance()
  local opts = { from = model_with({}), to = temp.path(), type = "Q4_0" }
  local sums = {}
  for i = 1, 32 do sums[i] = i end
  local function with(sum_values, shape, count)
    return imatrix_with({ ["a.weight.in_sum2"] = { shape = shape or { 32, 1 }, values = sum_values }, ["a.weight.counts"] = { shape = { 1, 1 }, values = { count or 2 } } })
  end
  opts.imatrix = with(sums)
  local result = assert(quantize.run(opts))
  lu.assertEquals({ result.tensors[1].importance, result.tensors[2].importance }, { true, false })
  opts.to, opts.force = opts.imatrix, true
  refused(opts, "that is the importance matrix itself")
  opts.to, opts.imatrix, opts.force = temp.path(), with({ 1, 2 }, { 2, 1 }), nil
  refused(opts, "a.weight", "2 weights, its columns are 32")
  for _, bad in ipairs({ 0 / 0, -1, math.huge }) do
    sums[5], opts.imatrix = bad, nil
    opts.imatrix = with(sums)
    refused(opts, "a.weight", "NaN, an infinity or a negative weight")
  end
  opts.imatrix = SOURCE
  refused(opts, "no importance matrix")
  opts.imatrix = imatrix_with({ ["a.weight.in_sum2"] = { shape = { 1, 1 }, values = { 1 } } })
  refused(opts, "not as llama-imatrix writes it")
  opts.imatrix = temp.path()
  refused(opts, "No such file")
  refused({ from = SOURCE, to = temp.path(), type = "IQ2_XS" }, "needs importance", "--imatrix")
  refused({ from = SOURCE, to = temp.path(), type = "IQ2_XS", imatrix = with(sums, nil, 0) }, "has no importance in the file")
end

TestMisuse = {}

function TestMisuse.test_it_names_the_callers_line()
  local function misused(opts, part)
    local ok, message = pcall(function() local _ = mtx.quantize(opts) end)
    lu.assertFalse(ok)
    lu.assertStrContains(message, part)
    lu.assertStrContains(message, "test_quantize_input.lua:")
  end
  misused({ from = SOURCE, to = "x", typ = "Q8_0" }, "no field 'typ'; did you mean type?")
  misused({ from = SOURCE, type = "Q8_0" }, "needs a string 'to'")
  misused({ to = "x", type = "Q8_0" }, "needs a string 'from'")
  for name, wrong in pairs({ tensor_types = "ffn=Q6_K", rules = 5, imatrix = 5, threads = 1.5, requantize = 1, force = "no", progress = 5 }) do
    misused({ from = SOURCE, to = "x", type = "Q8_0", [name] = wrong }, "option '" .. name .. "' must be a")
  end
  misused({ from = SOURCE, to = "x", type = "Q8_0", threads = -1 }, "'threads' must be a whole number from 0")
  misused({ from = SOURCE, to = "x", type = "Q8_0", tensor_types = { 5 } }, "'tensor_types' must be a list")
  local result = assert(mtx.quantize({ from = SOURCE, type = "Q8_0", dry_run = true }))
  lu.assertEquals(result.bytes, 1293312)
end
