-- SPDX-License-Identifier: MIT
-- Runs the program as a shell does: `run(ARGUMENTS[, INPUT[, "NAME=VALUE"]])` -> standard output, standard error, exit code.
local temp = require("temp")

local MTX <const> = (os.getenv("BUILD") or "build") .. "/mtx "

return function(command, input, env)
  local out, err = temp.path(), temp.path()
  local feed = input and ("printf '%b' '" .. input .. "' | ") or ""
  local _, _, code = os.execute(feed .. (env and env .. " " or "") .. MTX .. command .. " >" .. out .. " 2>" .. err .. (input and "" or " </dev/null"))
  local function take(path)
    local file = assert(io.open(path, "rb"))
    local text = file:read("a")
    file:close()
    os.remove(path)
    return text
  end
  return take(out), take(err), code
end
