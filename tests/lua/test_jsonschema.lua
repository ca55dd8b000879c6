-- SPDX-License-Identifier: MIT
-- The public JSON-Schema-Test-Suite (tests/golden/jsonschema) against grammars: a valid
-- document is taken whole, compact and spaced; an invalid one is not, unless a warning
-- names the keyword that is not enforced. What deviates is listed here with its reason,
-- and the list is exact: an entry that no longer occurs fails as well.
local lu = require("luaunit")
local cjson = require("cjson")
local G = require("mtx.core").grammar

local GOLDEN = arg[0]:match("^(.*)tests/lua/run%.lua$") .. "tests/golden/jsonschema/"
local DRAFTS = { ["draft2020-12"] = 383, ["draft7"] = 296 }  -- groups in each file
local OPEN = { any_order = true, open_types = true, open_keys = true }

-- Valid documents that a grammar does not write, by file and words of the test's name.
local NOT_WRITTEN = {
  { "format", "only an annotation by default", "formats are held to, as the one who names a format means it" },
  { "optional/bignum", "bignum is a", "numbers have at most 24 digits on each side of the point" },
  { "optional/float-overflow", "if optional overflow handling", "integers are written without exponent" },
  { "optional/format/date-time", "leap second", "most readers refuse second 60" },
  { "optional/format/time", "leap second", "most readers refuse second 60" },
  { "optional/format/date-time", "case-insensitive", "T and Z are written as capitals" },
  { "optional/format/time", "case-insensitive", "Z is written as a capital" },
  { "optional/format/email", "quoted string", "local parts are written without quotes" },
  { "optional/format/hostname", "", "punycode (xn--) is not written", group = "A-label" },
  { "unevaluatedProperties", "when two match", "of anyOf the keys of one branch are written at a time", group = "anyOf" },
  { "unevaluatedProperties", "with no unevaluated", "$dynamicRef is followed as $ref", group = "$dynamicRef" },
  { "unevaluatedItems", "with no unevaluated", "$dynamicRef is followed as $ref", group = "$dynamicRef" },
  { "optional/format/date-time", "fifteen nines", "seconds have at most six digits after the point" },
}
-- Schemas that are refused although some document is valid, by words of the message. The
-- other document is the meta-schema, which the suite takes for known.
local REFUSED = { "$ref to another document is not supported", "of the Unicode properties (\\p) only" }

