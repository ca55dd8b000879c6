-- SPDX-License-Identifier: MIT
-- Faults as each dialect says them: status code and body. One table per
-- dialect, because clients branch on exactly these names.
local errors = {}

local KIND_BY_STATUS = { [400] = "invalid", [401] = "auth", [403] = "forbidden", [404] = "not_found", [405] = "method",
  [409] = "conflict", [411] = "invalid", [413] = "too_large", [414] = "invalid", [415] = "invalid", [417] = "invalid",
  [429] = "rate_limit", [431] = "invalid", [408] = "invalid", [500] = "internal", [501] = "unsupported", [502] = "internal",
  [503] = "unavailable", [505] = "invalid", [507] = "unavailable" }

local OPENAI = { invalid = "invalid_request_error", auth = "authentication_error", forbidden = "permission_error",
  not_found = "not_found_error", method = "invalid_request_error", conflict = "conflict_error", too_large = "payload_too_large",
  rate_limit = "rate_limit_error", queue_full = "rate_limit_error", context = "invalid_request_error",
  unsupported = "not_supported_error", unavailable = "unavailable_error", internal = "server_error" }

local ANTHROPIC = { invalid = "invalid_request_error", auth = "authentication_error", forbidden = "permission_error",
  not_found = "not_found_error", method = "invalid_request_error", conflict = "invalid_request_error",
  too_large = "request_too_large", rate_limit = "rate_limit_error", queue_full = "overloaded_error",
  context = "invalid_request_error", unsupported = "invalid_request_error", unavailable = "overloaded_error", internal = "api_error" }

-- Queue full has its own status in each dialect (api.md, section 8).
local QUEUE_STATUS = { openai = 429, ollama = 503, anthropic = 529, llama = 503 }

local function kind_of(fault) return fault.kind or KIND_BY_STATUS[fault.status] or (fault.status >= 500 and "internal" or "invalid") end

local BODY = {}

function BODY.ollama(fault) return { error = fault.message } end

function BODY.openai(fault, kind)
  local null = require("mtx.api.wire").null
  local e = { message = fault.message, type = OPENAI[kind], param = fault.param or null, code = fault.code or null }
  if kind == "context" then e.code = "context_length_exceeded" end
  if kind == "auth" then e.code = fault.code or "invalid_api_key" end
  for k, v in pairs(fault.extra or {}) do e[k] = v end
  return { error = e }
end

function BODY.anthropic(fault, kind, id)
  return { type = "error", error = { type = ANTHROPIC[kind], message = fault.message }, request_id = id }
end

function BODY.llama(fault, kind, _, status)
  local e = { code = status, message = fault.message, type = kind == "context" and "exceed_context_size_error" or OPENAI[kind] }
  if kind == "queue_full" then e.type = "unavailable_error" end
  for k, v in pairs(fault.extra or {}) do e[k] = v end
  return { error = e }
end

-- Every route's dialect must be one of these.
function errors.speaks(dialect) return BODY[dialect] ~= nil end

-- dialect, Fault, request id -> HTTP status, body table.
function errors.of(dialect, fault, id)
  local kind = kind_of(fault)
  local status = kind == "queue_full" and QUEUE_STATUS[dialect] or fault.status
  return status, BODY[dialect](fault, kind, id, status)
end

return errors
