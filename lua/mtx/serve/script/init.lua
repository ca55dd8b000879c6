-- SPDX-License-Identifier: MIT
-- `mtx serve --script FILE`: the owner's Lua inside the server, in the sandbox.
-- The file sees one global, `mtx`:
--   mtx.on(name, f)    hooks: "request" f(r) may change r.model, r.messages, r.prompt,
--                      r.max_tokens, r.sampler, r.stop, r.think; "prompt" f(text, r) -> text;
--                      "token" f(text, r) -> text | nil (unchanged) | false (stop);
--                      "response" f(result, r) may change result.choices[i].text of whole replies
--   mtx.reject(status, message)             from a hook or route: answer an error
--   mtx.route(method, path, f, {scope})     f(q) -> status, body (table or text); q = {method,
--                      path, params, query, body, json, key}; default scope "infer"
--   mtx.tool(name, {description, parameters}, f)  a tool the server runs itself: f(args) -> text or table
--   mtx.sampler(name, f)   f(logits, history, options) -> token id, or nil: the usual samplers go on from
--                      the logits, which f may have changed. A request asks for it with the field
--                      "sampler" = name (Ollama: in options); "sampler_options" is handed to f. A request
--                      hook may name one too: r.sampler.script = name, r.sampler.script_options = table.
--   mtx.timer(seconds, f), mtx.log(text), mtx.now(), mtx.json.encode/decode
-- With a permission (--script-allow, permissions.lua):
--   mtx.generate{model, messages | prompt, ...}  [models] in a route: runs it, gives {text, choices, usage}
--   mtx.store          [storage] a table that outlives reloads (not restarts)
--   mtx.file.read(name) -> text | nil, message; write(name, text); list()  [file=DIR]
--   mtx.fetch{url, method, body, headers, timeout} -> {status, body} | nil, message  [net=HOST:PORT] in a route
-- An error, an endless loop or too much memory ends that request (or timer turn)
-- only. A reload that fails leaves the running script in place.
--
-- A sampler runs on the model's own thread, once per token, in a Lua state that its
-- request alone has: the file is loaded there anew, only mtx.sampler does anything,
-- and locals of the file live as long as the request. logits is a tensor (index =
-- id + 1), -inf marks what a grammar forbids; history lists prompt and generated ids.
local uv = require("luv")
local auth = require("mtx.serve.auth")
local check = require("mtx.api.check")
local environment = require("mtx.serve.script.environment")
local json = require("mtx.json")
local permissions = require("mtx.serve.script.permissions")
local request = require("mtx.api.request")
local routes = require("mtx.serve.routes")
local sandbox = require("mtx.serve.script.sandbox")
local script_fetch = require("mtx.serve.script.fetch")
local script_file = require("mtx.serve.script.file")
local sorted_keys = require("mtx.sorted_keys")
local wire = require("mtx.api.wire")

local script = {}

local Script = {}
Script.__index = Script

local HOOKS = { request = true, prompt = true, token = true, response = true }
local TOKEN_INSTRUCTIONS, TOOL_INSTRUCTIONS = 1000000, 50000000

local REJECT = {}

