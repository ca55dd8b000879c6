-- SPDX-License-Identifier: MIT
-- The inside of one request's sampler state (csrc/bind/script.c): loads the
-- owner's script anew, where only mtx.sampler does anything, and gives the
-- function the request named. Instructions, time and memory are counted outside.
-- arguments: mtx.core.pattern, text of environment.lua, text and name of the script,
-- name of the sampler, its options as a Lua expression
local pattern, environment_text, script_text, script_name, name, options = ...

local environment = load(environment_text, "=environment", "t")(pattern)
local samplers = {}
local function none() end
local mtx = { store = {}, now = os.time, json = {}, sampler = function(n, f) samplers[n] = f end }
for _, f in ipairs({ "on", "route", "tool", "timer", "log" }) do mtx[f] = none end
setmetatable(mtx, { __index = function(_, k)
  return function() error("mtx." .. tostring(k) .. " is not there in a sampler's state", 2) end
end })

getmetatable("").__index = environment.methods
assert(load(script_text, "=" .. script_name, "t", environment.new({ mtx = mtx })))()
local f = samplers[name] or error("the script has no sampler of this name any more", 0)
local given = load("return " .. options, "=options", "t", {})()
return function(logits, history) return f(logits, history, given) end
