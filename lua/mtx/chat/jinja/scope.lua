-- SPDX-License-Identifier: MIT
-- Where names live: the compiler's scopes, resolved to slots before anything runs.
--
-- A running template has frames: F[1] is the frame it was made in, F[2..n] are
-- variables (F[0] would need a hash part in each). The whole template is one frame, each call of a macro another. Inside
-- a frame, loops, with, filter blocks and set blocks are scopes: a name set in a
-- scope gets its own slot there, which starts with the outer value each time the
-- scope is entered (each turn of a loop). That is how Jinja keeps a `set` inside a
-- loop from reaching outside. `if` is no scope. A name that no scope sets is free:
-- it is read from the render's variables and the global functions, once per render.
local values = require("mtx.chat.jinja.values")
local S = require("mtx.chat.jinja.state")

local Scope = {}
Scope.__index = Scope

--- A scope in a new frame, or (parent and not new_frame) in its parent's frame.
--- free: the template's list of free names {names..., index = {name -> i}}.
function Scope.new(parent, new_frame, free)
  local frame = (new_frame or not parent) and { n = 1 } or parent.frame
  return setmetatable({ parent = parent, frame = frame, slots = {}, free = free or parent.free, starts = {} }, Scope)
end

--- Gives name a slot in this scope; with_start: it begins with the outer value.
function Scope:declare(name, with_start)
  local slot = self.slots[name]
  if slot then return slot end
  slot = self.frame.n + 1
  self.frame.n = slot
  if with_start then
    local hops, from = self:find(name)
    self.starts[#self.starts + 1] = { slot = slot, from = hops == 0 and from or nil, get = self:loader(name) }
  end
  self.slots[name] = slot
  return slot
end

-- How many frames out, and which slot there; nil for a free name.
function Scope:find(name)
  local scope, hops = self, 0
  while scope do
    local slot = scope.slots[name]
    if slot then return hops, slot end
    if scope.parent and scope.parent.frame ~= scope.frame then hops = hops + 1 end
    scope = scope.parent
  end
end

--- The scope a name is declared in, or nil.
function Scope:owner(name)
  local scope = self
  while scope and not scope.slots[name] do scope = scope.parent end
  return scope
end

local function free_index(free, name)
  local i = free.index[name]
  if not i then
    i = #free + 1
    free[i], free.index[name] = name, i
  end
  return i
end

--- A function(F) that gives the value of name, or nil.
function Scope:loader(name)
  local hops, slot = self:find(name)
  if not hops then
    local i = free_index(self.free, name)
    return function() return S.G[i] end
  elseif hops == 0 then
    return function(F) return F[slot] end
  end
  return function(F)
    for _ = 1, hops do F = F[1] end
    return F[slot]
  end
end

--- The same, with undefined in place of nil. Second, for a name of this very frame: its slot, and what stands for nil.
function Scope:reader(name)
  local undefined = values.undefined("'" .. name .. "' is undefined")
  local hops, slot = self:find(name)
  if hops == 0 then
    return function(F)
      local v = F[slot]
      if v == nil then return undefined end
      return v
    end, slot, undefined
  elseif hops == 1 then
    return function(F)
      local v = F[1][slot]
      if v == nil then return undefined end
      return v
    end
  end
  local load = self:loader(name)
  return function(F)
    local v = load(F)
    if v == nil then return undefined end
    return v
  end
end

--- A function(F) that gives the scope's variables their first values, or nil if
--- there are none. Call after everything was declared.
function Scope:starter()
  local starts = self.starts
  if #starts == 0 then return nil end
  -- A name of the same frame is copied; only the others need a call.
  local copied, got = {}, {}
  for _, start in ipairs(starts) do
    local list = start.from and copied or got
    list[#list + 1] = start
  end
  local to, from = {}, {}
  for i, start in ipairs(copied) do to[i], from[i] = start.slot, start.from end
  local n_copied, n_got = #copied, #got
  return function(F)
    for i = 1, n_copied do F[to[i]] = F[from[i]] end
    for i = 1, n_got do F[got[i].slot] = got[i].get(F) end
  end
end

local function target_names(target, found)
  if target.t == "name" then
    found[#found + 1] = target.name
  elseif target.t == "tuple" then
    for _, item in ipairs(target.items) do target_names(item, found) end
  end
end
Scope.target_names = target_names

local function set_names(body, found)
  for _, node in ipairs(body) do
    if node.t == "set" or node.t == "setblock" then
      target_names(node.target, found)
    elseif node.t == "macro" then
      found[#found + 1] = node.name
    elseif node.t == "if" then
      for _, branch in ipairs(node.branches) do set_names(branch.body, found) end
      if node.other then set_names(node.other, found) end
    end
  end
  return found
end

Scope.set_names = set_names

--- Declares every name that the statements set in this very scope.
function Scope:declare_sets(body)
  for _, name in ipairs(set_names(body, {})) do self:declare(name, true) end
end

-- Room for the variables is made at once: a table that grows slot by slot is copied
-- several times, which is what a call of a small macro would mostly do.
local FRAMES = {
  { 2, function(outer, a) return { outer, a } end },
  { 3, function(outer, a, b) return { outer, a, b } end },
  { 4, function(outer, a, b) return { outer, a, b, nil } end },
  { 6, function(outer, a, b) return { outer, a, b, nil, nil, nil } end },
  { 8, function(outer, a, b) return { outer, a, b, nil, nil, nil, nil, nil } end },
  { 16, function(outer, a, b) return { outer, a, b, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil } end },
}

--- A function(outer frame, a, b) that makes a frame of this scope, its first two variables a and b. Call after everything was declared.
function Scope:frame_maker()
  for _, size in ipairs(FRAMES) do
    if self.frame.n <= size[1] then return size[2] end
  end
  return FRAMES[#FRAMES][2]
end

--- Calls f(name node, parent node) for each use of a name below node.
function Scope.each_name(node, f, parent)
  if node.t == "name" then f(node, parent) end
  for _, child in pairs(node) do
    if type(child) == "table" then Scope.each_name(child, f, node.t and node or parent) end
  end
end

return Scope
