-- SPDX-License-Identifier: MIT
-- Pulls from an address and from a registry like Ollama's.
local lu = require("luaunit")
local core = require("mtx.core")
local fake = require("fake_hub")
local fixture = require("pull_fixture")

local BODY <const>, SIZE <const> = fixture.BODY, fixture.SIZE

local at = fixture.new()

-- A GGUF file at an address.
TestAddress = {}

local far, body, etag
function TestAddress:setUp()
  at:start()
  body, etag = BODY, '"one"'
  far = fake.server(function(r) return fake.bytes(r, body, etag) end)
  at.puller = fixture.puller(at.dir, at.hub.url, { pull_hosts = { far.url } })
end
function TestAddress:tearDown()
  far:close()
  at.hub:close()
end

function TestAddress:test_pulled_and_pinned()
  at:pulled(far.url .. "/a/some%20model.Q4_0.gguf?x=1")
  lu.assertEquals(fixture.files(at.dir), { "some-model.Q4_0.gguf " .. SIZE })
  lu.assertEquals(at.puller.store:pin("some-model.q4_0:latest").files[1].sha256, core.sha256.of(BODY))
  local n = #far.requests
  at:pulled(far.url .. "/a/some%20model.Q4_0.gguf?x=1")
  lu.assertEquals(#far.requests, n + 1) -- asked whether it is still the same
  body, etag = fixture.bytes(SIZE, 5), '"two"'
  at:pulled(far.url .. "/a/some%20model.Q4_0.gguf?x=1")
  lu.assertTrue(at:bytes_of("some-model.Q4_0.gguf") == body)
  at:refused(far.url .. "/b/some%20model.Q4_0.gguf", 409, "is here already, from " .. far.url)
end

function TestAddress:test_a_changed_file_is_not_glued_to_an_old_part()
  local address = far.url .. "/m.gguf"
  far:close()
  local broken = true
  far = fake.server(function(r)
    local a = fake.bytes(r, body, etag)
    if broken and r.method == "GET" then
      if r.n > 2 then return { status = 500 } end
      a.length, a.body = #a.body, a.body:sub(1, 100000)
    end
    return a
  end)
  at.puller = fixture.puller(at.dir, at.hub.url, { pull_hosts = { far.url } })
  address = far.url .. "/m.gguf"
  at:refused(address, 502, "100000 of 300000")
  broken, body, etag = false, fixture.bytes(SIZE, 9), '"two"'
  at:pulled(address)
  lu.assertTrue(at:bytes_of("m.gguf") == body)
end

function TestAddress:test_an_odd_etag_comes_back_as_it_is()
  etag = [["a\"b\'#"]]
  far:close()
  far = fake.server(function(r)
    local a = fake.bytes(r, body, etag)
    if r.method == "GET" and r.n == 2 then a.length, a.body = #a.body, a.body:sub(1, 70000) end
    return a
  end)
  at.puller = fixture.puller(at.dir, at.hub.url, { pull_hosts = { far.url } })
  at:pulled(far.url .. "/m.gguf")
  lu.assertEquals(far.requests[3].headers["if-range"], etag)
  lu.assertEquals(far.requests[3].headers.range, "bytes=70000-")
end

function TestAddress:test_without_an_etag_it_comes_whole()
  etag = nil
  far:close()
  far = fake.server(function(r)
    local a = fake.bytes(r, body)
    if r.method == "GET" and r.n == 2 then a.length, a.body = #a.body, a.body:sub(1, 100000) end
    return a
  end)
  at.puller = fixture.puller(at.dir, at.hub.url, { pull_hosts = { far.url } })
  at:pulled(far.url .. "/m.gguf")
  for _, r in ipairs(far.requests) do lu.assertNil(r.headers.range) end
  lu.assertTrue(at:bytes_of("m.gguf") == body)
end

function TestAddress:test_the_hash_that_the_user_gives()
  at:pulled(far.url .. "/m.gguf#sha256=" .. core.sha256.of(BODY))
  at:refused(far.url .. "/n.gguf#sha256=" .. ("0"):rep(64), 502, "do not hash to")
  lu.assertEquals(fixture.files(at.dir), { "m.gguf " .. SIZE })
end

function TestAddress:test_the_hash_of_a_split_model_is_its_first_parts()
  body = fixture.shards(2)["q4/m-00001-of-00002.gguf"]
  at:refused(far.url .. "/m-00001-of-00002.gguf#sha256=" .. ("0"):rep(64), 502, "m-00001-of-00002.gguf: its bytes do not hash to")
  at:nothing_visible()
  at:pulled(far.url .. "/m-00001-of-00002.gguf#sha256=" .. core.sha256.of(body))
end

function TestAddress:test_all_parts()
  at:pulled(far.url .. "/m-00001-of-00002.gguf")
  lu.assertEquals(fixture.files(at.dir), { "m-00001-of-00002.gguf " .. SIZE, "m-00002-of-00002.gguf " .. SIZE })
  lu.assertEquals(at.puller.store:pins()[1].name, "m:latest")
end

function TestAddress:test_what_is_no_model_or_has_no_size()
  body = "<html>" .. ("x"):rep(1000)
  at:refused(far.url .. "/m.gguf", 502, "no GGUF file")
  at:nothing_visible()
  far:close()
  far = fake.server(function() return { status = 200, no_length = true, body = "GGUF" } end)
  at.puller = fixture.puller(at.dir, at.hub.url, { pull_hosts = { far.url } })
  at:refused(far.url .. "/m.gguf", 502, "does not tell the size")
end

-- Ollama's registry.
TestRegistry = {}

local layers
function TestRegistry:setUp()
  at:start()
  local function layer(kind, text) return { mediaType = "application/vnd.ollama.image." .. kind, digest = "sha256:" .. core.sha256.of(text), size = #text, text = text } end
  layers = { layer("model", BODY), layer("params", '{"stop":["<|a|>","<|b|>"],"temperature":0.5,"num_ctx":null,"x":{}}'), layer("system", "Be kind."),
    layer("license", "MIT"), layer("license", "and more"), layer("template", "{{ .Prompt }}"), layer("messages", '[{"role":"user","content":"hi"},5]') }
  far = fake.server(function(r)
    local name, kind, what = r.path:match("^/v2/(.-)/(%a+)/([^/]+)$")
    if name ~= "library/m" then return { status = 404, body = '{"errors":[]}' } end
    if kind == "manifests" then
      lu.assertEquals(r.headers.accept, "application/vnd.docker.distribution.manifest.v2+json")
      local list = {}
      for i, l in ipairs(layers) do list[i] = { mediaType = l.mediaType, digest = l.digest, size = l.size } end
      return { status = 200, body = require("cjson").encode({ schemaVersion = 2, layers = list }) }
    end
    for _, l in ipairs(layers) do
      if l.digest == what then return fake.bytes(r, l.text) end
    end
  end)
  at.puller = fixture.puller(at.dir, at.hub.url, { pull_hosts = { far.url } })
end
TestRegistry.tearDown = TestAddress.tearDown

function TestRegistry:test_weights_and_what_a_modelfile_says()
  local name = "127.0.0.1:" .. far.port .. "/library/m:1b"
  at:pulled(name)
  lu.assertEquals(fixture.files(at.dir), { "127.0.0.1_" .. far.port .. "/library/m/1b.gguf " .. SIZE })
  local m = at.puller.store:pin(name).modelfile
  lu.assertEquals({ m.system, m.license, m.template, m.parameters.temperature, m.parameters.stop[2], m.parameters.num_ctx, m.parameters.x, #m.messages, m.messages[1].content },
    { "Be kind.", "MIT\nand more", nil, 0.5, "<|b|>", nil, nil, 1, "hi" })
  at:pulled(name)
  lu.assertEquals(#far:asked("/blobs/" .. layers[1].digest), 1)
  layers[3].text = "Be evil."
  at:refused(name, 502, "do not hash to")
end

function TestRegistry:test_what_is_refused()
  local base = "127.0.0.1:" .. far.port .. "/library/"
  at:refused(base .. "none", 404, "there is no model")
  layers[#layers + 1] = { mediaType = "application/vnd.ollama.image.adapter", digest = layers[1].digest, size = 5 }
  at:refused(base .. "m", 501, "stored as adapters")
  layers[#layers] = { mediaType = "application/vnd.ollama.image.model", digest = layers[1].digest, size = 5 }
  at:refused(base .. "m", 502, "2 files of weights")
  layers[#layers] = { mediaType = "x", digest = "sha256:../../x", size = 5 }
  at:refused(base .. "m", 502, "without kind, digest or size")
end

-- The texts go into the pin, which has a limit of its own: past it the model would be fetched and then not be seen.
function TestRegistry:test_texts_without_end_are_refused()
  local name = "127.0.0.1:" .. far.port .. "/library/m"
  local text = ("\1"):rep(50000)
  local licence = { mediaType = layers[4].mediaType, digest = "sha256:" .. core.sha256.of(text), size = #text, text = text }
  for _ = 1, 8 do layers[#layers + 1] = licence end
  at:pulled(name)
  lu.assertEquals(#at.puller.store:pin(name .. ":latest").modelfile.license, 8 * 50001 + #"MIT\nand more")
  for _ = 1, 8 do layers[#layers + 1] = licence end
  at:refused(name, 502, "bytes of texts")
  licence.size = 10
  at:refused(name, 502, "more than 10 bytes")
end

function TestRegistry:test_T97_a_login_is_not_followed()
  local elsewhere = fake.server(function() return { status = 200, body = '{"token":"x"}' } end)
  far:close()
  far = fake.server(function() return { status = 401, headers = { ["WWW-Authenticate"] = 'Bearer realm="' .. elsewhere.url .. '/token"' } } end)
  at.puller = fixture.puller(at.dir, at.hub.url, { hub_token = "hf_secret", pull_hosts = { far.url, elsewhere.url } })
  at:refused("127.0.0.1:" .. far.port .. "/library/m", 502, "wants a login")
  lu.assertNil(far.requests[1].headers.authorization)
  lu.assertEquals(#elsewhere.requests, 0)
  elsewhere:close()
end
