-- SPDX-License-Identifier: MIT
-- `for` nodes -> closures.
--
-- Only the fields of `loop` that the body names are kept up to date; a body that
-- uses `loop` in any other way (hands it to a macro, say) gets all of them.
local values = require("mtx.chat.jinja.values")
local call = require("mtx.chat.jinja.call")
local output = require("mtx.chat.jinja.output")
local Scope = require("mtx.chat.jinja.scope")
local S = require("mtx.chat.jinja.state")

local LOOP = values.LOOP
local NO_ITEM = values.undefined("there is no such item in the loop")
local FIELDS = { "index", "index0", "first", "last", "length", "revindex", "revindex0", "previtem", "nextitem", "depth", "depth0", "cycle", "changed" }

-- The set of fields of `loop` that a body needs; nil if it never names loop.
local function fields_used(node)
  local used
  local function visit(name, parent)
    if name.name ~= "loop" then return end
    used = used or {}
    local field = parent and ((parent.t == "attr" and parent.name) or (parent.t == "item" and parent.key.t == "const" and parent.key.value))
    if field then used[field] = true else for _, f in ipairs(FIELDS) do used[f] = true end end
  end
  Scope.each_name(node.body, visit)
  if node.recursive then
    used = used or {}
    used.depth = true
  end
  return used
end

local function add_functions(loop, used)
  if used.cycle then
    loop.cycle = call.builtin(function(args)
      local n = args.n or #args
      if n == 0 then S.fail("loop.cycle needs at least one item") end
      return args[loop.index0 % n + 1]
    end)
  end
  if used.changed then
    local last
    loop.changed = call.builtin(function(args)
      local now = values.tuple(table.move(args, 1, args.n or #args, 1, {}))
      if last and values.equal(last, now) then return false end
      last = now
      return true
    end)
  end
end

-- Brings the fields to turn i of items.
local function turn(loop, used, items, i, n)
  loop.index0, loop.index, loop.length = i - 1, i, n
  if used.first then loop.first = i == 1 end
  if used.last then loop.last = i == n end
  if used.revindex then loop.revindex = n - i + 1 end
  if used.revindex0 then loop.revindex0 = n - i end
  if used.previtem then loop.previtem = i > 1 and items[i - 1] end
  if used.previtem and i == 1 then loop.previtem = NO_ITEM end
  if used.nextitem then
    loop.nextitem = items[i + 1]
    if i == n then loop.nextitem = NO_ITEM end
  end
end

-- Items that pass the loop's own `if`, judged in a scope of their own.
local function filter_items(compile, X, C, node, scope)
  local own, names = Scope.new(scope), {}
  Scope.target_names(node.target, names)
  for _, name in ipairs(names) do own:declare(name) end
  local store, test = compile.store(C, node.target, own), X.condition(C, node.test, own)
  return function(F, items)
    local kept = {}
    for i = 1, #items do
      S.step(1)
      store(F, items[i])
      if test(F) then kept[#kept + 1] = items[i] end
    end
    return kept
  end
end

-- loop(children): the same body over other items, its text returned. The slots of
-- the turn that calls are kept aside meanwhile.
local function recursion(compile, F, run, first_slot, last_slot, depth)
  return function(iterable)
    if iterable == nil then S.fail("loop(...) needs something to walk") end
    S.enter()
    local kept = table.move(F, first_slot, last_slot, 1, {})
    local result = output.capture(function() return run(F, iterable, depth + 1) end, F)
    for i = first_slot, last_slot do F[i] = kept[i - first_slot + 1] end
    S.depth = S.depth - 1
    return result
  end
end

return function(compile, X, C, node, scope)
  local iter, at = X.value(C, node.iter, scope), node.at
  local keep = node.test and filter_items(compile, X, C, node, scope)
  local own, names, used = Scope.new(scope), {}, fields_used(node)
  local first_slot = own.frame.n + 1
  Scope.target_names(node.target, names)
  for _, name in ipairs(names) do own:declare(name) end
  local loop_slot = used and own:declare("loop")
  own:declare_sets(node.body)
  local store, body = compile.store(C, node.target, own), compile.body(C, node.body, own)
  local item_slot = node.target.t == "name" and own.slots[node.target.name]
  local start, last_slot = own:starter(), own.frame.n
  local other
  if node.other then
    local else_scope = Scope.new(scope)
    else_scope:declare_sets(node.other)
    local run, begin = compile.body(C, node.other, else_scope), else_scope:starter()
    other = function(F)
      if begin then begin(F) end
      return run(F)
    end
  end

  local function run(F, iterable, depth)
    S.at = at
    local items = values.iterate(iterable)
    if keep then items = keep(F, items) end
    local n = #items
    if n == 0 then
      if other then return other(F) end
      return nil
    end
    local loop = used and setmetatable({ depth = depth, depth0 = depth - 1 }, LOOP)
    if loop then add_functions(loop, used) end
    if node.recursive then loop[1] = recursion(compile, F, run, first_slot, last_slot, depth) end
    for i = 1, n do
      local left = S.steps - 1
      S.steps = left
      if left < 0 then S.step(0) end
      if start then start(F) end
      if item_slot then F[item_slot] = items[i] else store(F, items[i]) end
      if loop then
        turn(loop, used, items, i, n)
        F[loop_slot] = loop
      end
      if body(F) == "break" then break end
    end
  end
  return function(F) return run(F, iter(F), 1) end
end
