-- SPDX-License-Identifier: MIT
-- Hugging Face's hub (or a mirror with its API): what a repository holds, with sizes
-- and, for all large files, their SHA-256. Files are then asked for by the commit.
local check = require("mtx.api.check")
local choose = require("mtx.pull.choose")
local json = require("mtx.json")
local request = require("mtx.pull.request")
local store = require("mtx.pull.store")

local hub = {}

local MAX_LISTING_BYTES = 32 << 20

local function encoded(path)
  return (path:gsub("[^%w%-%._~/]", function(c) return ("%%%02X"):format(c:byte()) end))
end

local function refused(job, name, status)
  if status ~= 401 and status ~= 403 and status ~= 404 then check.fail(502, ("the hub answers %s with status %d"):format(name.repo, status)) end
  local why = job.client.token and "the token of HF_TOKEN may not read it, or it does not exist" or "it does not exist, or it is private or gated and needs a token in HF_TOKEN"
  check.fail(404, ("hf.co/%s cannot be read at the hub: %s"):format(name.repo, why))
end

-- -> the commit, {{path, size, sha256 | nil}}; raises a Fault
local function listing(job, name)
  local base = job.client.hub.url:gsub("/$", "")
  local url = base .. "/api/models/" .. name.repo .. (name.revision and "/revision/" .. encoded(name.revision) or "") .. "?blobs=true"
  local text, status = request.text(job, url, MAX_LISTING_BYTES)
  if not text then refused(job, name, status) end
  local doc = json.decode(text)
  if not json.is_object(doc) or type(doc.sha) ~= "string" or not doc.sha:find("^%x+$") or not json.is_array(doc.siblings) then
    check.fail(502, "the hub's answer for " .. name.repo .. " is no listing of its files")
  end
  local files = {}
  for _, s in ipairs(doc.siblings) do
    if json.is_object(s) and store.safe(s.rfilename) then
      local lfs = json.is_object(s.lfs) and s.lfs or {}
      local size, sum = lfs.size or s.size, lfs.sha256 or lfs.oid
      if math.type(size) == "integer" and size >= 0 then
        files[#files + 1] = { remote = s.rfilename, path = s.rfilename, size = size, sha256 = type(sum) == "string" and #sum == 64 and sum:find("^%x+$") and sum:lower() or nil,
          url = base .. "/" .. name.repo .. "/resolve/" .. doc.sha .. "/" .. encoded(s.rfilename) }
      end
    end
  end
  return doc.sha, files
end

-- -> {files = {{path under the models folder, size, sha256, url}}, from, folder, revision}; raises a Fault
function hub.plan(job, name)
  local revision, files = listing(job, name)
  local place = "hf.co/" .. name.repo
  local chosen, message = choose.gguf(files, name.want)
  local folder = not chosen and not message
  if folder then
    if name.want then message = "it has no GGUF files to choose from; its folder is pulled as hf.co/" .. name.repo
    else chosen, message = choose.folder(files) end
  end
  if not chosen then check.fail(404, place .. ": " .. message) end
  for _, f in ipairs(chosen) do
    if not f.sha256 and not folder then check.fail(502, place .. ": the hub gives no SHA-256 of " .. f.path) end
    f.path = place .. "/" .. f.path
  end
  return { files = chosen, from = folder and place or chosen[1].path, folder = folder, revision = revision }
end

return hub
