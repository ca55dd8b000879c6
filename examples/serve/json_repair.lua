-- SPDX-License-Identifier: MIT
-- JSON repair: takes the first JSON object out of a whole reply that has prose
-- or a code fence around it, and leaves other replies alone.
mtx.on("response", function(result)
  for _, c in ipairs(result.choices) do
    local first = string.find(c.text, "{", 1, true)
    if first and not mtx.json.decode(c.text) then
      for last = #c.text, first, -1 do
        if string.sub(c.text, last, last) == "}" then
          local text = string.sub(c.text, first, last)
          if mtx.json.decode(text) then
            c.text = text
            break
          end
        end
      end
    end
  end
end)
