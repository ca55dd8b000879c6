-- SPDX-License-Identifier: MIT
-- Writes README's status table from what the golden tests print: `make status`.
-- A row stands only for something a test just passed.
local build = arg[1] or "build"

local function run(command)
  local pipe = assert(io.popen(command .. " 2>&1"))
  local text = pipe:read("a")
  return text, pipe:close()
end

local function rows_of_architectures()
  local text, ok = run(build .. "/tests/c/test_arch")
  assert(ok, "test_arch fails; mend it first")
  local names, worst = {}, 0
  for name, nmse in text:gmatch("ok (%S+) nmse (%S+)") do
    names[#names + 1] = name
    worst = math.max(worst, tonumber(nmse))
  end
  return names, worst
end

local function types_multiplied()
  local text, ok = run(build .. "/tests/kern/test_matmul")
  assert(ok, "test_matmul fails; mend it first")
  local names = {}
  for name in text:gmatch("ok (%S+)\n") do names[#names + 1] = name end
  return names
end

local archs, worst = rows_of_architectures()
local types = types_multiplied()
local lines = {
  "| what | shown by | works |",
  "|---|---|---|",
  ("| architectures: reference logits, bit-identical in any cut | `tests/c/test_arch` (worst NMSE %.1g) | %s |"):format(worst, table.concat(archs, ", ")),
  ("| tensor types: decoded as ggml does, multiplied on every CPU tier | `tests/c/test_quant`, `tests/kern/test_matmul` | %s |"):format(table.concat(types, ", ")),
}

local file = assert(io.open("README.md"))
local readme = file:read("a")
file:close()
local first, last = "<!-- status:begin -->\n", "<!-- status:end -->"
local a, b = readme:find(first, 1, true), readme:find(last, 1, true)
assert(a and b, "README.md has no status marks")
readme = readme:sub(1, a + #first - 1) .. table.concat(lines, "\n") .. "\n" .. readme:sub(b)
file = assert(io.open("README.md", "w"))
file:write(readme)
file:close()