-- f applied to what is outside of strings.
local function outside(text, f)
  local out, at = {}, 1
  while at <= #text do
    local quote = text:find('"', at, true)
    out[#out + 1] = f(text:sub(at, (quote or #text + 1) - 1))
    if not quote then break end
    local stop = quote + 1
    while text:sub(stop, stop) ~= '"' do stop = stop + (text:sub(stop, stop) == "\\" and 2 or 1) end
    out[#out + 1] = text:sub(quote, stop)
    at = stop + 1
  end
  return table.concat(out)
end

local function spaced(text) return outside(text, function(s) return (s:gsub("[,:]", "%0 ")) end) end
-- 1.0 -> 1: the same value, as grammars spell integers.
local function plain(text) return outside(text, function(s) return (s:gsub("(%d)%.0+%f[^%d]", "%1")) end) end

local function known(list, file, group, name, used)
  for i, e in ipairs(list) do
    if e[1] == file and name:find(e[2], 1, true) and (not e.group or group:find(e.group, 1, true)) then
      used[i] = true
      return true
    end
  end
end

-- f(draft, group) for each group; draft-07's schemas get the $schema that says so.
local function each_group(f)
  for draft, n_groups in pairs(DRAFTS) do
    local n = 0
    for line in io.lines(GOLDEN .. draft .. ".jsonl") do
      local group = cjson.decode(line)
      if draft == "draft7" then
        group.schema = group.schema:gsub("^{", '{"$schema":"http://json-schema.org/draft-07/schema#",', 1):gsub(",}$", "}")
      end
      n = n + 1
      f(draft, group)
    end
    lu.assertEquals(n, n_groups, draft)
  end
end

TestSuite = {}

function TestSuite:test_every_document()
  local count = { valid = 0, invalid = 0, spelled = 0, not_written = 0, warned = 0, refused = 0 }
  local used_written, faults = {}, {}
  local function fault(...) faults[#faults + 1] = table.concat({ ... }, " | ") end
  local function check(g, draft, group, test)
    local name, text, valid = table.unpack(test)
    local takes = g:match(text) == "complete"
    if takes ~= (g:match(spaced(text)) == "complete") then fault("spaced differs", draft, group.file, group.group, name) end
    if valid and takes then
      count.valid = count.valid + 1
    elseif valid and g:match(plain(text)) == "complete" then
      count.spelled = count.spelled + 1
    elseif valid then
      count.not_written = count.not_written + 1
      if not known(NOT_WRITTEN, group.file, group.group, name, used_written) then fault("valid", draft, group.file, group.group, name, text) end
    elseif not takes then
      count.invalid = count.invalid + 1
    elseif #g:warnings() > 0 then
      count.warned = count.warned + 1
    else
      fault("invalid", draft, group.file, group.group, name, text)
    end
  end
  each_group(function(draft, group)
    local g, message = G.schema(group.schema, OPEN)
    if g then
      for _, test in ipairs(group.tests) do check(g, draft, group, test) end
      return
    end
    local some_valid = false
    for _, test in ipairs(group.tests) do some_valid = some_valid or test[3] end
    if not some_valid then  -- nothing can match, and that is what the message says
      lu.assertStrContains(message, "nothing can match")
      count.invalid = count.invalid + #group.tests
      return
    end
    count.refused = count.refused + #group.tests
    if not (message:find(REFUSED[1], 1, true) or message:find(REFUSED[2], 1, true)) then fault("refused", draft, group.file, group.group, message) end
  end)
  lu.assertEquals(faults, {})
  for i, e in ipairs(NOT_WRITTEN) do lu.assertTrue(used_written[i], "no longer deviates: " .. e[1] .. ", " .. e[2]) end
  print(("# valid: %d taken, %d with 1.0 as 1, %d not written; invalid: %d not taken, %d with a warning; %d in refused schemas"):format(
    count.valid, count.spelled, count.not_written, count.invalid, count.warned, count.refused))
end

-- As requests use them (required keys in order, implied types) grammars take less, never more.
function TestSuite:test_defaults_take_nothing_invalid()
  local faults, n_valid, n_taken = {}, 0, 0
  each_group(function(draft, group)
    local g = G.schema(group.schema)
    for _, test in ipairs(g and group.tests or {}) do
      local takes = g:match(test[2]) == "complete"
      n_valid, n_taken = n_valid + (test[3] and 1 or 0), n_taken + (test[3] and takes and 1 or 0)
      if takes and not test[3] and #g:warnings() == 0 then
        faults[#faults + 1] = draft .. " " .. group.file .. ": " .. group.group .. ": " .. test[1]
      end
    end
  end)
  lu.assertEquals(faults, {})
  print(("# by default %d of %d valid documents are taken"):format(n_taken, n_valid))
end

-- strict refuses exactly what would warn, and names the keyword.
function TestSuite:test_strict()
  each_group(function(draft, group)
    local g = G.schema(group.schema, OPEN)
    if not g then return end
    local strict, message, code = G.schema(group.schema, { any_order = true, open_types = true, open_keys = true, strict = true })
    local warnings = g:warnings()
    local what = draft .. " " .. group.file .. ": " .. group.group
    if #warnings == 0 then
      lu.assertNotNil(strict, what .. ": " .. tostring(message))
    else
      lu.assertNil(strict, what)
      lu.assertEquals(code, "unsupported", what)
      lu.assertStrContains(message, warnings[1]:match("^[%w/]+"))
    end
  end)
end
