-- SPDX-License-Identifier: MIT
-- Bodies of forms cut at every point, hostile ones too; lines of a stored file.
local lu = require("luaunit")
local filestore = require("mtx.serve.files.store")
local multipart = require("mtx.http.multipart")
local temp = require("temp")

TestLines = {}

function TestLines:test_lines_of_a_stored_file()
  local folder = temp.path()
  local store = assert(filestore.open(folder, 1 << 30, require("mtx.serve.writes").new(print)))
  local function lines_of(text, max)
    local w = assert(store:create())
    assert(w:write(text))
    local record = assert(w:commit({ created_at = 1 }))
    local out, next_line = {}, assert(store:lines(record, max))
    for _ = 1, 10000 do
      local got = next_line()
      if got == nil then break end
      out[#out + 1] = got
      if got == false then break end
    end
    store:remove(record)
    return out
  end
  lu.assertEquals(lines_of("", 10), {})
  lu.assertEquals(lines_of("a\r\n\nbc", 10), { "a", "", "bc" })
  lu.assertEquals(lines_of("a\n", 10), { "a" })
  lu.assertEquals(lines_of("0123456789\n01234567890\n", 10), { "0123456789", false })
  lu.assertEquals(lines_of(("x"):rep(200000), 150000), { false })
  local wanted = {}
  for i = 1, 5000 do wanted[i] = ("z"):rep(i % 97) .. i end
  lu.assertEquals(lines_of(table.concat(wanted, "\n"), 1000), wanted)
  os.execute("rm -r " .. folder)
end

TestMultipart = {}

function TestMultipart:test_every_cut()
  local body = "preamble\r\n--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--b\r\n"
    .. 'Content-Disposition: form-data; name="file"; filename="a \\"q\\".jsonl"\r\nContent-Type: text/plain\r\n\r\nline1\r\n--\r\n-b\r\n\r\n--b\r\n'
    .. "Content-Disposition: form-data; name=empty\r\n\r\n\r\n--b--\r\nepilogue"
  for step = 1, #body do
    local got = {}
    local r = multipart.reader("b", function(part)
      local p = { part.name, part.filename or "", "" }
      got[#got + 1] = p
      return function(bytes) if bytes then p[3] = p[3] .. bytes else p[4] = "end" end end
    end)
    for i = 1, #body, step do lu.assertTrue(r:feed(body:sub(i, i + step - 1))) end
    lu.assertTrue(r:complete())
    lu.assertEquals(got, { { "purpose", "", "batch", "end" }, { "file", 'a "q".jsonl', "line1\r\n--\r\n-b\r\n", "end" }, { "empty", "", "", "end" } })
  end
end

function TestMultipart:test_hostile()
  for _, body in ipairs({ "--bX\r\n", "--b\r\nno colon\r\n\r\n", "--b\r\nContent-Disposition: form-data\r\n\r\nx", "--b\r\n" .. ("h"):rep(20000),
    "--b\r\nContent-Disposition: form-data; name=x\r\nContent-Transfer-Encoding: base64\r\n\r\n",
    ("--b\r\nContent-Disposition: form-data; name=x\r\n\r\n\r\n"):rep(40) }) do
    local r = multipart.reader("b", function() return function() end end)
    local ok = r:feed(body)
    lu.assertTrue(not ok, body:sub(1, 40))
    lu.assertFalse(r:complete())
  end
  local r = multipart.reader("b", function() return function() end end)
  lu.assertTrue(r:feed(("x"):rep(1 << 20)))
  lu.assertTrue(#r.buf < 100, "a long preamble is not kept")
end
