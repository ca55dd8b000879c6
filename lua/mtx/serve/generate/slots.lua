-- SPDX-License-Identifier: MIT
-- Slots as llama-server knows them: the places in a model's batch, each with the
-- last request that ran there. There is no memory in a slot of its own: saving,
-- restoring and erasing work on the prefix cache, by the tokens of that request.
local slots = {}

-- The slots of a loaded model: [id + 1] = {choice, seed, ids, key}; choice while it runs,
-- ids and key: what it remembers.
local function of(l)
  l.slots = l.slots or {}
  return l.slots
end

-- A choice that runs from now on takes the lowest free slot. ids: its prompt, when slots are to remember.
function slots.take(l, choice, seed, ids, key)
  local list, i = of(l), 1
  while list[i] and list[i].choice do i = i + 1 end
  list[i] = { choice = choice, seed = seed, ids = ids and table.move(ids, 1, #ids, 1, {}), key = key }
  choice.slot = i - 1
end

function slots.add(l, choice, ids)
  local s = choice.slot and of(l)[choice.slot + 1]
  if s and s.ids then table.move(ids, 1, #ids, #s.ids + 1, s.ids) end
end

function slots.leave(l, choice)
  local s = choice.slot and of(l)[choice.slot + 1]
  if s then s.choice = nil end
end

function slots.get(l, id) return of(l)[id + 1] or {} end

-- What slot `id` remembers from now on; nil = nothing.
function slots.set(l, id, ids, key)
  for i = 1, id do of(l)[i] = of(l)[i] or {} end
  of(l)[id + 1] = ids and { ids = ids, key = key } or {}
end

return slots
