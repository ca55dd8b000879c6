-- SPDX-License-Identifier: MIT
-- Every option of mtx in one table: name, kind, unit, default, check and the
-- environment names understood. Values come from the config file, then the
-- environment, then flags; each later source wins, and the source is kept so
-- that `mtx config` can tell why a value is what it is.
local uv = require("luv")
local duration = require("mtx.duration")
local infile = require("mtx.infile")
local nearest = require("mtx.nearest")
local sorted_keys = require("mtx.sorted_keys")

local config = {}

local function list_of(text)
  local out = {}
  for item in text:gmatch("[^,%s]+") do out[#out + 1] = item end
  return out
end

-- Text from a flag or the environment -> value; nil, message when malformed.
local READ = {
  string = function(s) return s end,
  integer = function(s)
    local n = math.tointeger(tonumber(s))
    if not n then return nil, "a whole number is needed" end
    return n
  end,
  number = function(s)
    local n = tonumber(s)
    if not n or n ~= n then return nil, "a number is needed" end
    return n
  end,
  boolean = function(s)
    s = s:lower()
    if s == "1" or s == "true" or s == "yes" or s == "on" or s == "" then return true end
    if s == "0" or s == "false" or s == "no" or s == "off" then return false end
    return nil, "true or false is needed"
  end,
  list = function(s) return list_of(s) end,
  duration = function(s)
    local n = duration.parse(tonumber(s) or s)
    if not n then return nil, "a duration such as 5m, 1h30m or 300 (seconds) is needed" end
    return n
  end,
}

local LUA_TYPE = { string = "string", integer = "number", number = "number", boolean = "boolean", list = "table" }

local function range(low, high)
  return function(v)
    if v < low or (high and v > high) then
      return nil, high and ("must be between " .. low .. " and " .. high) or ("must be at least " .. low)
    end
    return true
  end
end

local function one_of(...)
  local names = { ... }
  return function(v)
    for _, n in ipairs(names) do if n == v then return true end end
    return nil, "must be one of " .. table.concat(names, ", ")
  end
end

local function opt(name, kind, default, env, help, check, unit)
  return { name = name, kind = kind, default = default, env = env, help = help, check = check, unit = unit }
end

config.OPTIONS = {
  opt("host", "string", "127.0.0.1", { "MATRICXON_HOST", "MLXFORGE_HOST" }, "address to listen on; a public one needs a key or --insecure"),
  opt("port", "integer", 11434, { "MATRICXON_PORT", "MLXFORGE_PORT" }, "TCP port; 0 takes a free one", range(0, 65535)),
  opt("listen", "list", {}, {}, "further listeners: HOST:PORT or unix:PATH"),
  opt("socket_mode", "string", "600", {}, "permissions of Unix sockets, octal; 660 lets a proxy of the same group in", function(v)
    if v:find("^[0-7][0-7][0-7]$") then return true end
    return nil, "must be three octal digits such as 600 or 660"
  end),
  opt("insecure", "boolean", false, {}, "serve a public address without any key"),
  opt("models_dir", "string", "./models", { "MATRICXON_MODELS_DIR", "OLLAMA_MODELS" }, "folder scanned for models"),
  opt("lora", "list", {}, {}, "LoRA adapters, FILE or FILE=SCALE; used by all requests that name none themselves (SCALE 0: on demand)"),
  opt("max_loaded_models", "integer", 2, { "MATRICXON_MAX_LOADED_MODELS", "OLLAMA_MAX_LOADED_MODELS" }, "models in memory at once", range(1, 64)),
  opt("keep_alive", "duration", 300, { "MATRICXON_DEFAULT_KEEP_ALIVE_SECONDS", "OLLAMA_KEEP_ALIVE" }, "how long an unused model stays loaded; negative = for ever", nil, "s"),
  opt("memory_margin", "number", 1.2, { "MATRICXON_MEMORY_SAFETY_MARGIN" }, "memory wanted times this must be free", range(1.1, 1.8)),
  opt("ctx", "integer", 0, { "MLXFORGE_MAX_CTX", "OLLAMA_CONTEXT_LENGTH", "MTX_MAX_CTX" }, "context of a request; 0 = the model's, at most 4096", range(0, 1 << 24), "tokens"),
  opt("parallel", "integer", 8, { "MATRICXON_MAX_DECODE_BATCH", "OLLAMA_NUM_PARALLEL", "MTX_MAX_BATCH" }, "requests decoded together per model", range(1, 256)),
  opt("threads", "integer", 0, { "MATRICXON_TORCH_THREADS" }, "compute threads; 0 = usable cores", range(0, 1024)),
  opt("cpu", "string", "auto", { "MATRICXON_GEMV_BACKEND", "MTX_KERNELS" }, "highest kernel tier: auto, scalar, avx2, avx512, amx, neon",
    one_of("auto", "scalar", "avx2", "avx512", "amx", "neon")),
  opt("device", "string", "cpu", { "MATRICXON_DEVICE" }, "where models run", one_of("cpu")),
  opt("kv_type", "string", "f16", {}, "type of the KV cache: f32, f16, bf16, q8_0", one_of("f32", "f16", "bf16", "q8_0")),
  opt("kv_budget_mb", "integer", 0, {}, "memory for KV pages; 0 = by free memory", range(0, 1 << 24), "MiB"),
  opt("cache_mb", "integer", 2048, { "MATRICXON_PROMPT_CACHE_BUDGET_MB" }, "memory for prefixes of finished requests", range(0, 1 << 24), "MiB"),
  opt("cache_shared", "boolean", false, {}, "let different keys reuse one another's prefixes"),
  opt("persist", "boolean", false, { "MATRICXON_PERSIST_PROMPT_CACHE" }, "keep the prompt cache on disk when a model is unloaded or the server stops (prompts in plain form, readable by you alone)"),
  opt("persist_budget_mb", "integer", 4096, { "MATRICXON_PERSIST_CACHE_BUDGET_MB" }, "size of all its files", range(0, 1 << 24), "MiB"),
  opt("persist_ttl_hours", "integer", 168, { "MATRICXON_PERSIST_CACHE_TTL_HOURS" }, "files unused for longer go", range(1, 1 << 20), "h"),
  opt("persist_every", "duration", 60, {}, "and that often while the server runs, earlier when it has nothing to do; 0 = only then", nil, "s"),
  opt("persist_dir", "string", "", { "MATRICXON_PROMPT_CACHE_DIR" }, "its folder; empty = mtx/prompts in the user's cache folder"),
  opt("slot_save_path", "string", "", { "LLAMA_ARG_SLOT_SAVE_PATH" }, "folder for POST /slots/:id?action=save; empty = not offered"),
  opt("max_waiting", "integer", 256, { "MLXFORGE_MAX_WAITING", "OLLAMA_MAX_QUEUE" }, "requests waiting per model; more are refused", range(1, 65536)),
  opt("max_waiting_tokens", "integer", 1 << 20, {}, "tokens of the prompts that wait per model; more are refused", range(1), "tokens"),
  opt("draft", "string", "off", {}, "guess tokens ahead where requests say nothing of it: off, lookup (what followed the same text before)", one_of("off", "lookup")),
  opt("draft_max", "integer", 15, { "LLAMA_ARG_DRAFT_MAX" }, "longest draft, where requests name none", range(1, 32), "tokens"),
  opt("policy", "string", "fcfs", {}, "scheduling: fcfs, fair, or a Lua file"),
  opt("script", "string", "", {}, "Lua file with routes, hooks and samplers"),
  opt("script_allow", "list", {}, {}, "what the script may use: models, storage, file=DIR, net=HOST:PORT"),
  opt("api_key", "list", {}, { "LLAMA_API_KEY" }, "keys accepted for infer and embed"),
  opt("admin_key", "list", {}, {}, "keys accepted for everything"),
  opt("keys_file", "string", "", {}, "file of hashed keys (mtx keys)"),
  opt("origins", "list", {}, { "OLLAMA_ORIGINS" }, "further origins browsers may call from"),
  opt("allowed_hosts", "list", {}, {}, "further Host names that are fine on a loopback server"),
  opt("requests_per_minute", "integer", 0, {}, "limit of the whole server; 0 = none", range(0)),
  opt("tokens_per_minute", "integer", 0, {}, "limit of the whole server; 0 = none", range(0)),
  opt("key_requests_per_minute", "integer", 0, {}, "limit of each key; 0 = none", range(0)),
  opt("key_tokens_per_minute", "integer", 0, {}, "limit of each key; 0 = none", range(0)),
  opt("max_body_mb", "number", 20, {}, "largest request body", range(0.001, 1024), "MiB"),
  opt("max_connections", "integer", 1024, {}, "open connections", range(1, 65536)),
  opt("request_timeout", "duration", 0, {}, "longest time for one answer; 0 = none", nil, "s"),
  opt("head_timeout", "number", 10, {}, "time for a request's head", range(0.1, 3600), "s"),
  opt("body_timeout", "number", 30, {}, "longest pause inside a request's body", range(0.1, 3600), "s"),
  opt("idle_timeout", "number", 75, {}, "idle keep-alive connections", range(0.1, 86400), "s"),
  opt("write_timeout", "number", 60, {}, "reader that takes nothing", range(0.1, 86400), "s"),
  opt("drain_timeout", "number", 10, {}, "time running answers get at shutdown", range(0, 3600), "s"),
  opt("max_queued_mb", "number", 4, {}, "bytes waiting for one slow reader", range(0.01, 1024), "MiB"),
  opt("reasoning_fields", "string", "both", {}, "/v1 name of reasoning text: both, reasoning, reasoning_content", one_of("both", "reasoning", "reasoning_content")),
  opt("responses_max", "integer", 1000, {}, "stored /v1/responses", range(0, 1 << 20)),
  opt("responses_ttl", "duration", 86400, {}, "how long they are kept", nil, "s"),
  opt("files_dir", "string", "", {}, "folder of /v1/files and /v1/batches; without one they are off"),
  opt("files_mb", "integer", 4096, {}, "room for those files", range(1, 1 << 24), "MiB"),
  opt("batch_parallel", "integer", 4, {}, "requests of one batch that run together", range(1, 256)),
  opt("replay_mb", "integer", 256, {}, "memory for streams kept under X-Conversation-Id; 0 = none", range(0, 1 << 16), "MiB"),
  opt("hub", "string", "https://huggingface.co", { "HF_ENDPOINT" }, "hub that models are pulled from: SCHEME://HOST[:PORT]"),
  opt("hub_token", "string", "", { "HF_TOKEN" }, "token for private and gated models; sent to the hub alone"),
  opt("pull_hosts", "list", {}, {}, "further places that models may come from and redirects lead to: HOST[:PORT], *.DOMAIN, http://HOST:PORT"),
  opt("pull_max_gb", "number", 1024, {}, "largest model that is pulled", range(0.000001, 1 << 20), "GiB"),
  opt("props_writable", "boolean", false, {}, "allow POST /props"),
  opt("metrics", "boolean", true, {}, "serve /metrics"),
  opt("log_level", "string", "info", { "MATRICXON_LOG_LEVEL" }, "error, warn, info, debug or trace", one_of("error", "warn", "info", "debug", "trace")),
  opt("log_format", "string", "text", {}, "text or json", one_of("text", "json")),
  opt("trace", "string", "", {}, "file that gets every stage of every request, one JSON object per line"),
  opt("pid_file", "string", "", {}, "file with the process id while serving"),
}

local BY_NAME, NAMES, FLAGS = {}, {}, {}
for i, o in ipairs(config.OPTIONS) do
  BY_NAME[o.name], NAMES[i], FLAGS[i] = o, o.name, o.name:gsub("_", "-")
end
config.by_name = BY_NAME

-- Variables of ours that set no option.
local OTHER_VARIABLES = { MTX_CONFIG = true, MTX_NOW = true }

-- MTX_* variables of the environment (list of names) that mean nothing -> {{name, near = what was meant, or nil}}
local function unknown_variables(names)
  local known, list, out = {}, {}, {}
  for name in pairs(OTHER_VARIABLES) do known[name] = true end
  for _, o in ipairs(config.OPTIONS) do
    known["MTX_" .. o.name:upper()] = true
    for _, name in ipairs(o.env) do known[name] = true end
  end
  for name in pairs(known) do
    if name:find("^MTX_") then list[#list + 1] = name:sub(5) end
  end
  table.sort(list)
  for _, name in ipairs(names) do
    if name:find("^MTX_") and not known[name] then
      local near = nearest(name:sub(5):upper(), list)
      out[#out + 1] = { name = name, near = near and "MTX_" .. near }
    end
  end
  return out
end

-- A sentence for one of config.load's `unknown`.
function config.unknown_text(v)
  return v.name .. " is no option" .. (v.near and "; did you mean " .. v.near .. "?" or "; `mtx config` lists them")
end

local LOG_NUMBERS = { ["0"] = "info", ["1"] = "debug", ["2"] = "trace" }

-- Where a value is to be put right: a flag says it all, a file or variable also needs the option's name.
local function place(o, source) return source:sub(1, 2) == "--" and source or source .. ": " .. o.name end

local function accept(self, o, value, source)
  if o.name == "log_level" and LOG_NUMBERS[tostring(value)] then value = LOG_NUMBERS[tostring(value)] end
  if o.kind == "duration" then
    value = duration.parse(value)
    if not value then return nil, place(o, source) .. ": a duration such as 5m or 300 (seconds) is needed" end
  elseif type(value) ~= LUA_TYPE[o.kind] then
    return nil, place(o, source) .. ": " .. (o.kind == "integer" and "a whole number" or "a " .. o.kind) .. " is needed"
  elseif o.kind == "integer" then
    value = math.tointeger(value)
    if not value then return nil, place(o, source) .. ": a whole number is needed" end
  end
  if o.name == "host" then value = value:match("^%[(.*)%]$") or value end -- an IPv6 address as it stands in a URL
  if o.check then
    local ok, message = o.check(value)
    if not ok then return nil, place(o, source) .. " " .. message end
  end
  self.values[o.name], self.sources[o.name] = value, source
  return true
end

local function accept_text(self, o, text, source)
  local value, message = READ[o.kind](text)
  if value == nil then return nil, place(o, source) .. ": " .. message .. ", not '" .. text .. "'" end
  return accept(self, o, value, source)
end

local FORM <const> = "; it is a Lua table: return { port = 8080 }"

-- A config file is one Lua table without code: `return { port = 8080 }` or the
-- bare fields of it. Calls, loops and functions are refused before it is run.
function config.read_file(path)
  local text, err = infile.read(path, 1 << 20)
  if not text then return nil, "cannot read the config file: " .. err end
  local bare = text:gsub("%-%-[^\n]*", ""):gsub('\\["\'\\]', ""):gsub('"[^"\n]*"', '""'):gsub("'[^'\n]*'", "''")
  for word in bare:gmatch("[%a_][%w_]*") do
    if word == "function" or word == "while" or word == "for" or word == "repeat" or word == "goto" then
      return nil, path .. ": a config file holds data only; `" .. word .. "` is not allowed"
    end
  end
  if bare:find("[():]") then return nil, path .. ": a config file holds data only, no calls" .. FORM end
  if not bare:find("^%s*return") then text = "return {" .. text .. "\n}" end
  local chunk, message = load(text, "@" .. path, "t", {})
  if not chunk then return nil, message end
  local ok, t = pcall(chunk)
  if not ok or type(t) ~= "table" then return nil, path .. ": " .. (ok and "must give a table" .. FORM or t) end
  return t
end

-- sources: {file = path | nil, env = function(name) | nil, variables = list of the environment's names (of the process when env
-- is nil), flags = {name = text or value}} -> {values, sources, unknown = MTX_* variables that mean nothing}, or nil, message.
-- OLLAMA_HOST may be HOST, HOST:PORT or a URL. again(): the same of what the file says then.
function config.load(sources)
  local self = { values = {}, sources = {}, again = function() return config.load(sources) end }
  local env = sources.env or os.getenv
  self.unknown = unknown_variables(sources.variables or sources.env and {} or sorted_keys(uv.os_environ()))
  for _, o in ipairs(config.OPTIONS) do self.values[o.name], self.sources[o.name] = o.default, "default" end
  local path = sources.file or env("MTX_CONFIG") or env("OXILLAMA_CONFIG")
  if path and path ~= "" then
    local t, err = config.read_file(path)
    if not t then return nil, err end
    for k, v in pairs(t) do
      local o = BY_NAME[k]
      if not o then
        local near = nearest(tostring(k), NAMES)
        return nil, path .. ": unknown option " .. tostring(k) .. (near and "; did you mean " .. near .. "?" or "; `mtx config` lists them")
      end
      local ok, message = accept(self, o, v, path)
      if not ok then return nil, message end
    end
  end
  local ollama = env("OLLAMA_HOST")
  if ollama and ollama ~= "" then
    local rest = ollama:gsub("^%a+://", ""):gsub("/.*$", "")
    local host, port = rest:match("^(.-):?(%d*)$")
    if host ~= "" then accept(self, BY_NAME.host, host, "OLLAMA_HOST") end
    if port ~= "" and rest:find(":" .. port .. "$") then self.values.port, self.sources.port = math.tointeger(tonumber(port)), "OLLAMA_HOST" end
  end
  for _, o in ipairs(config.OPTIONS) do
    local names = { table.unpack(o.env) }
    names[#names + 1] = "MTX_" .. o.name:upper()
    for _, name in ipairs(names) do
      local text = env(name)
      if text and text ~= "" then
        local ok, message = accept_text(self, o, text, name)
        if not ok then return nil, message end
      end
    end
  end
  for k, v in pairs(sources.flags or {}) do
    local o = BY_NAME[k]
    if not o then return nil, "unknown option --" .. k:gsub("_", "-") end
    local ok, message
    if type(v) == "string" and o.kind ~= "string" then
      ok, message = accept_text(self, o, v, "--" .. k:gsub("_", "-"))
    else
      ok, message = accept(self, o, v, "--" .. k:gsub("_", "-"))
    end
    if not ok then return nil, message end
  end
  return self
end

-- argv (from index `from`) -> flags table and the words that are no flags; or nil, message.
-- Understands --name value, --name=value, --no-name and -h.
function config.parse_flags(argv, from)
  local flags, words, i = {}, {}, from or 1
  while i <= #argv do
    local a = argv[i]
    local name, value = a:match("^%-%-([%w%-_]+)=(.*)$")
    name = name or a:match("^%-%-([%w%-_]+)$")
    if not name then
      if a == "-h" then flags.help = true
      elseif a:find("^%-.") then return nil, "unknown option " .. a
      else words[#words + 1] = a end
    else
      local key = name:gsub("-", "_")
      local o = BY_NAME[key]
      if key == "help" then
        flags.help = true
      elseif key == "config" then
        if not value then i = i + 1; value = argv[i] end
        if not value then return nil, "--config needs a file name" end
        flags.config = value
      elseif not o and BY_NAME[key:gsub("^no_", "")] and BY_NAME[key:gsub("^no_", "")].kind == "boolean" then
        flags[key:gsub("^no_", "")] = false
      elseif not o then
        local near = nearest(name, FLAGS)
        return nil, "unknown option --" .. name .. (near and "; did you mean --" .. near .. "?" or "; `mtx config` lists them")
      elseif o.kind == "boolean" then
        flags[key] = value or true
      else
        if not value then i = i + 1; value = argv[i] end
        if not value then return nil, "--" .. name .. " needs a value" end
        if o.kind == "list" and flags[key] then value = flags[key] .. "," .. value end
        flags[key] = value
      end
    end
    i = i + 1
  end
  return flags, words
end

return config
