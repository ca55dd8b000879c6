-- SPDX-License-Identifier: MIT
-- A server over the scripted engine with a folder for uploads, and what a client of /v1/files and /v1/batches asks of it.
local cjson = require("cjson")
local uv = require("luv")
local client = require("http_client")
local fixture = require("http_fixture")
local temp = require("temp")

-- dir: where uploads lie; ctx and port: of the running server.
local files = {}

function files.setUp()
  files.dir = temp.path()
  files.start()
end

function files.tearDown()
  fixture.stop(files.ctx)
  os.execute("rm -r " .. files.dir)
end

function files.start(flags)
  flags = flags or {}
  flags.files_dir = files.dir
  files.ctx = fixture.start(flags)
  files.port = files.ctx.port
end

function files.names()
  local out, handle = {}, uv.fs_scandir(files.dir)
  while handle do
    local name = uv.fs_scandir_next(handle)
    if not name then break end
    out[#out + 1] = name
  end
  table.sort(out)
  return out
end

function files.form(fields, file, filename)
  local out = {}
  for k, v in pairs(fields) do out[#out + 1] = '--XX\r\nContent-Disposition: form-data; name="' .. k .. '"\r\n\r\n' .. v .. "\r\n" end
  if file then out[#out + 1] = '--XX\r\nContent-Disposition: form-data; name="file"; filename="' .. (filename or "in.jsonl") .. '"\r\nContent-Type: application/octet-stream\r\n\r\n' .. file .. "\r\n" end
  return table.concat(out) .. "--XX--\r\n"
end

files.FORM = { ["Content-Type"] = 'multipart/form-data; boundary="XX"' }

function files.headers_of(key, more)
  local h = {}
  for k, v in pairs(more or {}) do h[k] = v end
  if key then h.Authorization = "Bearer " .. key end
  return h
end

function files.upload(file, key, purpose)
  return client.request(files.port, "POST", "/v1/files", files.form({ purpose = purpose or "batch" }, file), files.headers_of(key, files.FORM), 10000)
end

function files.get(path, key) return client.request(files.port, "GET", path, nil, files.headers_of(key)) end
function files.post(path, body, key) return client.request(files.port, "POST", path, body, files.headers_of(key)) end
function files.delete(path, key) return client.request(files.port, "DELETE", path, nil, files.headers_of(key)) end

function files.line(id, text, more)
  local body = { model = "tiny", messages = { { role = "user", content = text } } }
  for k, v in pairs(more or {}) do body[k] = v end
  return cjson.encode({ custom_id = id, method = "POST", url = "/v1/chat/completions", body = body })
end

function files.batch_of(text, key, endpoint)
  local file = files.upload(text, key).json
  return files.post("/v1/batches", { input_file_id = file.id, endpoint = endpoint or "/v1/chat/completions", completion_window = "24h" }, key)
end

function files.ended(id, key)
  local b
  client.wait(function()
    b = files.get("/v1/batches/" .. id, key).json
    return b.status == "completed" or b.status == "failed" or b.status == "cancelled" or b.status == "expired"
  end)
  return b
end

function files.answers(id, key)
  local by_id = {}
  for text in files.get("/v1/files/" .. id .. "/content", key).body:gmatch("[^\n]+") do
    local a = cjson.decode(text)
    by_id[a.custom_id] = a
  end
  return by_id
end

return files
