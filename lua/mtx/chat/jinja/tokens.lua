-- SPDX-License-Identifier: MIT
-- The token stream that the two halves of the parser walk.
local Tokens = {}
Tokens.__index = Tokens

-- Nesting of expressions and blocks that a template may have.
local MAX_NESTING = 200

--- lx: what lexer.run returned.
function Tokens.new(lx)
  return setmetatable({ types = lx.types, values = lx.values, offsets = lx.offsets, i = 1, nesting = 0 }, Tokens)
end

function Tokens:fail(message, at)
  error({ template_message = message, at = at or self.offsets[self.i] }, 0)
end

function Tokens:at() return self.offsets[self.i] end
function Tokens:type() return self.types[self.i] end
function Tokens:peek_type() return self.types[self.i + 1] end

--- The current name, or nil if the token is no name.
function Tokens:name() return self.types[self.i] == "name" and self.values[self.i] or nil end

function Tokens:is_name(word) return self.types[self.i] == "name" and self.values[self.i] == word end

function Tokens:describe()
  local t, v = self.types[self.i], self.values[self.i]
  if t == "eof" then return "the end of the template" end
  if t == "block_end" then return "'%}'" elseif t == "variable_end" then return "'}}'" end
  return v ~= nil and ("'" .. tostring(v) .. "'") or ("'" .. t .. "'")
end

function Tokens:skip_if(kind)
  if self.types[self.i] ~= kind then return false end
  self.i = self.i + 1
  return true
end

function Tokens:skip_name(word)
  if not self:is_name(word) then return false end
  self.i = self.i + 1
  return true
end

--- Steps over a token of this type and returns its value.
function Tokens:expect(kind)
  if self.types[self.i] ~= kind then
    local wanted = kind == "block_end" and "%}" or kind == "variable_end" and "}}" or kind
    self:fail("expected '" .. wanted .. "', found " .. self:describe())
  end
  self.i = self.i + 1
  return self.values[self.i - 1]
end

function Tokens:expect_name(word)
  if not self:skip_name(word) then self:fail("expected '" .. word .. "', found " .. self:describe()) end
end

function Tokens:down()
  self.nesting = self.nesting + 1
  if self.nesting > MAX_NESTING then self:fail("nested deeper than " .. MAX_NESTING) end
end

function Tokens:up() self.nesting = self.nesting - 1 end

return Tokens
