-- SPDX-License-Identifier: MIT
-- Tensors as scripts see them.
local lu = require("luaunit")
local mtx = require("mtx")

TestTensor = {}

function TestTensor:test_index_and_bounds()
  local t = mtx.tensor({ 1, 5, 3 })
  lu.assertEquals({ #t, t[2], t:argmax() }, { 3, 5, 2, 5 })
  t[1] = 7
  lu.assertEquals(t:totable(), { 7, 5, 3 })
  lu.assertEquals(t:topk(2), { { 1, 7 }, { 2, 5 } })
  lu.assertEquals({ t[2.0], t[4 / 2] }, { 5, 5 })
  for _, i in ipairs({ 0, 4, -1, math.maxinteger, 1.5, 0.0, 0 / 0, 1e300 }) do
    lu.assertError(function() return t[i] end)
    lu.assertError(function() t[i] = 1 end)
  end
  lu.assertError(mtx.tensor, { 1, "x" })
  lu.assertEquals(#mtx.tensor(4), 4)
  lu.assertError(function() return t:get(2, 1) end)
end

function TestTensor:test_softmax()
  local p = mtx.tensor({ 0, math.log(3) }):softmax()
  lu.assertAlmostEquals(p[1], 0.25, 1e-6)
  lu.assertAlmostEquals(mtx.tensor({ 0, math.log(3) }):log_softmax_at(1, 2), math.log(0.75), 1e-6)
  lu.assertEquals(mtx.tensor({ 1, 2 }):bytes(), ("<ff"):pack(1, 2))
end
