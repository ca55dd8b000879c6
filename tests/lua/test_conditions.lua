-- SPDX-License-Identifier: MIT
-- Random schemas of conditions (tests/golden/jsonschema/conditions.py) against documents that Python's
-- jsonschema judged: valid ones are taken, invalid ones are not, unless a warning names what is not enforced.
local lu = require("luaunit")
local cjson = require("cjson")
local G = require("mtx.core").grammar

local GOLDEN = arg[0]:match("^(.*)tests/lua/run%.lua$") .. "tests/golden/jsonschema/conditions.jsonl"
local OPEN = { any_order = true, open_types = true, open_keys = true }

TestConditions = {}

function TestConditions:test_every_document()
  local n, warned, faults = 0, 0, {}
  for line in io.lines(GOLDEN) do
    local case = cjson.decode(line)
    local g, by_default = assert(G.schema(case.schema, OPEN)), G.schema(case.schema)
    n = n + 1
    for _, test in ipairs(case.tests) do
      local text, valid = test[1], test[2]
      local takes = g:match(text) == "complete"
      if takes and not valid and #g:warnings() > 0 then warned = warned + 1
      elseif takes ~= valid then faults[#faults + 1] = { case.schema, text, valid } end
      -- by default less is taken, never what is invalid
      if by_default and not valid and by_default:match(text) == "complete" and #by_default:warnings() == 0 then faults[#faults + 1] = { "by default", case.schema, text } end
    end
  end
  lu.assertEquals(faults, {})
  lu.assertEquals(n, 240)
  lu.assertTrue(warned < 150, warned)  -- of 1,440 invalid ones
  print(("# %d schemas, %d invalid documents taken with a warning"):format(n, warned))
end
