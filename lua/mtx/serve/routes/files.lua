-- SPDX-License-Identifier: MIT
-- /v1/files: upload (multipart, straight to disk), list, read, delete. Off until a
-- folder is named (--files-dir); a file belongs to the key that sent it.
local uv = require("luv")
local auth = require("mtx.serve.auth")
local check = require("mtx.api.check")
local fiber = require("mtx.serve.fiber")
local filestore = require("mtx.serve.files.store")
local multipart = require("mtx.http.multipart")
local pump = require("mtx.http.pump")
local routes = require("mtx.serve.routes")
local wire = require("mtx.api.wire")

local M = {}

local PURPOSES = { assistants = true, batch = true, ["fine-tune"] = true, vision = true, user_data = true, evals = true }

function M.object(r)
  return { id = r.id, object = "file", bytes = r.bytes, created_at = r.created_at, filename = r.filename, purpose = r.purpose, status = "processed" }
end

local function off() check.fail(501, "files and batches are switched off; start with --files-dir DIR") end

local function key_of(x) return auth.owner(x.key) end

-- The file of this id that x may see, or a 404.
function M.find(ctx, x, id)
  local r = ctx.files and ctx.files.files[id] or nil
  if not ctx.files then off() end
  if not r or r.key ~= key_of(x) then check.fail(404, "file '" .. wire.clean(id):sub(1, 80) .. "' not found") end
  return r
end

-- Reads the parts while they arrive: purpose (a small field) and file (to disk).
local function upload_sink(ctx)
  return function(x)
    if not ctx.files then return nil, select(2, check.try(off)) end
    local boundary, message = multipart.boundary(x.req.headers["content-type"])
    if not boundary then return nil, check.fault(400, message) end
    if x.req.length and ctx.files.bytes + x.req.length > ctx.files.max + (1 << 16) then
      return nil, check.fault(413, "the server's room for files (" .. (ctx.files.max >> 20) .. " MiB) is used up; delete some")
    end
    local up = { fields = {} }
    x.upload = up
    local function fault(f) up.fault = up.fault or f end
    local function failed(status, text) fault(check.fault(status, text)) end
    local reader = multipart.reader(boundary, function(part)
      if part.name ~= "file" then
        local text = ""
        return function(bytes)
          if not bytes then up.fields[part.name] = text
          elseif #text + #bytes > 4096 then failed(400, "form field " .. wire.clean(part.name):sub(1, 40) .. " is too long")
          else text = text .. bytes end
        end
      end
      if up.writer then
        failed(400, "more than one file")
        return function() end
      end
      local writer, why = ctx.files:create()
      if not writer then fault(why) end
      up.writer, up.filename = writer, part.filename or "file"
      return function(bytes)
        if up.fault or not bytes then return end
        local ok, text = writer:write(bytes)
        if not ok then fault(text) end
      end
    end)
    return function(bytes)
      if not bytes then -- the sender went away
        if up.writer then up.writer:drop() end
        return
      end
      if up.fault then return end
      local ok, text = reader:feed(bytes)
      if not ok then failed(400, text) end
      up.complete = reader:complete()
    end
  end
end

local function upload(ctx)
  return function(x)
    local up = x.upload
    if not up then off() end
    local purpose = up.fields.purpose
    local fault = up.fault
      or not up.complete and check.fault(400, "the multipart body has no end")
      or not up.writer and check.fault(400, "file is required", { param = "file" })
      or not PURPOSES[purpose or ""] and check.fault(400, "purpose must be one of assistants, batch, fine-tune, vision, user_data, evals", { param = "purpose" })
      or #up.filename > 255 and check.fault(400, "the file's name is longer than 255 bytes", { param = "file" })
    if fault then
      if up.writer then up.writer:drop() end
      error(fault, 0)
    end
    local record, why = up.writer:commit({ filename = wire.clean(up.filename), purpose = purpose, key = key_of(x), created_at = os.time() },
      function(fd) return fiber.uv(uv.fs_fsync, fd) end)
    if not record then error(why, 0) end
    x:send(200, wire.encode(M.object(record)))
  end
end

-- Part of an ordered list of records (oldest first) as OpenAI pages it: newest first, limit, after.
function M.page(x, order, mine, object)
  local q = routes.query(x.req.query)
  local limit = tonumber(q.limit) or 100
  limit = math.max(1, math.min(math.floor(limit), 1000))
  local out, more, skip = wire.list(), false, q.after ~= nil
  for i = #order, 1, -1 do
    local r = order[i]
    if skip then
      skip = r.id ~= q.after
    elseif mine(r, q) then
      if #out == limit then
        more = true
        break
      end
      out[#out + 1] = object(r)
    end
  end
  x:send(200, wire.encode({ object = "list", data = out, has_more = more, first_id = out[1] and out[1].id or wire.null, last_id = out[#out] and out[#out].id or wire.null }))
end

-- Sends a stored file's bytes.
function M.content(ctx, x, record)
  local fd = uv.fs_open(ctx.files:path(record.id), "r", 0)
  if not fd then check.fail(404, "the file is gone") end
  x:header("X-Content-Type-Options", "nosniff")
  x:start(200, "application/octet-stream")
  pump.run(x, function(max)
    local bytes = uv.fs_read(fd, max)
    if not bytes then return nil end
    if bytes == "" then return false end
    return bytes
  end, function() uv.fs_close(fd) end)
end

function M.add(ctx)
  local c = ctx.config
  if c.files_dir ~= "" then
    local store, message = filestore.open(c.files_dir, c.files_mb << 20, ctx.writes)
    if not store then return nil, message end
    ctx.files = store
  end
  local function route(method, path, handler, more)
    local r = more or {}
    r.scope, r.dialect, r.handler = "infer", "openai", handler
    ctx.routes:add(method, path, r)
  end
  route("POST", "/v1/files", upload(ctx), { stream_body = upload_sink(ctx), max_body = filestore.MAX_FILE + (1 << 16) })
  route("GET", "/v1/files", function(x)
    if not ctx.files then off() end
    M.page(x, ctx.files.order, function(r, q) return r.key == key_of(x) and (not q.purpose or q.purpose == r.purpose) end, M.object)
  end)
  route("GET", "/v1/files/:id", function(x) x:send(200, wire.encode(M.object(M.find(ctx, x, x.params.id)))) end)
  route("GET", "/v1/files/:id/content", function(x) M.content(ctx, x, M.find(ctx, x, x.params.id)) end)
  route("DELETE", "/v1/files/:id", function(x)
    local r = M.find(ctx, x, x.params.id)
    if ctx.file_in_use and ctx.file_in_use(r.id) then check.fail(409, "a running batch reads this file; cancel it first") end
    ctx.files:remove(r)
    x:send(200, wire.encode({ id = r.id, object = "file", deleted = true }))
  end)
  return true
end

return M
