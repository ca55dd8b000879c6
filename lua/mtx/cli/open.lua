-- SPDX-License-Identifier: MIT
-- Loading a model for a command: shared options, progress, warnings, errors.
local adapters = require("mtx.model.adapters")
local args = require("mtx.cli.args")
local named = require("mtx.cli.named")
local term = require("mtx.cli.term")
local uv = require("luv")

local open = {}

open.TOKENS = { "max-tokens", "n-predict", "predict", "num-predict" } -- other names of the number of tokens

open.options = {
  { name = "threads", short = "t", kind = "integer", min = 0, value = "N", help = "threads; 0 = usable cores (default 0)" },
  { name = "ctx", short = "c", also = { "ctx-size", "num-ctx", "context" }, kind = "integer", min = 0, max = 2147483647, value = "N", help = "context in tokens; 0 = the model's, at most 4096 (default 0)" },
  { name = "kv-type", kind = "string", value = "TYPE", choices = { "f32", "f16", "bf16", "q8_0" }, help = "cache type: f32, f16, bf16, q8_0 (default f16)" },
  { name = "cpu", kind = "string", value = "TIER", choices = { "scalar", "avx2", "avx512", "amx", "neon" }, help = "cap the CPU tier: scalar, avx2, avx512, amx, neon" },
  { name = "lora", kind = "list", value = "FILE[=SCALE]", help = "apply a LoRA adapter (GGUF), SCALE times (repeatable)" },
  named.option,
  { name = "no-memory-check", kind = "flag", help = "load even when memory looks too small" },
}

-- The context that was asked for; `default` (nil: the engine's own) when none was.
function open.ctx(values, default) return (values.ctx or 0) > 0 and values.ctx or default end

-- MODEL and values as parsed -> model | nil, exit code (already said why). `extra` overrides.
function open.model(name, values, extra) return open.found(values, extra, named.find(name, values.models_dir)) end

-- The same of what named.find gave.
function open.found(values, extra, path, manifest, reason)
  local mtx = require("mtx")
  local bar = term.progress("loading")
  local opts = {
    threads = values.threads, ctx = open.ctx(values), kv_type = values.kv_type, cpu = values.cpu, no_memory_check = values.no_memory_check,
    progress = bar,
    warn = function(line) io.stderr:write("mtx: warning: ", line, "\n") end,
  }
  for k, v in pairs(extra or {}) do opts[k] = v end
  opts.lora = {}
  for i, file in ipairs(manifest and manifest.adapters or {}) do opts.lora[i] = file end
  for _, text in ipairs(values.lora) do table.insert(opts.lora, adapters.spec(text)) end
  if manifest then
    opts.template = opts.template or manifest.template
    opts.ctx = opts.ctx or manifest.parameters and manifest.parameters.num_ctx
  end
  local model, message = mtx.load(path, opts)
  bar(nil)
  if not model then
    if reason then
      message = reason
    elseif named.remote(path) then
      message = path .. " is not here; `mtx pull " .. path .. "` fetches it"
    elseif not path:find("/", 1, true) and not path:find("%.gguf$") and not uv.fs_stat(path) then
      message = ("%s is not here; `mtx list` shows the models there are, `mtx pull %s` looks for it in Ollama's registry"):format(path, path)
    end
    return nil, args.failure(message)
  end
  for file, adapter in pairs(model.by_path or {}) do
    local n = adapter:info().n_unused
    if n > 0 then opts.warn(("%s: %d norm%s of the adapter's own are not used"):format(file, n, n == 1 and "" or "s")) end
  end
  return model
end

-- Options of a command that loads a model: its own, then the shared ones.
function open.with(...)
  local all = {}
  for _, list in ipairs({ ... }) do table.move(list, 1, #list, #all + 1, all) end
  return table.move(open.options, 1, #open.options, #all + 1, all)
end

return open
