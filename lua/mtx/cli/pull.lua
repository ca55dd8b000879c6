-- SPDX-License-Identifier: MIT
-- `mtx pull NAME`: fetches a model into the models folder, without a server.
local call = require("mtx.pull.call")
local options = require("mtx.cli.options")
local term = require("mtx.cli.term")
local uv = require("luv")
local wire = require("mtx.api.wire")

local command = { name = "pull", summary = "fetch a model into the models folder", flags = { json = true } }

command.help = [[
usage: mtx pull NAME [--models-dir DIR] [--json]

NAME is one of
  hf.co/USER/REPO            a repository of Hugging Face: its GGUF model (Q4_K_M where there are
                             several), or its model folder (config.json, *.safetensors, tokenizer)
  hf.co/USER/REPO:QUANT      that quantisation, such as Q8_0; Q8 will do
  hf.co/USER/REPO:FILE       that file; all parts of a split one are fetched
  https://HOST/PATH.gguf     an address; #sha256=HEX behind it is held to
  NAME[:TAG]                 a model of Ollama's registry

A pull that was broken off goes on where it was; until then `mtx list` shows it as partial and
`mtx rm` removes it. Sizes and SHA-256 are checked before the model is there; pulling it again
checks them again, and fetches what the source has new. Needs the program curl.

  --json             one JSON object a line: the events of POST /api/pull
  --hub URL          another hub with the same API (also MTX_HUB or HF_ENDPOINT)
  --pull-hosts LIST  further hosts that files may come from
  --pull-max-gb N    the largest model that is pulled, in GiB (default 1024)
A token for private and gated models is taken from HF_TOKEN and sent to the hub alone.]]

-- Shows events as they come: a bar where somebody sees it, else lines.
local function shower(json)
  local bar, tty = term.progress("pulling"), term.is_tty(2)
  local last, tenth, began, first
  return function(e)
    if json then
      print(wire.encode(e))
      return io.stdout:flush()
    end
    if e.completed then
      if not began then began, first = uv.hrtime(), e.overall_completed end
      local seconds = (uv.hrtime() - began) / 1e9
      local rate = seconds > 0.5 and (", %s/s"):format(term.bytes((e.overall_completed - first) // seconds)) or ""
      local text = ("%s of %s%s"):format(term.bytes(e.overall_completed), term.bytes(e.overall_total), rate)
      if tty then return bar(e.overall_completed, e.overall_total, text) end
      local share = e.overall_total > 0 and e.overall_completed * 10 // e.overall_total or 10
      if share ~= tenth then print(("%3d%%  %s"):format(share * 10, text)) end
      tenth = share
    elseif e.status ~= last then
      bar(nil)
      print(e.status)
    end
    last = e.status
    io.stdout:flush()
  end
end

-- Pulls the model `text` names into values.models_dir and shows how far it is. -> the name it is listed under | nil, exit code
-- (already said why)
function command.fetch(text, values, json, label)
  local function failure(message, code)
    if json then print(wire.encode({ error = message })) else io.stderr:write("mtx ", label or "pull", ": ", message, "\n") end
    return nil, code or 1
  end
  local puller, message = require("mtx.pull").new(values, { any_address = true })
  if not puller then return failure(message, 2) end
  local signal, interrupted = uv.new_signal(), false
  local name, fault = call.wait(puller, text, shower(json), function(leave)
    signal:start("sigint", function()
      if interrupted then os.exit(130) end
      interrupted = true
      leave()
    end)
  end)
  signal:close()
  if term.is_tty(2) then io.stderr:write("\r\27[K") end
  if name then return name end
  if interrupted and fault.status == 499 then return failure("interrupted; what is there is kept, the same command goes on from it", 130) end
  return failure(fault.message, fault.status == 400 and 2 or 1)
end

function command.run(args)
  local c, words, own = options.read(command, args, 1)
  if not c then return words end
  local name, code = command.fetch(words[1], c.values, own.json)
  if not name then return code end
  if not own.json then print(("pulled %s; `mtx run %s%s` runs it"):format(name, name, c.sources.models_dir == "--models-dir" and " --models-dir " .. c.values.models_dir or "")) end
  return 0
end

return command
