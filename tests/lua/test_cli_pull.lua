-- SPDX-License-Identifier: MIT
-- `mtx pull` and what the other commands say of pulled models, run as a user runs them
-- against a hub on loopback.
local lu = require("luaunit")
local uv = require("luv")
local cjson = require("cjson")
local chain = require("chain_model")
local client = require("http_client")
local core = require("mtx.core")
local fake = require("fake_hub")
local fixture = require("pull_fixture")
local infile = require("mtx.infile")
local store = require("mtx.pull.store")
local temp = require("temp")

local MTX = (os.getenv("BUILD") or "build") .. "/mtx"

local model

local hub, dir

-- -> stdout, stderr, exit code. on_output(text so far, process) sees what it says meanwhile; more: of the environment, before the rest.
local function run(args, on_output, more)
  local out, err, texts, code, open = uv.new_pipe(false), uv.new_pipe(false), { "", "" }, nil, 3
  local env = table.move(more or {}, 1, #(more or {}), 1, {})
  table.move({ "PATH=" .. os.getenv("PATH"), "MTX_HUB=" .. hub.url, "MTX_MODELS_DIR=" .. dir, "HF_TOKEN=hf_secret", "HOME=" .. dir }, 1, 5, #env + 1, env)
  local process
  process = assert(uv.spawn(MTX, { args = args, env = env, stdio = { nil, out, err } }, function(exit, signal)
    code, open = signal ~= 0 and 128 + signal or exit, open - 1
    process:close()
  end))
  for i, pipe in ipairs({ out, err }) do
    pipe:read_start(function(_, bytes)
      if not bytes then
        open = open - 1
        return pipe:close()
      end
      texts[i] = texts[i] .. bytes
      if on_output then on_output(texts[1], process) end
    end)
  end
  lu.assertTrue(client.wait(function() return open == 0 end))
  return texts[1], texts[2], code
end

TestCliPull = {}
function TestCliPull:setUp()
  if not model then
    local path = temp.path(".gguf")
    chain.write(path, { scripts = { hello = { "Hel", "lo wor", "ld" } } })
    model = infile.read(path)
  end
  hub = fake.hub({ ["u/r"] = { ["m-Q8_0.gguf"] = model } })
  dir = temp.dir()
end
function TestCliPull:tearDown() hub:close() end

function TestCliPull:test_pulled_listed_run_verified_removed()
  local out, err, code = run({ "pull", "hf.co/u/r:q8" })
  lu.assertEquals({ err, code }, { "", 0 })
  for _, words in ipairs({ "pulling manifest\n", "100%  ", "verifying sha256 digest\n", "writing manifest\n", "success\n", "pulled hf.co/u/r:q8; `mtx run hf.co/u/r:q8` runs it\n" }) do
    lu.assertStrContains(out, words)
  end
  lu.assertNil((out .. err):find("hf_secret", 1, true))
  lu.assertEquals(hub.requests[1].headers.authorization, "Bearer hf_secret")
  out = run({ "list" })
  lu.assertEquals(select(2, out:gsub("\n", "")), 2)
  lu.assertStrContains(out, "hf.co/u/r:q8 ")
  out, err, code = run({ "run", "hf.co/u/r:q8", "@hello", "--temp", "0" })
  lu.assertEquals({ out, code }, { "Hello world\n", 0 }, err)
  out, _, code = run({ "verify", "hf.co/u/r:Q8" })
  lu.assertEquals({ out, code }, { "right  hf.co/u/r/m-Q8_0.gguf\n", 0 })
  local f = assert(io.open(dir .. "/hf.co/u/r/m-Q8_0.gguf", "r+b"))
  f:seek("set", 100)
  f:write("?")
  f:close()
  out, err, code = run({ "verify", "hf.co/u/r:Q8" })
  lu.assertEquals({ out, code }, { "WRONG  hf.co/u/r/m-Q8_0.gguf\n", 1 })
  lu.assertStrContains(err, "mtx pull hf.co/u/r:q8")
  lu.assertEquals({ run({ "rm", "hf.co/u/r:q8" }) }, { "removed hf.co/u/r:q8\n", "", 0 })
  lu.assertEquals(fixture.files(dir, true), {})
end

-- What the user's own curl is told (another token, other options) is not for pulls.
function TestCliPull:test_curls_own_files_are_not_read()
  for name, text in pairs({ [".curlrc"] = 'header = "X-Odd: 1"\nnetrc\n', [".netrc"] = "machine 127.0.0.1 login me password secret\n" }) do
    local f = assert(io.open(dir .. "/" .. name, "w"))
    f:write(text)
    f:close()
  end
  local _, err, code = run({ "pull", "hf.co/u/r" }, nil, { "HF_TOKEN=" })
  lu.assertEquals({ err, code }, { "", 0 })
  for _, r in ipairs(hub.requests) do lu.assertEquals({ r.headers.authorization, r.headers["x-odd"] }, {}) end
  lu.assertEquals(#hub.requests, 2)
end

function TestCliPull:test_json()
  local out, err, code = run({ "pull", "--json", "hf.co/u/r" })
  lu.assertEquals({ err, code }, { "", 0 })
  local lines = client.ndjson(out)
  lu.assertEquals({ lines[1].status, lines[2].digest, lines[#lines].status }, { "pulling manifest", "sha256:" .. core.sha256.of(model), "success" })
  out, err, code = run({ "pull", "hf.co/u/none", "--json" })
  lu.assertEquals({ err, code }, { "", 1 })
  lines = client.ndjson(out)
  lu.assertStrContains(lines[#lines].error, "cannot be read at the hub")
end

function TestCliPull:test_T101_interrupted_and_gone_on_with()
  hub.serve["m-Q8_0.gguf"] = function(r, bytes)
    local a = fake.bytes(r, bytes)
    if r.n == 1 then a.length, a.body, a.hold = #a.body, a.body:sub(1, #a.body // 2), true end
    return a
  end
  local timer, sent = uv.new_timer(), false -- a second one would end the program at once
  local out, err, code = run({ "pull", "--json", "hf.co/u/r" }, function(_, process)
    if sent or timer:is_active() then return end
    timer:start(5, 5, function() -- some bytes have come
      local part = store.new(dir):partials()[1]
      if not part or part.size == 0 then return end
      timer:stop()
      sent = true
      process:kill("sigint")
    end)
  end)
  timer:close()
  lu.assertStrContains(out, "interrupted; what is there is kept")
  lu.assertEquals({ err, code }, { "", 130 })
  out = run({ "list" })
  lu.assertStrContains(out, "hf.co/u/r:latest")
  lu.assertStrContains(out, "partial: ")
  _, err, code = run({ "pull", "hf.co/u/r" })
  lu.assertEquals({ err, code }, { "", 0 })
  lu.assertNotNil(hub:asked("/resolve/")[2].headers.range)
  lu.assertTrue(infile.read(dir .. "/hf.co/u/r/m-Q8_0.gguf") == model)
end

function TestCliPull:test_T101_a_partial_model_is_removed_by_name()
  hub.serve["m-Q8_0.gguf"] = function() return { status = 404 } end
  local _, err, code = run({ "pull", "hf.co/u/r" })
  lu.assertEquals({ err, code }, { "mtx pull: hf.co/u/r/m-Q8_0.gguf: status 404\n", 1 })
  lu.assertEquals({ run({ "rm", "hf.co/u/r" }) }, { "removed what was there of hf.co/u/r:latest\n", "", 0 })
  lu.assertEquals(fixture.files(dir, true), {})
  _, err, code = run({ "rm", "hf.co/u/r" })
  lu.assertEquals(code, 1)
  lu.assertStrContains(err, "not found")
end

function TestCliPull:test_run_says_how_or_pulls()
  local out, err, code = run({ "run", "hf.co/u/r", "@hello" })
  lu.assertEquals({ out, err, code }, { "", "mtx: hf.co/u/r is not here; `mtx pull hf.co/u/r` fetches it\n", 1 })
  out, err, code = run({ "run", "hf.co/u/r", "@hello", "--pull", "--temp", "0" })
  lu.assertEquals(code, 0, err)
  lu.assertStrContains(out, "Hello world\n")
  out = run({ "run", "hf.co/u/r", "@hello", "--pull", "--temp", "0" })
  lu.assertEquals(out, "Hello world\n")
  _, err, code = run({ "run", "hf.co/u/none", "@hello", "--pull" })
  lu.assertEquals(code, 1)
  lu.assertStrContains(err, "mtx run: hf.co/u/none cannot be read at the hub")
end

-- A server of one file by HTTPS, with a certificate that only those trust who are told to.
local function tls_server()
  local site = temp.dir()
  local f = assert(io.open(site .. "/m.gguf", "wb"))
  f:write(model)
  f:close()
  assert(os.execute(("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost "
    .. "-keyout '%s/key.pem' -out '%s/cert.pem' 2>'%s/log'"):format(site, site, site)))
  local code = "import http.server,os,socketserver,ssl,sys,threading\nos.chdir(sys.argv[1])\nc=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\nc.load_cert_chain('cert.pem','key.pem')\n"
    .. "s=socketserver.ThreadingTCPServer(('127.0.0.1',0),http.server.SimpleHTTPRequestHandler)\ns.socket=c.wrap_socket(s.socket,server_side=True)\n"
    .. "print(s.server_address[1],flush=True)\nthreading.Thread(target=s.serve_forever,daemon=True).start()\nsys.stdin.read()"
  -- It ends with its standard input, and so with this process, however that ends.
  local input, out, err, said, ended = uv.new_pipe(false), uv.new_pipe(false), uv.new_pipe(false), "", false
  local process = assert(uv.spawn("python3", { args = { "-c", code, site }, stdio = { input, out, err } }, function() ended = true end))
  local function listen(_, bytes) said = said .. (bytes or "") end
  out:read_start(listen)
  err:read_start(listen)
  client.wait(function() return said:find("^%d+\n") or ended end)
  local port = said:match("^(%d+)\n")
  lu.assertNotNil(port, "no server: " .. said)
  return "https://localhost:" .. port .. "/m.gguf", site .. "/cert.pem", function()
    input:close()
    lu.assertTrue(client.wait(function() return ended end), "the server did not end")
    process:close()
    out:close()
    err:close()
  end
end

function TestCliPull:test_certificates_are_checked()
  local url, cert, close = tls_server()
  local out, err, code = run({ "pull", url })
  lu.assertEquals(code, 1, out)
  lu.assertStrContains(err, "certificate")
  lu.assertEquals(select(2, err:gsub("\n", "")), 1, err)
  lu.assertEquals(fixture.files(dir, true), {})
  _, err, code = run({ "pull", url .. "#sha256=" .. core.sha256.of(model) }, nil, { "CURL_CA_BUNDLE=" .. cert })
  close()
  lu.assertEquals({ err, code }, { "", 0 })
  lu.assertTrue(infile.read(dir .. "/m.gguf") == model)
end

function TestCliPull:test_wrong_usage()
  for _, args in ipairs({ { "pull" }, { "pull", "a", "b" }, { "pull", "hf.co/u" }, { "pull", "hf.co/u/r", "--hub", "x" }, { "pull", "hf.co/u/r", "--jason" } }) do
    local _, err, code = run(args)
    lu.assertEquals(code, 2, err)
    lu.assertTrue(#err > 0)
  end
  local out = run({ "config" })
  lu.assertStrContains(out, "(set)")
  lu.assertNil(out:find("hf_secret", 1, true))
  lu.assertEquals(cjson.encode(#hub.requests), "0")
end
