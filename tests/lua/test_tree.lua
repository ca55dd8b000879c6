-- SPDX-License-Identifier: MIT
-- What the tree says of itself holds: files that documents and comments name are there,
-- every source file names its licence, tests write in their own folder only.
local lu = require("luaunit")

local ROOTS = { "csrc", "lua", "tests", "docs", "examples", "scripts", "templates", "share" }

-- Data is left out unless asked for.
local function files_of(roots, pattern, with_data)
  local out = {}
  local data = with_data and "" or " -path tests/golden -prune -o -path tests/fuzz/corpus -prune -o"
  local pipe = assert(io.popen("find " .. table.concat(roots, " ") .. data .. " -name __pycache__ -prune -o -type f -print"))
  for path in pipe:lines() do
    if path:find(pattern) then out[#out + 1] = path end
  end
  pipe:close()
  return out
end

local function text_of(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("a")
  file:close()
  return text
end

-- Every path and every end of one ("mtx/json.lua", "json.lua") of files and folders.
local ends = {}
for _, path in ipairs(files_of(ROOTS, ".", true)) do
  local at = path
  while at do
    local tail = at
    while tail do
      ends[tail] = true
      tail = tail:match("/(.+)$")
    end
    at = at:match("^(.+)/[^/]*$")
  end
end
for _, path in ipairs({ "README.md", "Makefile", "LICENSE" }) do ends[path] = true end

-- Files of Linux, ggml and llama.cpp.
for _, name in ipairs({ "arch/x86/include/uapi/asm/prctl.h", "arch/arm64/include/uapi/asm/hwcap.h", "ggml.h", "common.h", "quants.c", "convert_lora_to_gguf.py" }) do
  ends[name] = true
end

-- Does some file or folder answer to the name? Words in capitals and '*' stand for anything.
local function exists(name)
  if ends[name] or ends[name .. ".c"] then return true end -- a test program goes by its source
  local pattern, n = name:gsub("[%-%.%+]", "%%%0"):gsub("%*", "[^/]*")
  local wild
  pattern, wild = pattern:gsub("%f[%w]%u%u+%f[%W_]", "[^/]+")
  if n == 0 and wild == 0 then return false end
  for path in pairs(ends) do
    if path:find("^" .. pattern .. "$") then return true end
  end
  return false
end

TestTree = {}

local function check_names(path, text, patterns)
  for _, pattern in ipairs(patterns) do
    for name in text:gmatch(pattern) do
      name = name:gsub("[%./]+$", "")
      lu.assertTrue(exists(name), path .. " names " .. name .. ", which is not there")
    end
  end
end

function TestTree:test_documents_name_files_that_are_there()
  local patterns = { "`([%w_%*%-%./]+%.[ch])`", "`([%w_%*%-%./]+%.lua)`", "`([%w_%*%-%./]+%.def)`", "`([%w_%*%-%./]+%.md)`", "`([%w_%*%-%./]+%.sh)`", "`([%w_%*%-%./]+%.py)`" }
  for _, root in ipairs(ROOTS) do patterns[#patterns + 1] = "%f[%w_./]" .. root .. "/[%w_%*%-%./]+" end
  for _, path in ipairs({ "README.md", table.unpack(files_of({ "docs" }, ".")) }) do check_names(path, text_of(path), patterns) end
end

function TestTree:test_comments_name_files_that_are_there()
  for _, path in ipairs(files_of({ "csrc", "lua", "tests/c", "tests/kern", "scripts" }, "%.[chl][ua]*$")) do
    local comment = path:find("%.lua$") and "%-%-([^\n]*)" or "//([^\n]*)"
    for line in text_of(path):gmatch(comment) do check_names(path, line, { "%f[%w_/][%w_/]+%.[ch]%f[%W]", "%f[%w_/][%w_/]+%.lua%f[%W]" }) end
  end
end

-- The order of layers is the Makefile's.
function TestTree:test_includes_point_down_only()
  local level, n = { bind = 100 }, 0
  for name in text_of("Makefile"):match("\nLAYERS%s*:= ([^\n]*)"):gmatch("%S+") do
    n = n + 1
    level[name] = n
  end
  for _, path in ipairs(files_of({ "csrc" }, "%.[ch]$")) do
    local own = level[path:match("^csrc/(%w+)/")]
    for name in text_of(path):gmatch('\n#include "(%w+)/') do
      lu.assertTrue(not own or not level[name] or level[name] <= own, path .. " includes a file of " .. name)
    end
  end
  lu.assertTrue(n > 10)
end

function TestTree:test_every_source_file_names_its_licence()
  local n = 0
  for _, path in ipairs(files_of(ROOTS, "%.%w+$")) do
    if path:find("%.[ch]$") or path:find("%.lua$") or path:find("%.py$") or path:find("%.sh$") or path:find("%.def$") then
      n = n + 1
      lu.assertTrue(text_of(path):sub(1, 400):find("SPDX-License-Identifier: MIT", 1, true) ~= nil, path .. " does not name its licence")
    end
  end
  lu.assertTrue(n > 500)
end

function TestTree:test_tests_write_where_temp_says()
  for _, path in ipairs(files_of({ "tests" }, "%.[chl][ua]*$")) do
    local text = text_of(path)
    for _, name in ipairs({ "os.tmpname" .. "(", "mkste" .. "mp(", "mkdte" .. "mp(" }) do
      lu.assertTrue(path:find("temp%.%w+$") ~= nil or not text:find(name, 1, true), path .. " calls " .. name .. "); write where tests/lua/temp.lua or tests/c/temp.h says")
    end
  end
end
