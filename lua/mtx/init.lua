-- SPDX-License-Identifier: MIT
-- What `require "mtx"` gives: models, sessions, samplers and tensors, and the C
-- core (mtx.core) below them. Failure returns nil, message, code; misuse raises.
local core = require("mtx.core")

local mtx = { core = core, VERSION = "0.1.0" }

-- mtx.load(path [, opts]) -> model | nil, message, code
-- opts: threads, ctx (longest sequence), kv_type ("f16", "f32", "bf16", "q8_0"),
-- n_parallel (requests that run together), cache_bytes (prefix cache, 0 = off; used by requests with a cache_key),
-- cpu (cap of the CPU tier), no_memory_check, progress(done, total), warn(line), template (Jinja, instead of the model's),
-- kv_tokens, max_rows, max_waiting (limits of its engine, meta/core.lua),
-- lora: LoRA adapters that requests use unless they name others in their own `lora`: an adapter (model:adapter(path)),
-- the path of its file, or a list of these and of {adapter or path, scale}; false = none.
function mtx.load(path, opts)
  return require("mtx.model").load(path, opts)
end

-- mtx.start_load(path [, opts]) -> loading | nil, message, code
-- The same on a thread of its own, for programs with an event loop: loading:fd() is
-- readable at the end, then loading:take() gives the model or the failure. Also
-- loading:progress() and loading:cancel(). opts as above, but for progress.
function mtx.start_load(path, opts)
  return require("mtx.model").start(path, opts)
end

-- mtx.quantize(opts) -> what was done | nil, message
-- Writes a model in fewer bits: {from, to, type = "Q4_K_M", ...}; all options: lua/mtx/quantize/init.lua.
function mtx.quantize(opts)
  require("mtx.quantize.options").check(opts)
  return require("mtx.quantize").run(opts)
end

-- mtx.pull(opts) -> {name, path} | nil, message, code
-- Fetches a model as `mtx pull` does: {name = "hf.co/USER/REPO", ...}; all options: lua/mtx/pull/call.lua.
function mtx.pull(opts)
  return require("mtx.pull.call").pull(opts)
end

-- mtx.tensor(list) or mtx.tensor(n): a vector of numbers.
mtx.tensor = core.tensor

-- mtx.sampler(opts, n_vocab) -> sampler with :sample(logits, history) -> token id.
mtx.sampler = core.sampler

return mtx
