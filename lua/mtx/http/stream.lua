-- SPDX-License-Identifier: MIT
-- Frames of streamed answers: server-sent events and NDJSON. The data is JSON
-- made by api/wire.lua, which never holds a raw line break, so one value is
-- always one line.
local stream = {}

stream.SSE = "text/event-stream; charset=utf-8"
stream.NDJSON = "application/x-ndjson"
stream.DONE = "data: [DONE]\n\n"
stream.COMMENT = ":\n\n"

function stream.sse(json) return "data: " .. json .. "\n\n" end

function stream.sse_event(name, json) return "event: " .. name .. "\ndata: " .. json .. "\n\n" end

function stream.ndjson(json) return json .. "\n" end

return stream
