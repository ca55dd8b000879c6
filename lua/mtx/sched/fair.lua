-- SPDX-License-Identifier: MIT
-- Fair between keys: of the waiting requests, the next is always from the key
-- with the least work running and already ordered, so that one key with a
-- hundred requests does not stand before another's single one. Within a key:
-- priority, then deadline, then arrival; short prompts win ties.
local function before(a, b)
  if a.priority ~= b.priority then return a.priority > b.priority end
  if (a.deadline or math.huge) ~= (b.deadline or math.huge) then return (a.deadline or math.huge) < (b.deadline or math.huge) end
  if a.arrived ~= b.arrived then return a.arrived < b.arrived end
  if a.n_prompt ~= b.n_prompt then return a.n_prompt < b.n_prompt end
  return a.id < b.id
end

-- A request's weight: its prompt, which is what admission costs the others.
local function weight(job) return 256 + job.n_prompt end

return function(view)
  local load, queues, keys = {}, {}, {}
  for _, job in ipairs(view.running) do load[job.key] = (load[job.key] or 0) + weight(job) end
  for _, job in ipairs(view.waiting) do
    if not queues[job.key] then
      queues[job.key] = {}
      keys[#keys + 1] = job.key
    end
    table.insert(queues[job.key], job)
  end
  table.sort(keys)
  for _, key in ipairs(keys) do table.sort(queues[key], before) end
  local order = {}
  while #keys > 0 do
    local best = 1
    for i = 2, #keys do
      if (load[keys[i]] or 0) < (load[keys[best]] or 0) then best = i end
    end
    local key = keys[best]
    local job = table.remove(queues[key], 1)
    order[#order + 1] = job.id
    load[key] = (load[key] or 0) + weight(job)
    if #queues[key] == 0 then table.remove(keys, best) end
  end
  return { order = order }
end
