-- SPDX-License-Identifier: MIT
-- A line editor for interactive commands: history, cursor keys, completion.
--
-- On a terminal it reads raw bytes through luv; elsewhere it reads plain lines, so
-- that a pipe or a test drives the same code path above it.
local infile = require("mtx.infile")
local uv = require("luv")

local editor = {}
editor.__index = editor

-- opts.history: file to keep lines in (optional); opts.complete(word) -> list of
-- candidates (optional).
function editor.new(opts)
  local self = setmetatable({ lines = {}, complete = opts and opts.complete, path = opts and opts.history }, editor)
  self.tty = uv.guess_handle(0) == "tty" and uv.guess_handle(1) == "tty"
  local file = self.path and infile.open(self.path)
  if file then
    for line in file:lines() do self.lines[#self.lines + 1] = line end
    file:close()
  end
  return self
end

local function remember(self, line)
  if line == "" or line == self.lines[#self.lines] then return end
  self.lines[#self.lines + 1] = line
  local file = self.path and io.open(self.path, "a")
  if file then
    file:write((line:gsub("\n", " ")), "\n")
    file:close()
  end
end

-- ---- the edited line: text and a byte position between characters ---------------

local function prev_char(text, at)
  repeat at = at - 1 until at <= 0 or (text:byte(at + 1) or 0) & 0xC0 ~= 0x80
  return math.max(at, 0)
end

local function next_char(text, at)
  repeat at = at + 1 until at >= #text or text:byte(at + 1) & 0xC0 ~= 0x80
  return math.min(at, #text)
end

local function cells(text) return utf8.len(text) or #text end

local function draw(s)
  local back = cells(s.text:sub(s.at + 1))
  io.stdout:write("\r", s.prompt, s.text, "\27[K")
  if back > 0 then io.stdout:write(("\27[%dD"):format(back)) end
  io.stdout:flush()
end

local function insert(s, bytes)
  s.text = s.text:sub(1, s.at) .. bytes .. s.text:sub(s.at + 1)
  s.at = s.at + #bytes
end

local function cut(s, from, to)
  s.text = s.text:sub(1, from) .. s.text:sub(to + 1)
  s.at = from
end

local function recall(self, s, step)
  local i = s.index + step
  if i < 1 or i > #self.lines + 1 then return end
  if s.index == #self.lines + 1 then s.draft = s.text end
  s.index = i
  s.text = self.lines[i] or s.draft or ""
  s.at = #s.text
end

local function complete(self, s)
  if not self.complete then return insert(s, "  ") end
  local word = s.text:sub(1, s.at):match("[%w_%.:/]*$")
  local found = self.complete(word)
  if #found == 0 then return end
  local common = found[1]
  for _, c in ipairs(found) do
    while c:sub(1, #common) ~= common do common = common:sub(1, -2) end
  end
  if #common > #word then return insert(s, common:sub(#word + 1)) end
  if #found > 1 then io.stdout:write("\r\n", table.concat(found, "  "), "\r\n") end
end

local KEYS = {
  ["\1"] = function(_, s) s.at = 0 end,
  ["\5"] = function(_, s) s.at = #s.text end,
  ["\2"] = function(_, s) s.at = prev_char(s.text, s.at) end,
  ["\6"] = function(_, s) s.at = next_char(s.text, s.at) end,
  ["\11"] = function(_, s) s.text = s.text:sub(1, s.at) end,
  ["\21"] = function(_, s) cut(s, 0, s.at) end,
  ["\23"] = function(_, s) cut(s, #s.text:sub(1, s.at):gsub("%s+$", ""):gsub("%S+$", ""), s.at) end,
  ["\127"] = function(_, s) if s.at > 0 then cut(s, prev_char(s.text, s.at), s.at) end end,
  ["\8"] = function(_, s) if s.at > 0 then cut(s, prev_char(s.text, s.at), s.at) end end,
  ["\9"] = complete,
  ["\12"] = function() io.stdout:write("\27[H\27[2J") end,
  ["\16"] = function(self, s) recall(self, s, -1) end,
  ["\14"] = function(self, s) recall(self, s, 1) end,
  ["\27[A"] = function(self, s) recall(self, s, -1) end,
  ["\27[B"] = function(self, s) recall(self, s, 1) end,
  ["\27[C"] = function(_, s) s.at = next_char(s.text, s.at) end,
  ["\27[D"] = function(_, s) s.at = prev_char(s.text, s.at) end,
  ["\27[H"] = function(_, s) s.at = 0 end,
  ["\27[F"] = function(_, s) s.at = #s.text end,
  ["\27[3~"] = function(_, s) if s.at < #s.text then cut(s, s.at, next_char(s.text, s.at)) end end,
}

-- Takes bytes as they come; sets s.done to "line", "end" or "interrupt".
local function feed(self, s, bytes)
  s.pending = s.pending .. bytes
  while s.pending ~= "" and not s.done do
    local key = s.pending:match("^\27%[[%d;]*[%a~]") or (not s.pending:match("^\27%[?[%d;]*$") and s.pending:match("^" .. utf8.charpattern))
    if not key or key == "" then
      if #s.pending > 8 then s.pending = s.pending:sub(2) else break end
    else
      s.pending = s.pending:sub(#key + 1)
      if key == "\r" or key == "\n" then s.done = "line"
      elseif key == "\3" then s.done = "interrupt"
      elseif key == "\4" then
        if s.text == "" then s.done = "end" else KEYS["\27[3~"](self, s) end
      elseif KEYS[key] then KEYS[key](self, s)
      elseif key:byte() >= 32 then insert(s, key) end
    end
  end
end

local function read_tty(self, prompt)
  local s = { prompt = prompt, text = "", at = 0, pending = self.rest or "", index = #self.lines + 1 }
  local tty = uv.new_tty(0, true)
  tty:set_mode(1)
  self.rest = nil
  draw(s)
  feed(self, s, "")
  tty:read_start(function(err, bytes)
    if err or not bytes then s.done = "end" else feed(self, s, bytes) end
    draw(s)
    if s.done then uv.stop() end
  end)
  while not s.done do uv.run("default") end
  tty:read_stop()
  tty:set_mode(0)
  tty:close()
  uv.run("nowait")
  self.rest = s.pending
  io.stdout:write("\n")
  return s.done == "line" and s.text or nil, s.done
end

-- One line -> text; nil, "end" at end of input; nil, "interrupt" after Ctrl-C.
function editor:line(prompt)
  if self.tty then
    local text, why = read_tty(self, prompt)
    if text then remember(self, text) end
    return text, why
  end
  local text = io.read("l")
  if not text then return nil, "end" end
  return text
end

-- A line that may go on: a trailing backslash, or """ on a line of its own up to
-- the next """.
function editor:paragraph(prompt)
  local text, why = self:line(prompt)
  if not text then return nil, why end
  if text:match('^%s*"""') then
    local parts = { (text:gsub('^%s*"""', "")) }
    while not parts[#parts]:match('"""%s*$') do
      text, why = self:line("... ")
      if not text then return nil, why end
      parts[#parts + 1] = text
    end
    return (table.concat(parts, "\n"):gsub('"""%s*$', ""))
  end
  while text:sub(-1) == "\\" do
    local more
    more, why = self:line("... ")
    if not more then return nil, why end
    text = text:sub(1, -2) .. "\n" .. more
  end
  return text
end

return editor
