-- SPDX-License-Identifier: MIT
-- A line editor for interactive commands: history, cursor keys, completion; a pasted text is one input, whatever its lines.
--
-- On a terminal it reads raw bytes through luv; elsewhere it reads plain lines, so
-- that a pipe or a test drives the same code path above it.
local infile = require("mtx.infile")
local term = require("mtx.cli.term")
local uv = require("luv")

local editor = {}
editor.__index = editor

-- opts.history: file to keep lines in (optional); opts.complete(word) -> list of
-- candidates (optional).
function editor.new(opts)
  local self = setmetatable({ lines = {}, complete = opts and opts.complete, path = opts and opts.history }, editor)
  self.tty = uv.guess_handle(0) == "tty" and uv.guess_handle(1) == "tty" and os.getenv("TERM") ~= "dumb"
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

local function move(n, letter) return n > 0 and ("\27[%d%s"):format(n, letter) or "" end

-- Writes prompt and text over what was drawn last, over as many rows as it takes; s.row is the cursor's, from the prompt's.
local function draw(s)
  local columns = math.max(s.columns(), 8)
  local row, col = term.place(s.prompt, columns, 0, 0)
  local at_row, at_col = term.place(s.text:sub(1, s.at), columns, row, col)
  local last_row, last_col = term.place(s.text, columns, row, col)
  local full = last_row > 0 and last_col == 0 and s.text:sub(-1) ~= "\n" -- a terminal wraps only before the next character
  io.stdout:write(move(s.row or 0, "A"), "\r\27[J", s.prompt, s.text, full and "\r\n" or "", move(last_row - at_row, "A"), "\r", move(at_col, "C"))
  io.stdout:flush()
  s.row = at_row
end

-- Leaves the rows of the input behind.
local function finish(s)
  s.at = #s.text
  draw(s)
  io.stdout:write("\n")
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
  if #found > 1 then
    local at = s.at
    finish(s)
    io.stdout:write(table.concat(found, "  "), "\r\n")
    s.at, s.row = at, 0
  end
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
  ["\12"] = function(_, s)
    io.stdout:write("\27[H\27[2J")
    s.row = 0
  end,
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

-- What a terminal says around a pasted text once it was asked to, so that its line ends are no Enter keys.
local ASK_PASTE, NO_PASTE, PASTE, PASTED = "\27[?2004h", "\27[?2004l", "\27[200~", "\27[201~"

-- Takes what is there of a pasted text.
local function paste(s)
  local to = s.pending:find(PASTED, 1, true)
  local text = s.pending:sub(1, to and to - 1 or -#PASTED) -- the mark may be cut,
  if not to then text = text:match("^(.-)\r?$") end -- and so may a line's end
  insert(s, (text:gsub("\r\n?", "\n"):gsub("[\0-\8\11-\31\127]", "")))
  s.pending = s.pending:sub(#text + 1 + (to and #PASTED or 0))
  s.pasting = not to
end

-- Bytes of a character by its first byte.
local function char_bytes(first) return first < 0xC2 and 1 or first < 0xE0 and 2 or first < 0xF0 and 3 or 4 end

-- The key that the bytes begin with; nil while it is not there whole.
local function next_key(bytes)
  local escape = bytes:match("^\27%[[%d;]*[%a~]")
  if escape or bytes:find("^\27%[?[%d;]*$") then return escape end
  local n = char_bytes(bytes:byte())
  return #bytes >= n and bytes:sub(1, n) or nil
end

-- Takes bytes as they come; sets s.done to "line", "end" or "interrupt".
local function feed(self, s, bytes)
  s.pending = s.pending .. bytes
  while s.pending ~= "" and not s.done do
    if s.pasting then
      paste(s)
      if s.pending == "" or s.pasting then return end
    end
    local key = next_key(s.pending)
    if not key then
      if #s.pending > 16 then s.pending = s.pending:sub(2) else break end
    else
      s.pending = s.pending:sub(#key + 1)
      if key == "\r" or key == "\n" then s.done = "line"
      elseif key == "\3" then s.done = "interrupt"
      elseif key == PASTE then s.pasting = true
      elseif key == "\4" then
        if s.text == "" then s.done = "end" else KEYS["\27[3~"](self, s) end
      elseif KEYS[key] then KEYS[key](self, s)
      elseif utf8.len(key) and key:byte() >= 32 then insert(s, key) end
    end
  end
end

local function read_tty(self, prompt)
  local s = { prompt = prompt, text = "", at = 0, pending = self.rest or "", index = #self.lines + 1 }
  local tty = uv.new_tty(0, true)
  tty:set_mode(1)
  s.columns = function() return tty:get_winsize() or 80 end
  self.rest = nil
  io.stdout:write(ASK_PASTE)
  draw(s)
  feed(self, s, "")
  tty:read_start(function(err, bytes)
    if err or not bytes then s.done = "end" else feed(self, s, bytes) end
    if s.done then uv.stop() else draw(s) end
  end)
  while not s.done do uv.run("default") end
  tty:read_stop()
  finish(s)
  io.stdout:write(NO_PASTE)
  io.stdout:flush()
  tty:set_mode(0)
  tty:close()
  uv.run("nowait")
  self.rest = s.pending
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
