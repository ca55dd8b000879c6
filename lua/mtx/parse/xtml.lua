-- SPDX-License-Identifier: MIT
-- Kimi K3's XTML: an answer in channels (think, response, tools), whose tags are written between the
-- marks <|open|>, <|close|> and <|sep|>. A call's arguments come one by one with their types, or as one JSON text.
-- Source: the model's own template.
local calls = require("mtx.parse.calls")
local parameters = require("mtx.parse.parameters")
local tagged = require("mtx.parse.tagged")
local values = require("mtx.parse.values")

local xtml = {}

local ATTRIBUTE_BYTES = 1024

function xtml.open(tag) return "<|open|>" .. tag .. "<|sep|>" end
function xtml.close(tag) return "<|close|>" .. tag .. "<|sep|>" end

-- A text as it stands in an attribute.
function xtml.attribute(text) return (text:gsub("&", "&amp;"):gsub('"', "&quot;")) end

-- The attributes of a tag whose name has been read: {name = text} | nil.
local function attributes(r)
  local text = r:before({ "<|sep|>" }, ATTRIBUTE_BYTES)
  if not text then return nil end
  local set = {}
  for name, value in text:gmatch('%f[%w_]([%w_]+)="([^"]*)"') do set[name] = value:gsub("&quot;", '"'):gsub("&amp;", "&") end
  return set
end

-- All arguments as one JSON object, behind its opening tag's name.
local function json_block(p)
  local r = p.r
  if not attributes(r) then return false end
  r:space()
  if r:peek() ~= "{" or not values.json(r, p.arguments) then return false end
  r:space()
  if not r:try(xtml.close("json")) then return false end
  r:space()
  if not r:try(xtml.close("call")) then return false end
  p:done()
  return true
end

-- A call behind its opening tag's name.
local function call(p)
  local r = p.r
  local set = attributes(r)
  local name = set and calls.valid_name(set.tool)
  if not name then return false end
  p:begin(name)
  local first = true
  while true do
    r:space()
    if r:try(xtml.close("call")) then return tagged.end_call(p, first) end
    if first and r:try("<|open|>json") then return json_block(p) end
    local argument = r:try("<|open|>argument") and attributes(r)
    if not argument or not argument.key then return false end
    local kinds
    if argument.type == "string" then kinds = tagged.STRING elseif not argument.type then kinds = parameters.kinds(p.tools[name], argument.key) end
    if not tagged.parameter(p, first, argument.key, kinds, { xtml.close("argument") }) then return false end
    first = false
  end
end

-- The calls behind the tag that opens their channel.
function xtml.calls(p) return calls.section(p, "<|open|>call", nil, xtml.close("tools"), call) end

return xtml
