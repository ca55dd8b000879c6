-- SPDX-License-Identifier: MIT
-- `mtx bench`: prefill and decode speed of a model on this machine.
local args = require("mtx.cli.args")
local named = require("mtx.cli.named")
local open = require("mtx.cli.open")
local uv = require("luv")

local bench = { name = "bench", summary = "measure prefill and decode speed" }

local options = open.with({
  { name = "p", short = "p", kind = "integer", min = 0, value = "N", default = 512, help = "tokens of the prompt, 0 = skip" },
  { name = "n", short = "n", kind = "integer", min = 0, value = "N", default = 128, help = "tokens to decode, 0 = skip" },
  { name = "repeats", short = "r", kind = "integer", min = 1, value = "N", default = 5, help = "runs counted, after one warm-up" },
  { name = "profile", kind = "flag", help = "time per kind of operation, and outside of them" },
  { name = "json", kind = "flag", help = "print an array of results" },
})

bench.help = [[
usage: mtx bench MODEL [-p 512] [-n 128] [-t N] [--json]

Prints the median of the runs. JSON:
  [{"test":"pp512","tokens_per_second":0.0,"threads":2,"tier":"avx512"}]

]] .. args.help(options)

local function median(list)
  table.sort(list)
  return list[#list // 2 + 1]
end

local function made_up(n, n_vocab)
  local ids = {}
  for i = 1, n do ids[i] = (i * 7919 + 13) % n_vocab end
  return ids
end

local function check(value, message)
  if not value then error({ bench = message }) end
  return value
end

local function time_prefill(model, n, n_vocab)
  local session = check(model:session())
  local ids = made_up(n, n_vocab)
  local t = uv.hrtime()
  check(session:eval(ids))
  t = uv.hrtime() - t
  session:close()
  return n / (t / 1e9)
end

local function time_decode(model, n, n_vocab)
  local session = check(model:session())
  check(session:eval({ 1 }))
  local t = uv.hrtime()
  for i = 1, n do check(session:eval({ (i * 31 + 5) % n_vocab })) end
  t = uv.hrtime() - t
  session:close()
  return n / (t / 1e9)
end

-- Microseconds of a generated token outside the kernels: the batch, pages, the start of threads, the (greedy) sampler,
-- text and events. Median of some runs.
local function step_overhead(model, repeats)
  local n, outside = 32, {}
  for i = 0, repeats do
    model:profile(true)
    local t = uv.hrtime()
    check(model:generate({ tokens = { 1, 2, 3, 4 }, max_tokens = n, temperature = 0, ignore_eos = true }))
    t = uv.hrtime() - t
    for _, row in ipairs(model:profile(false)) do t = t - row.ns end
    if i > 0 then outside[i] = t / 1e3 / n end
  end
  return median(outside)
end

local function print_profile(model, what)
  io.stdout:write(what, "\n")
  for _, row in ipairs(model:profile(false)) do
    io.stdout:write(("  %-14s %9.2f ms %7d calls %7.1f GB/s\n"):format(row.op, row.ns / 1e6, row.calls, row.bytes / math.max(row.ns, 1)))
  end
end

local function measure(model, values)
  local n_vocab = model:info().n_vocab
  local results = {}
  local plans = {
    { "pp" .. values.p, values.p, time_prefill },
    { "tg" .. values.n, values.n, time_decode },
  }
  for _, plan in ipairs(plans) do
    if plan[2] > 0 then
      local runs = {}
      plan[3](model, plan[2], n_vocab)
      if values.profile then model:profile(true) end
      for i = 1, values.repeats do runs[i] = plan[3](model, plan[2], n_vocab) end
      if values.profile then
        print_profile(model, plan[1])
        if plan[3] == time_decode then
          io.stdout:write(("  outside kernels %8.0f us a token, greedy sampler and events included\n"):format(step_overhead(model, values.repeats)))
        end
      end
      results[#results + 1] = { test = plan[1], tokens_per_second = median(runs), threads = model:info().n_threads, tier = model:info().tier }
    end
  end
  return results
end

function bench.run(list)
  local values, code = args.start(bench, options, list, 1)
  if not values then return code end
  if not values.rest[1] then return args.misuse(bench, named.WHICH) end
  if values.p == 0 and values.n == 0 then return args.misuse(bench, "with -p 0 and -n 0 there is nothing to measure") end
  local model
  model, code = open.model(values.rest[1], values, { ctx = open.ctx(values, values.p + values.n + 16) })
  if not model then return code end
  local ok, results = pcall(measure, model, values)
  model:close()
  if not ok then return args.failure(type(results) == "table" and results.bench or results) end
  if values.json then return args.print_json(results) end
  for _, r in ipairs(results) do print(("%-8s %10.1f tokens/s   %d threads, %s"):format(r.test, r.tokens_per_second, r.threads, r.tier)) end
  return 0
end

return bench
