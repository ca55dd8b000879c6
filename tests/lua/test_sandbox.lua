-- SPDX-License-Identifier: MIT
-- The sandbox of scripts: pattern functions equal to Lua's own, calls that would
-- run or grow for ever end, nothing of the script's runs outside its limits.
local lu = require("luaunit")
local core = require("mtx.core")
local environment = require("mtx.serve.script.environment")
local permissions = require("mtx.serve.script.permissions")
local sandbox = require("mtx.serve.script.sandbox")

local function run(text, ...)
  local f = assert(load(text, "=script", "t", environment.new({ host = sandbox.host(function(s) return s:upper() end) })))
  return sandbox.call(f, nil, ...)
end

TestPatterns = {}

local ITEMS = { "a", "b", "%a", "%d", ".", "[ab]", "[^a]", "[%d-]", "[a-c]", "%w", "%S", "(", "(", ")", ")", "()", "%1", "%b()", "%f[%w]", "%f[^a]", "$", "^", "%.", "[]]",
  "[^]a]", "[a-]", "%", "[", "-", "%2" }
local MANY = { "", "", "", "*", "+", "-", "?" }

local function random_case()
  local p, t = {}, {}
  for k = 1, math.random(0, 5) do p[k] = ITEMS[math.random(#ITEMS)] .. MANY[math.random(#MANY)] end
  for k = 1, math.random(0, 8) do
    local i = math.random(9)
    t[k] = ("ab1 ()-.]"):sub(i, i)
  end
  return table.concat(t), table.concat(p)
end

-- Same results, and an error where Lua has one (and for an open capture that Lua's gsub does not look at).
local function same(name, a, b, ...)
  local what = name .. " " .. table.concat({ ("%q"):rep(select("#", ...), " "):format(...) })
  if a[1] and not b[1] and b[2]:find("unfinished capture", 1, true) then return end
  lu.assertEquals(a[1], b[1], what)
  if not a[1] then return end
  if a[2] == nil then return lu.assertNil(b[2], what) end
  lu.assertEquals(b, a, what)
end

function TestPatterns:test_random_ones_as_in_lua()
  local s = environment.methods
  math.randomseed(11)
  local n_found = 0
  for _ = 1, 40000 do
    local t, p = random_case()
    local init = math.random(-2, #t + 2)
    local a = table.pack(pcall(string.find, t, p, init))
    same("find", a, table.pack(pcall(s.find, t, p, init)), t, p)
    if a[1] and a[2] then n_found = n_found + 1 end
    same("match", table.pack(pcall(string.match, t, p, init)), table.pack(pcall(s.match, t, p, init)), t, p)
    local function all(f) return function()
      local out = {}
      for x, y in f(t, p) do out[#out + 1] = tostring(x) .. "|" .. tostring(y) end
      return table.concat(out, ";")
    end end
    same("gmatch", table.pack(pcall(all(string.gmatch))), table.pack(pcall(all(s.gmatch))), t, p)
    local max = math.random(0, 4)
    same("gsub", table.pack(pcall(string.gsub, t, p, "<%0>", max)), table.pack(pcall(s.gsub, t, p, "<%0>", max)), t, p)
    same("gsub f", table.pack(pcall(string.gsub, t, p, function(x) return x == "a" and "Q" or nil end)), table.pack(pcall(s.gsub, t, p, function(x) return x == "a" and "Q" or nil end)), t, p)
  end
  lu.assertTrue(n_found > 5000, n_found)
end

function TestPatterns:test_fixed_ones()
  local s = environment.methods
  lu.assertEquals({ s.gsub("hello world", "(o)", "%1%1") }, { "helloo woorld", 2 })
  lu.assertEquals({ s.gsub("abc", "%w", { a = "1", b = false }) }, { "1bc", 3 })
  lu.assertEquals({ s.gsub("abc", "", "-") }, { "-a-b-c-", 4 })
  lu.assertEquals({ s.gsub("k=v, x=y", "(%w+)=(%w+)", "%2=%1%%") }, { "v=k%, y=x%", 2 })
  lu.assertEquals({ s.find("a+b", "+", 1, true) }, { 2, 2 })
  lu.assertEquals(s.match("  trim me  ", "^%s*(.-)%s*$"), "trim me")
  lu.assertErrorMsgContains("invalid use of '%'", s.gsub, "a", "a", "%x")
  lu.assertErrorMsgContains("invalid capture index", s.gsub, "a", "a", "%2")
  lu.assertErrorMsgContains("missing ']'", s.find, "a", "[a")
  lu.assertErrorMsgContains("too long", core.pattern.find, ("a"):rep(1 << 16), ".-.-x", 1)
  lu.assertErrorMsgContains("too complex", core.pattern.find, ("a"):rep(500), ("a?"):rep(300) .. "b", 1)
end

TestLimits = {}

function TestLimits:test_everything_hostile_ends()
  for name, text in pairs({
    loop = "while true do end", in_pcall = "while true do pcall(function() while true do end end) end",
    backtracking = 'return string.find(("a"):rep(1000000), ".-.-.-.-b")', method = 'return (("a"):rep(100000)):gsub("(a*)*b", "x")',
    plain = 'return string.find(("a"):rep(8000000), ("a"):rep(100000) .. "b", 1, true)',
    rep = 'return ("x"):rep(1e9)', rep_of_rep = 'local s = ("x"):rep(8000000) while true do s:upper() end', grow = 'local s = "x" while true do s = s .. s end',
    concat = 'local t = {} for i = 1, 100 do t[i] = ("x"):rep(1000000) end return table.concat(t)',
    move = "return table.move({}, 1, math.maxinteger - 1, 2)", unpack = "return table.unpack({}, 1, 1e7)",
    insert = "table.insert(setmetatable({}, { __len = function() return 1 << 60 end }), 1, 5)",
    hidden_len = "table.insert(setmetatable({}, { __metatable = {}, __len = function() return 1 << 60 end }), 1, 5)",
    remove = "table.remove(setmetatable({}, { __len = function() return 1 << 60 end }), 1)",
    sort = "table.sort(setmetatable({}, { __len = function() return 1 << 30 end, __index = function() return 1 end }))",
    error_text = "error(setmetatable({}, { __tostring = function() while true do end end }))",
    deep = "local t = {} local u = t for i = 1, 1000 do u.x = {} u = u.x end return t",
    recursion = "local function f() return 1 + f() end return f()", yields = "return host()", gsub_grow = 'return (("x"):rep(1000000)):gsub("x", ("y"):rep(100))',
  }) do
    local start = os.clock()
    local ok, message = run(text)
    lu.assertFalse(ok, name)
    lu.assertEquals(type(message), "string", name)
    lu.assertTrue(os.clock() - start < 20, name)
    lu.assertEquals(("x"):rep(3), "xxx", name)
    lu.assertEquals({ run("return 1 + 1") }, { true, 2 }, name)
  end
end

-- Calls that have an end, but one that their loop in C would not reach.
function TestLimits:test_long_ways_to_nothing()
  lu.assertEquals({ run('return (""):rep(1 << 62), string.rep("", 1e18), ("ab"):rep(-1), ("ab"):rep(2, "")') }, { true, "", "", "", "abab" })
end

function TestLimits:test_nothing_dangerous_is_there()
  for _, name in ipairs({ "io", "require", "load", "loadstring", "dofile", "loadfile", "debug", "package", "collectgarbage", "coroutine", "print", "xpcall" }) do
    lu.assertEquals({ run("return " .. name .. " == nil") }, { true, true }, name)
  end
  lu.assertEquals({ run("return os.execute == nil and os.exit == nil and os.remove == nil and os.getenv == nil and string.dump == nil") }, { true, true })
  lu.assertFalse((run("setmetatable({}, { __gc = function() end })")))
  -- metatables of the server stay out of reach
  lu.assertEquals({ run("return getmetatable(...) == nil", require("mtx.json").decode("[1]")) }, { true, true })
  lu.assertEquals({ run('return getmetatable("") == nil') }, { true, true })
  -- a script's error inside a function of the server leaves the bounded methods in place
  lu.assertFalse((run('pcall(host, 5 == 5) return ("x"):rep(1e9)')))
end

-- What the server gets back, and what it gave and looks at again, has no methods of the script.
function TestLimits:test_results_are_plain()
  local trap = "setmetatable({ 1 }, { __pairs = function() while true do end end, __index = function() while true do end end, __tostring = function() while true do end end })"
  local argument = {}
  local ok, value = run("local a = ... a.x = " .. trap .. " return { y = " .. trap .. " }", argument)
  lu.assertTrue(ok)
  lu.assertNil(getmetatable(value.y))
  lu.assertNil(getmetatable(argument.x))
  lu.assertEquals({ value.y[1], value.y[2] }, { 1 })
  local array = require("mtx.json").decode("[1]")
  ok, value = run("return ...", array)
  lu.assertTrue(ok)
  lu.assertEquals(getmetatable(value), require("mtx.json").array_mt)
end

TestPermissions = {}

function TestPermissions:test_parse()
  lu.assertEquals(permissions.parse({}), { net = {} })
  lu.assertEquals(permissions.parse({ "models", "storage", "file=/tmp/x/", "net=Localhost:80", "net=a.b:8080" }),
    { models = true, storage = true, file = "/tmp/x", net = { ["localhost:80"] = true, ["a.b:8080"] = true } })
  for _, bad in ipairs({ "all", "*", "model", "file", "file=", "net", "net=host", "net=host:", "models=1", "" }) do
    local ok, message = permissions.parse({ bad })
    lu.assertNil(ok, bad)
    lu.assertStrContains(message, "script_allow")
  end
end
