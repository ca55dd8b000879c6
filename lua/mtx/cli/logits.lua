-- SPDX-License-Identifier: MIT
-- `mtx logits`: raw logits of every token of a list, for comparing with other programs.
local args = require("mtx.cli.args")
local named = require("mtx.cli.named")
local open = require("mtx.cli.open")

local logits = { name = "logits", summary = "write the logits of given tokens to a file" }

local options = open.with({
  { name = "tokens", kind = "ids", value = "IDS", help = "token ids: 1,2,3" },
  { name = "output", short = "o", kind = "string", value = "FILE", help = "file to write; - is standard output" },
  { name = "embeddings", kind = "flag", help = "the last hidden state (n_embd floats) instead of logits" },
  { name = "chunk", kind = "integer", min = 1, value = "N", help = "tokens per step (default: all at once)" },
})

logits.help = [[
usage: mtx logits MODEL --tokens 1,2,3 -o FILE [options]

Writes little-endian float32 rows [n_tokens, n_vocab], no header. The KV cache is
in F32. No BOS is added.

]] .. args.help(options)

function logits.run(list)
  local values, code = args.start(logits, options, list, 1)
  if not values then return code end
  if not values.rest[1] then return args.misuse(logits, named.WHICH) end
  if not values.tokens or not values.output then return args.misuse(logits, "--tokens and -o are needed") end
  local ids = values.tokens
  if #ids == 0 then return args.misuse(logits, "--tokens names no token") end
  local model
  model, code = open.model(values.rest[1], values, { kv_type = values.kv_type or "f32", ctx = open.ctx(values, math.max(#ids, 16)) })
  if not model then return code end
  local file, message = io.stdout, nil
  if values.output ~= "-" then file, message = io.open(values.output, "wb") end
  if not file then return args.failure(message) end
  local written, why = true, nil
  local function write(bytes)
    if written then written, why = file:write(bytes) end
  end
  -- The file ends here: `failed`, or what kept it from being written, as the exit code.
  local function ended(failed)
    local closed, reason = file:close()
    model:close()
    if failed then return args.failure(failed) end
    if not written or not closed then return args.failure("cannot write " .. values.output .. ": " .. (why or reason)) end
    return 0
  end
  if values.embeddings then
    local lists
    lists, message = model:embed({ ids }, { pooling = "none" })
    for _, v in ipairs(lists and lists[1] or {}) do write(("<" .. ("f"):rep(#v)):pack(table.unpack(v))) end
    return ended(not lists and message)
  end
  local session = assert(model:session())
  local step = values.chunk or #ids
  for at = 1, #ids, step do
    local rows
    rows, message = session:eval(table.move(ids, at, math.min(at + step - 1, #ids), 1, {}), { all = true })
    if not rows then break end
    message = nil
    write(rows:bytes())
  end
  session:close()
  return ended(message)
end

return logits
