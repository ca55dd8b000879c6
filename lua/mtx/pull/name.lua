-- SPDX-License-Identifier: MIT
-- What the name of a pull means: a repository of the hub, an address, or a model of
-- Ollama's registry; and under which name the model is then listed.
local names = require("mtx.serve.models.names")
local origins = require("mtx.pull.origins")

local name = {}

local NO_NAME <const> = "invalid model name; hf.co/USER/REPO[:QUANT or :FILE], https://HOST/PATH.gguf or NAME[:TAG] of Ollama's registry can be pulled"

local HUB_HOSTS = { ["hf.co"] = true, ["huggingface.co"] = true, ["www.huggingface.co"] = true }

local function good_repo(repo)
  local user, model = repo:match("^([^/]+)/([^/]+)$")
  for _, p in ipairs({ user or "", model or "" }) do
    if #p > 96 or not p:find("^[%w_][%w%._%-]*$") or p:find("..", 1, true) then return false end
  end
  return true
end

local function decoded(text) return (text:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end)) end

-- A tag that a file's name gives: without folders, ending and number of the part.
local function tag_of(want)
  local tag = want:match("[^/]+$"):gsub("%.[gG][gG][uU][fF]$", ""):gsub("%-%d%d%d%d%d%-of%-%d%d%d%d%d$", ""):gsub("[^%w%._%-]", "-")
  return (tag:sub(-80):gsub("^[^%w_]+", ""))
end

-- want: nil, a quantisation or a file; revision: nil for the newest of `main`.
local function of_hub(repo, want, revision)
  if not good_repo(repo) then return nil, "the hub's models are named hf.co/USER/REPO, with :QUANT or :FILE behind" end
  if want == "" or want and want:lower() == "latest" then want = nil end
  local model = names.parse("hf.co/" .. repo .. ":" .. (want and tag_of(want) or "latest"))
  if not model then return nil, "invalid model name" end
  return { kind = "hub", repo = repo, want = want, revision = revision, model = model,
    source = "hf.co/" .. repo .. (revision and "@" .. revision or "") .. (want and ":" .. want:gsub("%.[gG][gG][uU][fF]$", "") or "") }
end

local function of_url(text, hub)
  local u, message = origins.parse((text:gsub("#.*$", "")))
  if not u then return nil, message end
  if HUB_HOSTS[u.host] or origins.same(u, hub) then
    local path = decoded(u.path:gsub("%?.*$", ""))
    local repo, revision, file = path:match("^/([^/]+/[^/]+)/%a+/([^/]+)/(.+)$")
    if repo and path:find("^/[^/]+/[^/]+/resolve/") or repo and path:find("^/[^/]+/[^/]+/blob/") then
      return of_hub(repo, file, revision ~= "main" and revision or nil)
    end
    local bare = path:match("^/([^/]+/[^/]+)/?$")
    if bare then return of_hub(bare) end
    return nil, "this address of the hub is neither a repository nor one of its files"
  end
  local file = decoded(u.path:gsub("%?.*$", ""):match("[^/]*$"))
  if not file:lower():find("%.gguf$") then return nil, "an address must end in .gguf; a model folder is pulled by its name at the hub (hf.co/USER/REPO)" end
  local model = names.parse(tag_of(file))
  if not model then return nil, "the file's name in this address is no name for a model" end
  local sum = text:match("#sha256=(%x+)$")
  if text:find("#", 1, true) and (not sum or #sum ~= 64) then return nil, "only #sha256= and 64 hex digits can stand behind an address" end
  return { kind = "url", url = u, file = file, sha256 = sum and sum:lower(), model = model, source = u.url }
end

-- text; hub: parsed URL of the hub -> {kind = "hub" | "url" | "registry", model = names.parse's result, source = text, ...} | nil, message
function name.parse(text, hub)
  if type(text) ~= "string" or text == "" then return nil, "model is required" end
  if text:find("^[%.~]?/") or text:find("^%.%./") then
    return nil, text:gsub("%c", "?"):sub(1, 200) .. " is a path; what is on this machine needs no pull: `mtx run` takes paths, the server serves what lies in the models folder (a link will do)"
  end
  if #text > 2000 or text:find("[%c%s\127-\255]") then return nil, NO_NAME end
  if text:find("^%a+://") then return of_url(text, hub) end
  local host, rest = text:match("^([^/]+)/(.+)$")
  if host and (HUB_HOSTS[host:lower()] or host:lower() == hub.shown) then
    local repo, want = rest:match("^([^/:]+/[^/:]+):(.*)$")
    return of_hub(repo or rest, want)
  end
  local model = names.parse(text)
  if not model then return nil, NO_NAME end
  return { kind = "registry", model = model, source = model.full }
end

return name
