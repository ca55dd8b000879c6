-- SPDX-License-Identifier: MIT
-- The order-keeping JSON decoder and encoder: what must survive a round trip,
-- Python's number texts, refusals with a position, and hostile input.
local lu = require("luaunit")
local json = require("mtx.json")

local function enc(v, o) return assert(json.encode(v, o)) end
local function trip(s, o) return enc(assert(json.decode(s)), o) end
local PY = { item_separator = ", ", key_separator = ": " }

TestJson = {}

function TestJson:test_round_trip_keeps_order_and_kinds()
  for _, s in ipairs{ '{"z":1,"a":2,"m":{"y":[],"x":{}}}', "[1,2.0,-0.0,1e-07,1e+22,null,true,false]", '""', "0",
    '["\\u0000\\u001f\\n\\"\\\\","\u{2028}é𝄞\127"]', "[[],{},[[]],[{}]]", "12345678901234567890123", "-9223372036854775808",
    "12345678901234567" } do
    lu.assertEquals(trip(s), s)
  end
  lu.assertEquals(trip(' { "a" : [ 1 , 2 ] }\n', PY), '{"a": [1, 2]}')
end

function TestJson:test_numbers_are_as_python_sees_them()
  lu.assertEquals(math.type(json.decode("2")), "integer")
  lu.assertEquals(math.type(json.decode("2.0")), "float")
  lu.assertEquals(math.type(json.decode("1E2")), "float")
  lu.assertEquals(trip("-0"), "0")
  local py = { [1e16] = "1e+16", [1e15] = "1000000000000000.0", [123456789012345.6] = "123456789012345.6", [0.1] = "0.1",
    [1 / 3] = "0.3333333333333333", [5e-324] = "5e-324", [2.2250738585072014e-308] = "2.2250738585072014e-308",
    [1.7976931348623157e308] = "1.7976931348623157e+308", [0.0001] = "0.0001", [0.00001] = "1e-05", [2^-44] = "5.684341886080802e-14",
    [9007199254740993.0] = "9007199254740992.0", [2.0^63] = "9.223372036854776e+18", [6.5] = "6.5", [100.0] = "100.0",
    [4.35] = "4.35", [2^-1022 * 3] = "6.675221575521604e-308" }
  for x, text in pairs(py) do
    lu.assertEquals(json.float_text(x), text)
    lu.assertEquals(tonumber(text), x)
  end
  lu.assertEquals(json.float_text(-0.0), "-0.0")
  lu.assertEquals(tostring(json.decode("99999999999999999999")), "99999999999999999999")
end

function TestJson:test_float_text_reads_back()
  local seed = 88172645463325252
  for _ = 1, 20000 do
    seed = seed ~ (seed << 13); seed = seed ~ (seed >> 7); seed = seed ~ (seed << 17)
    local x = string.unpack("<d", string.pack("<i8", seed))
    if x == x and x ~= math.huge and x ~= -math.huge then assert(tonumber(json.float_text(x)) == x, x) end
  end
  for e = -1074, 1023 do assert(tonumber(json.float_text(2.0 ^ e)) == 2.0 ^ e, e) end
end

function TestJson:test_strings()
  lu.assertEquals(json.decode('"\\ud834\\udd1e"'), "𝄞")
  lu.assertEquals(json.decode('"a\\ud834b"'), "a\u{FFFD}b")
  lu.assertEquals(json.decode('"\\ud834\\ud834\\udd1e"'), "\u{FFFD}𝄞")
  lu.assertEquals(json.decode('"\\b\\f\\/\\u00e9"'), "\b\f/é")
  lu.assertEquals(enc("é𝄞\127", { ensure_ascii = true }), '"\\u00e9\\ud834\\udd1e\\u007f"')
  lu.assertEquals(enc("a\255b\xE2\x82"), '"a\u{FFFD}b\u{FFFD}"')
end

