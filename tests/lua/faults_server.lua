-- SPDX-License-Identifier: MIT
-- The real engine over a model that says what it is told (chain_model.lua), in a server: what the tests of faults ask.
local lu = require("luaunit")
local chain = require("chain_model")
local client = require("http_client")
local config = require("mtx.config")
local http = require("http_fixture")
local serve = require("mtx.serve")

local DIR = "build/test/faults"
local HALF = "\xC3" -- the first byte of a two-byte character

-- ctx: the running server's; ids: the chain model's token ids by text.
local faults = {}

-- Takes system turns nowhere and two turns of one role not at all.
local STRICT = "{%- set last = namespace(role='') %}{% for m in messages %}{% if m.role == 'system' or m.role == last.role %}"
  .. "{{ raise_exception('Roles must alternate user/assistant <\"x\">') }}{% endif %}{% set last.role = m.role %}{% endfor %}" .. chain.TEMPLATE

local function write_models()
  os.execute("rm -rf " .. DIR .. " && mkdir -p " .. DIR)
  chain.write(DIR .. "/sick.gguf", { scripts = {}, nan = 7 })
  chain.write(DIR .. "/strict.gguf", { scripts = { hello = { "Hel", "lo wor", "ld" } }, template = STRICT })
  chain.write(DIR .. "/go.gguf", { scripts = {}, template = "{{- if .System }}{{ .System }}{{ end }}" })
  local full = { full = { "<think>", "hm", "</think>", "look", "<tool_call>", "\n{\"name\": \"g\", \"arg", "uments\": {\"b\": 2}}\n", "</tool_call>" } }
  chain.write(DIR .. "/full.gguf", { scripts = full })
  chain.write(DIR .. "/full-strict.gguf", { scripts = full, template = STRICT })
  faults.ids = chain.write(DIR .. "/chain.gguf", { n_ctx = 4096, scripts = {
    hello = { "Hel", "lo wor", "ld" },
    half = { "caf", "\xE2\x82" },
    broken = { "odd ", HALF, "and", "\xA9\xA9" },
    halt = { "before", "<|halt|>", "after" },
    thought = { "<think>", "I think", "</think>", "the answer" },
    call = { "<tool_call>", "\n{\"na", "me\": \"g\", \"arg", "uments\": {\"b\"", ": 2}}\n", "</tool_call>" },
  } })
end

-- Over the scripted models, or with flags of its own.
function faults.start(flags)
  if not faults.ids then write_models() end
  local f = { port = "0", models_dir = DIR, log_level = "error", ctx = "2048" }
  for k, v in pairs(flags or {}) do f[k] = v end
  faults.ctx = assert(serve.new(assert(config.load({ env = function() end, flags = f }))))
  assert(serve.listen(faults.ctx))
end

function faults.stop() http.stop(faults.ctx) end

function faults.post(path, body) return client.request(faults.ctx.port, "POST", path, body) end

function faults.chat(text, more)
  local body = { model = "chain", messages = { { role = "user", content = text } }, temperature = 0 }
  for k, v in pairs(more or {}) do body[k] = v end
  return faults.post("/v1/chat/completions", body)
end

function faults.answer(r)
  lu.assertEquals(r.status, 200, r.body)
  return r.json.choices[1].message.content, r.json.choices[1].finish_reason
end

-- Joined content deltas and the last finish_reason of a streamed chat.
function faults.streamed(r)
  local text, finish = {}, nil
  for _, e in ipairs(client.sse(r.body)) do
    local c = e.data ~= "[DONE]" and e.data.choices[1]
    if c then
      text[#text + 1] = type(c.delta.content) == "string" and c.delta.content or ""
      if type(c.finish_reason) == "string" then finish = c.finish_reason end
    end
  end
  return table.concat(text), finish
end

function faults.alive() lu.assertEquals(faults.answer(faults.chat("@hello")), "Hello world") end

return faults