local function new_state(self)
  local s = { hooks = {}, routes = routes.new(), tools = {}, tool_list = {}, timers = {}, samplers = {} }
  local api = { now = os.time }
  function api.on(name, f)
    if not HOOKS[name] or type(f) ~= "function" then error("mtx.on: the hooks are request, prompt, token and response", 2) end
    if s.hooks[name] then error("mtx.on: " .. name .. " has a hook already", 2) end
    s.hooks[name] = f
  end
  function api.reject(status, message)
    if math.type(status) ~= "integer" or status < 400 or status > 599 then error("mtx.reject: the status must be 400 to 599", 2) end
    error(setmetatable({ status = status, message = tostring(message) }, REJECT), 0)
  end
  function api.log(text) self.ctx.log("info", "script", { text = tostring(text) }) end
  function api.route(method, path, f, options)
    local scope = options and options.scope or "infer"
    s.routes:add(method, path, { scope = scope, dialect = "openai", script = f, handler = function(x) self:serve(x, f) end })
  end
  function api.tool(name, spec, f)
    if type(name) ~= "string" or type(f) ~= "function" then error("mtx.tool: a name and a function are needed", 2) end
    s.tools[name] = f
    s.tool_list[#s.tool_list + 1] = json.object("type", "function", "function",
      json.object("name", name, "description", spec and spec.description, "parameters", spec and spec.parameters or json.object("type", "object", "properties", json.object())))
  end
  function api.timer(seconds, f)
    if type(seconds) ~= "number" or seconds < 0.05 then error("mtx.timer: at least 0.05 seconds", 2) end
    if #s.timers >= 64 then error("mtx.timer: at most 64 timers", 2) end
    s.timers[#s.timers + 1] = { seconds = seconds, f = f }
  end
  function api.sampler(name, f)
    if type(name) ~= "string" or not name:find("^[%w_%-]+$") or #name > 64 or type(f) ~= "function" then error("mtx.sampler: a name (letters, digits, _ and -) and a function are needed", 2) end
    if s.samplers[name] then error("mtx.sampler: " .. name .. " is there already", 2) end
    s.samplers[name] = true
  end
  for k, f in pairs(api) do api[k] = sandbox.host(f) end
  api.json = { encode = sandbox.host(function(v) return wire.encode(v) end), decode = sandbox.host(json.decode) }
  local may = self.may
  api.store = may.storage and self.store or permissions.denied_table("mtx.store", "storage")
  api.generate = permissions.denied("mtx.generate", "models")
  if may.models then
    function api.generate(options) return coroutine.yield(self.GENERATE, environment.plain(options)) end
  end
  api.fetch = permissions.denied("mtx.fetch", "net=HOST:PORT")
  if next(may.net) then
    function api.fetch(options) return coroutine.yield(self.FETCH, environment.plain(options)) end
  end
  api.file = permissions.denied_table("mtx.file", "file=DIR")
  if may.file then
    api.file = {}
    for k, f in pairs(script_file.new(may.file, self.ctx.writes)) do api.file[k] = sandbox.host(f) end
  end
  return s, api
end

local function load_state(self)
  local s, api = new_state(self)
  local f, text = sandbox.load_file(self.path, { mtx = api })
  if not f then return nil, text end
  s.text = text
  local ok, err = sandbox.call(f, TOOL_INSTRUCTIONS)
  if not ok then return nil, self.path .. ": " .. tostring(err) end
  return s
end

local function start_timers(self)
  for _, t in ipairs(self.state.timers) do
    t.handle = uv.new_timer()
    local ms = math.floor(t.seconds * 1000)
    t.handle:start(ms, ms, function()
      local ok, err = sandbox.call(t.f, TOOL_INSTRUCTIONS)
      if not ok then self.ctx.log("error", "script timer failed", { error = err }) end
    end)
  end
end

-- ctx: {config.script, config.script_allow, log}. nil, message when the file does not load.
function script.new(ctx)
  local may, why = permissions.parse(ctx.config.script_allow or {})
  if not may then return nil, why end
  local self = setmetatable({ ctx = ctx, path = ctx.config.script, may = may, store = {}, GENERATE = {}, FETCH = {} }, Script)
  local s, message = load_state(self)
  if not s then return nil, message end
  self.state = s
  start_timers(self)
  local allowed = table.concat(ctx.config.script_allow or {}, ",")
  ctx.log("info", "script loaded", { file = self.path, allowed = allowed ~= "" and allowed or "nothing beyond requests and answers; --script-allow gives more" })
  return self
end

function Script:close()
  for _, t in ipairs(self.state.timers) do
    if t.handle and not t.handle:is_closing() then t.handle:close() end
  end
end

-- Requests under way keep the functions they started with.
function Script:reload()
  local s, message = load_state(self)
  if not s then return nil, message end
  self:close()
  self.state = s
  start_timers(self)
  return true
end

-- Turns what a script raised into a Fault.
local function raise(self, err)
  if getmetatable(err) == REJECT then check.fail(err.status, err.message) end
  self.ctx.log("error", "script failed", { error = tostring(err) })
  check.fail(500, "the server's script failed; its log has the details", { kind = "internal" })
end

local function call(self, f, limit, ...)
  local r = table.pack(sandbox.call(f, limit, ...))
  if not r[1] then raise(self, r[2]) end
  return table.unpack(r, 2, r.n)
end

function Script:has(hook) return self.state.hooks[hook] ~= nil end

-- What hooks see of a request.
local function view(req)
  return { dialect = req.dialect, task = req.task, model = req.model, messages = req.messages, prompt = req.prompt or (req.prompts and req.prompts[1]),
    max_tokens = req.max_tokens ~= math.huge and req.max_tokens or nil, sampler = req.sampler, stop = req.stop, think = req.think, stream = req.stream,
    key = auth.owner(req.key), n = req.n }
end

-- What a request hook leaves is the owner's word, but it must be of the right kind; else its fault is named, not ours.
local function check_left(self, v)
  local function want(ok, what)
    if not ok then raise(self, "the request hook left " .. what) end
  end
  want(type(v.model) == "string", "no model name")
  want(v.messages == nil or check.is_array(v.messages), "messages that are no list")
  for _, m in ipairs(v.messages or {}) do want(type(m) == "table" and type(m.role) == "string", "a message without a role") end
  want(type(v.sampler) == "table", "a sampler that is no table")
  local _, fault = check.try(request.sampler, v.sampler)
  want(not fault, "a sampler that cannot be used: " .. (fault and fault.message or ""))
  want(v.stop == nil or type(v.stop) == "table", "a stop that is no list of texts")
  for _, s in ipairs(v.stop or {}) do want(type(s) == "string", "a stop that is no list of texts") end
  want(v.think == nil or type(v.think) == "boolean" or type(v.think) == "string", "a think that is neither true, false nor a level")
  want(v.max_tokens == nil or type(v.max_tokens) == "number" and v.max_tokens >= 0, "a max_tokens that is no number of tokens")
end

function Script:request(req)
  local f = self.state.hooks.request
  if not f then return end
  local v = view(req)
  call(self, f, nil, v)
  check_left(self, v)
  req.model_by_script = v.model ~= req.model
  for _, k in ipairs({ "model", "messages", "sampler", "stop", "think" }) do req[k] = v[k] end
  if v.prompt ~= nil and req.prompts then req.prompts[1] = v.prompt elseif v.prompt ~= nil then req.prompt = v.prompt end
  if v.max_tokens ~= nil then req.max_tokens = math.tointeger(v.max_tokens) or req.max_tokens end
end

function Script:prompt(text, req)
  local f = self.state.hooks.prompt
  if not f then return text end
  local new = call(self, f, nil, text, view(req))
  if new ~= nil and type(new) ~= "string" then raise(self, "the prompt hook must return text") end
  return new or text
end

-- -> text, or false = stop here.
function Script:token(text, req)
  local new = call(self, self.state.hooks.token, TOKEN_INSTRUCTIONS, text, req.script_view)
  if new == nil then return text end
  if new ~= false and type(new) ~= "string" then raise(self, "the token hook must return text, nil or false") end
  return new
end

function Script:response(result, req)
  local f = self.state.hooks.response
  if not f then return end
  local v = { choices = {}, usage = { prompt_tokens = result.usage.n_prompt, completion_tokens = result.usage.n_generated } }
  for i, c in ipairs(result.choices) do v.choices[i] = { text = c.text, thinking = c.thinking, finish_reason = c.reason } end
  call(self, f, nil, v, view(req))
  for i, c in ipairs(result.choices) do
    local t = v.choices[i] and v.choices[i].text
    if type(t) == "string" then c.text = t end
  end
end

-- name, arguments (table) -> text of the result. A tool's error goes to the model.
function Script:run_tool(name, arguments)
  local ok, result = sandbox.call(self.state.tools[name], TOOL_INSTRUCTIONS, arguments)
  if not ok then
    self.ctx.log("warn", "script tool failed", { tool = name, error = tostring(result) })
    return "Error: " .. tostring(result):gsub("^[^:]*:%d+: ", "")
  end
  return type(result) == "string" and result or wire.encode(result == nil and wire.null or result)
end

-- ---- samplers -------------------------------------------------------------------

local function own_text(name)
  local path = assert(package.searchpath("mtx.serve.script." .. name, package.path))
  local f = assert(io.open(path, "rb"))
  local text = f:read("a")
  f:close()
  return text
end

-- A value of a JSON body as a Lua expression.
local function literal(v, depth)
  if type(v) ~= "table" then return v == json.null and "nil" or string.format("%q", v) end
  if depth > 16 then check.fail(400, "sampler_options is nested too deeply", { param = "sampler_options" }) end
  local out = {}
  for k, x in pairs(v) do out[#out + 1] = ("[%q]=%s"):format(k, literal(x, depth + 1)) end
  return "{" .. table.concat(out, ",") .. "}"
end

local texts

-- What engine:submit takes as sampler_script for the script's sampler `name`. Raises Faults.
function Script:sampler(name, options)
  if not self.state.samplers[name] then
    local names = sorted_keys(self.state.samplers)
    check.fail(400, "no sampler is called " .. string.format("%q", name) .. "; the server's script has " .. (names[1] and table.concat(names, ", ") or "none"), { param = "sampler" })
  end
  texts = texts or { environment = own_text("environment"), state = own_text("sampler_state") }
  return { code = texts.state, args = { texts.environment, self.state.text, self.path:match("[^/]*$"), name, literal(options or {}, 0) } }
end

-- ---- routes ---------------------------------------------------------------------

local function reply(x, status, body, ctype)
  if math.type(status) ~= "integer" or status < 200 or status > 599 then error("a route must return a status and a body") end
  if type(body) == "table" then return x:send(status, wire.encode(body)) end
  x:send(status, tostring(body or ""), ctype or "text/plain; charset=utf-8")
end

-- Runs a route's function; mtx.generate and mtx.fetch suspend it until the answer is there.
function Script:serve(x, f)
  local q = { method = x.req.method, path = x.req.path, params = x.params or {}, query = routes.query(x.req.query), body = x.body,
    json = json.decode(x.body), key = auth.owner(x.key) }
  local task = sandbox.task(f)
  local function step(...)
    local r = table.pack(task:resume(...))
    if not r[1] then raise(self, r[2]) end
    if not task:dead() then
      local function later(...) if not x.gone then self.ctx.app:run_fiber(x, step, ...) end end
      if r[2] == self.GENERATE then return require("mtx.serve.script.generate").run(self.ctx, x, r[3], later) end
      if r[2] ~= self.FETCH then raise(self, "a route may only wait for mtx.generate and mtx.fetch") end
      local ok, give_up = pcall(script_fetch.run, self.may.net, r[3], later)
      if not ok then raise(self, give_up) end
      x.on_abort = give_up
      return
    end
    reply(x, r[2], r[3], r[4])
  end
  step(q)
end

return script