function TestJson:test_objects_change()
  local o = json.decode('{"b":1,"a":2,"b":3}')
  lu.assertEquals(enc(o), '{"b":3,"a":2}')
  o.c, o.b = 4, nil
  lu.assertEquals(enc(o), '{"a":2,"c":4}')
  o.b = 5
  lu.assertEquals(enc(o), '{"b":5,"a":2,"c":4}')
  lu.assertEquals(json.keys(o), { "b", "a", "c" })
  local seen = {}
  for k, v in pairs(o) do seen[#seen + 1] = k .. v end
  lu.assertEquals(table.concat(seen, " "), "b5 a2 c4")
  lu.assertTrue(json.is_object(o))
  lu.assertFalse(json.is_array(o))
  lu.assertEquals(enc(json.object("z", 1, "a", json.array{})), '{"z":1,"a":[]}')
  lu.assertNil(json.decode("{}").missing)
end

function TestJson:test_plain_tables_and_options()
  lu.assertEquals(enc({ b = 1, a = { 1, 2 }, c = {} }), '{"a":[1,2],"b":1,"c":{}}')
  lu.assertEquals(enc(json.decode('{"b":[],"a":[1,{"x":null}]}'), { indent = "  ", key_separator = ": " }),
    '{\n  "b": [],\n  "a": [\n    1,\n    {\n      "x": null\n    }\n  ]\n}')
  lu.assertEquals(enc(json.decode('{"b":1,"a":2}'), { sort_keys = true }), '{"a":2,"b":1}')
  lu.assertEquals(enc({ 0 / 0, 1 / 0, -1 / 0 }, { nan = true }):gsub("^%[%-?NaN", "[NaN"), "[NaN,Infinity,-Infinity]")
  local t, message = json.encode({ 1 / 0 })
  lu.assertNil(t)
  lu.assertStrContains(message, "inf")
  lu.assertNil((json.encode({ print })))
  local loop = {}
  loop[1] = loop
  lu.assertNil((json.encode(loop)))
end

function TestJson:test_refusals_name_the_place()
  local bad = { [""] = "line 1 column 1", ["{:"] = "line 1 column 2", ['{"a":1,}'] = "column 8", ["[1,]"] = "column 4", ["01"] = "column 1",
    ["1."] = "column 2", ["1e"] = "column 2", ["-"] = "column 1", ["nul"] = "column 1", ["[1 2]"] = "column 4", ['{"a" 1}'] = "column 6",
    ['"a'] = "column 1", ['"a\nb"'] = "column 3", ['"\\x"'] = "column 2", ['"\\u12"'] = "column 2", ["1 1"] = "column 3", ["[\n1,\n?"] = "line 3 column 1",
    ['"\255"'] = "column 2", ["NaN"] = "column 1", ["'a'"] = "column 1", ["\239\187\1911"] = "column 1", ["+1"] = "column 1", [".5"] = "column 1" }
  for s, where in pairs(bad) do
    local v, message = json.decode(s)
    lu.assertNil(v)
    lu.assertStrContains(message, where)
  end
end

function TestJson:test_depth()
  lu.assertNotNil(json.decode(("["):rep(256) .. ("]"):rep(256)))
  for _, s in ipairs{ ("["):rep(257) .. ("]"):rep(257), ("["):rep(100000), ('{"a":'):rep(100000) } do
    local v, message = json.decode(s)
    lu.assertNil(v)
    lu.assertStrContains(message, "nested deeper than 256")
  end
end

function TestJson:test_mutated_input_never_raises()
  local base = '{"a":[1,2.5e3,-0,"x\\u00e9\\n",null,true],"b":{"c":{}},"d":"\u{2028}"}'
  math.randomseed(7)
  local good = 0
  for _ = 1, 5000 do
    local at = math.random(#base)
    local s = base:sub(1, at - 1) .. string.char(math.random(0, 255)):rep(math.random(0, 2)) .. base:sub(at + math.random(0, 2))
    local v, message = json.decode(s)
    if v == nil then assert(type(message) == "string") else
      good = good + 1
      local text = enc(v, { nan = true })
      if not text:find("Infinity") then lu.assertEquals(trip(text), text) end
    end
  end
  assert(good > 100 and good < 4900, good)
end
