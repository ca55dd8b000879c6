-- SPDX-License-Identifier: MIT
-- What the name of a pull means: which repository, which of its files, and what is refused before anything is fetched.
-- A name begins with the fault's number in the list of faults.
local lu = require("luaunit")
local fake = require("fake_hub")
local fixture = require("pull_fixture")
local temp = require("temp")
local uv = require("luv")

local at = fixture.new()

TestPullNames = at:around({})

function TestPullNames:test_T96_all_parts_of_a_split_model()
  at:start(fixture.shards(3))
  local events = at:pulled()
  lu.assertEquals(fixture.files(at.dir), { "hf.co/u/r/q4/m-00001-of-00003.gguf 50001", "hf.co/u/r/q4/m-00002-of-00003.gguf 50002", "hf.co/u/r/q4/m-00003-of-00003.gguf 50003" })
  local order = {}
  for _, r in ipairs(at.hub:asked("/resolve/")) do order[#order + 1] = r.path:match("m%-(%d+)") end
  lu.assertEquals(order, { "00001", "00002", "00003" })
  local last
  for _, e in ipairs(events) do last = e.overall_total and e or last end
  lu.assertEquals({ last.overall_total, last.overall_completed }, { 150006, 150006 })
end

function TestPullNames:test_T96_a_missing_part_is_told_before_anything_is_fetched()
  at:start(fixture.shards(3, 2))
  at:refused(nil, 404, "m-00002-of-00003.gguf is missing")
  lu.assertEquals(#at.hub:asked("/resolve/"), 0)
  lu.assertEquals(fixture.files(at.dir, true), {})
end

function TestPullNames:test_T96_each_part_is_resumed_by_itself()
  at:start(fixture.shards(2))
  at.hub.serve["q4/m-00002-of-00002.gguf"] = function(r, bytes)
    local a = fake.bytes(r, bytes)
    if r.n == 1 then a.length, a.body = #bytes, bytes:sub(1, 30000) end
    return r.n <= 6 and r.n > 1 and { status = 500 } or a
  end
  at:refused(nil, 502, "30000 of 50002")
  at:pulled()
  lu.assertEquals(#at.hub:asked("00001%-of"), 1)
end

local QUANTS = { ["m.Q8_0.gguf"] = fixture.bytes(1008, 8), ["m.Q4_K_M.gguf"] = fixture.bytes(1004, 4), ["m.Q4_K_S.gguf"] = fixture.bytes(1005, 5),
  ["m-UD-IQ2_M.gguf"] = fixture.bytes(1002, 2), ["mmproj-m-f16.gguf"] = fixture.bytes(900, 9) }

function TestPullNames:test_T102_spellings_of_a_tag()
  at:start(QUANTS)
  for want, file in pairs({ [":Q8"] = "m.Q8_0", [":q8_0"] = "m.Q8_0", [":Q8_0"] = "m.Q8_0", [":latest"] = "m.Q4_K_M", [""] = "m.Q4_K_M",
    [":q4_k_s"] = "m.Q4_K_S", [":m.Q4_K_S.gguf"] = "m.Q4_K_S", [":ud-iq2_m"] = "m-UD-IQ2_M", [":M.q8_0"] = "m.Q8_0" }) do
    local d = temp.dir()
    at.puller = fixture.puller(d, at.hub.url)
    local fault = fixture.pull(at.puller, "hf.co/u/r" .. want)
    lu.assertNil(fault and fault.message, want)
    lu.assertStrContains(fixture.files(d)[1], file, false, want)
    lu.assertEquals(#fixture.files(d), 1, want)
  end
end

function TestPullNames:test_T102_what_fits_nothing_or_several_lists_the_tags()
  at:start(QUANTS)
  for want, words in pairs({ [":Q4"] = "more than one", [":Q3"] = "it has no 'Q3'", [":Q4_K"] = "more than one" }) do
    local fault = fixture.pull(at.puller, "hf.co/u/r" .. want)
    lu.assertEquals(fault.status, 404)
    lu.assertStrContains(fault.message, words)
    lu.assertStrContains(fault.message, "Q4_K_M, Q4_K_S")
  end
  lu.assertNil(fixture.pull(at.puller, "hf.co/u/r:Q9").message:find("mmproj", 1, true))
end

function TestPullNames:test_T102_a_port_is_no_tag()
  lu.assertNil(fixture.pull(at.puller, "127.0.0.1:" .. at.hub.port .. "/u/r:q4_0"))
  at:right()
  at:refused("localhost:5000/u/r:t", 400, "localhost:5000 is not known")
end

function TestPullNames:test_names_that_are_refused()
  for name, words in pairs({ [""] = "model is required", ["hf.co/u"] = "hf.co/USER/REPO", ["hf.co/../r"] = "hf.co/USER/REPO", ["hf.co/u/r/x"] = "hf.co/USER/REPO",
    ["hf.co/u/.r"] = "hf.co/USER/REPO", ["ftp://x/y.gguf"] = "only http and https", ["http://u:p@x/y.gguf"] = "cannot read the host",
    ["https://x/y.zip"] = "must end in .gguf", ["https://x/y.gguf#md5=1"] = "#sha256=", ["https://10.0.0.1/y.gguf"] = "not among the places",
    ["a b"] = "invalid model name", ["../x"] = "../x is a path; what is on this machine needs no pull", ["./foo"] = "./foo is a path", ["/tmp/m.gguf"] = "is a path", ["~/m.gguf"] = "is a path",
    [".foo"] = "hf.co/USER/REPO[:QUANT or :FILE], https://HOST/PATH.gguf or NAME[:TAG]", ["https://huggingface.co/docs"] = "neither a repository" }) do
    local fault = fixture.pull(at.puller, name)
    lu.assertEquals(fault and fault.status, 400, name)
    lu.assertStrContains(fault.message, words, false, name)
  end
  lu.assertEquals(#at.hub.requests, 0)
end

function TestPullNames:test_files_of_a_hostile_hub_stay_in_the_folder()
  local listing = { sha = ("a"):rep(40), siblings = {} }
  for i, path in ipairs({ "../../x-Q4_0.gguf", "/etc/x-Q4_0.gguf", "a/../../x-Q4_0.gguf", ".mtx/x-Q4_0.gguf", "a\\x-Q4_0.gguf", "-x-Q4_0.gguf" }) do
    listing.siblings[i] = { rfilename = path, size = 10, lfs = { sha256 = ("0"):rep(64), size = 10 } }
  end
  at.hub:close()
  at.hub = fake.server(function() return { status = 200, body = require("cjson").encode(listing) } end)
  at.puller = fixture.puller(at.dir, at.hub.url)
  at:refused(nil, 404, "neither GGUF files nor a model folder")
  listing.siblings = { { rfilename = "m.gguf", size = -1 }, { rfilename = 5, size = 5 }, "x" }
  at:refused(nil, 404, "neither GGUF files")
  for _, body in ipairs({ "", "<html>", "[]", "{}", '{"sha":"../..","siblings":[]}' }) do
    at.hub:close()
    at.hub = fake.server(function() return { status = 200, body = body } end)
    at.puller = fixture.puller(at.dir, at.hub.url)
    at:refused(nil, 502, "no listing")
  end
end

function TestPullNames:test_models_over_the_cap_are_refused()
  at.puller = fixture.puller(at.dir, at.hub.url, { pull_max_gb = 0.0001 })
  at:refused(nil, 502, "--pull-max-gb")
  lu.assertEquals(#at.hub:asked("/resolve/"), 0)
  local listing = { sha = ("a"):rep(40), siblings = {} }
  for i = 1, 4 do listing.siblings[i] = { rfilename = ("m-%05d-of-00004.gguf"):format(i), size = 1 << 62, lfs = { sha256 = ("0"):rep(64), size = 1 << 62 } } end
  at.hub:close()
  at.hub = fake.server(function() return { status = 200, body = require("mtx.json").encode(listing) } end)
  at.puller = fixture.puller(at.dir, at.hub.url)
  at:refused(nil, 502, "--pull-max-gb")
end

function TestPullNames:test_what_the_hub_does_not_have()
  at:refused("hf.co/u/none", 404, "private or gated and needs a token in HF_TOKEN")
  at.puller = fixture.puller(at.dir, at.hub.url, { hub_token = "t" })
  at:refused("hf.co/u/none", 404, "token of HF_TOKEN may not read it")
  at:start({ ["README.md"] = "x" })
  at:refused(nil, 404, "neither GGUF files nor a model folder")
  at:refused("hf.co/u/r:Q4_0", 404, "no GGUF files to choose from")
end

function TestPullNames:test_a_model_folder()
  at.hub:close()
  local files = { ["config.json"] = "{}", ["tokenizer.json"] = "{}", ["model-00001-of-00002.safetensors"] = fixture.bytes(2000, 1), ["README.md"] = "no",
    ["model-00002-of-00002.safetensors"] = fixture.bytes(3000, 2), ["model.safetensors.index.json"] = "{}", ["1_Pooling/config.json"] = "{}", ["pytorch_model.bin"] = "no" }
  at:start(files)
  at:pulled()
  lu.assertEquals(fixture.files(at.dir), { "hf.co/u/r/1_Pooling/config.json 2", "hf.co/u/r/config.json 2", "hf.co/u/r/model-00001-of-00002.safetensors 2000",
    "hf.co/u/r/model-00002-of-00002.safetensors 3000", "hf.co/u/r/model.safetensors.index.json 2", "hf.co/u/r/tokenizer.json 2" })
  local n = #at.hub:asked("/resolve/")
  at:pulled()
  lu.assertEquals(#at.hub:asked("/resolve/"), n) -- without a hash in the listing the commit speaks for the small files
  files["model-00001-of-00002.safetensors"] = nil
  at:refused(nil, 404, "model-00001-of-00002.safetensors is missing")
end

function TestPullNames:test_addresses_of_the_hub_are_its_repositories()
  at:pulled("https://huggingface.co/u/r/resolve/main/m-Q4_0.gguf?download=true")
  at:right()
  lu.assertEquals(at.puller.store:pins()[1].name, "hf.co/u/r:m-Q4_0")
  at:pulled("https://hf.co/u/r")
end

-- mtx.pull of scripts: over the same hub, its failures as values, misuse raised.
TestPullFromLua = at:around({})

function TestPullFromLua:test_it_fetches_what_load_takes()
  local mtx, events = require("mtx"), {}
  local opts = { name = "hf.co/u/r", models_dir = at.dir, hub = at.hub.url, progress = function(e) events[#events + 1] = e.status end }
  local got = assert(mtx.pull(opts))
  lu.assertEquals(got.name, "hf.co/u/r:latest")
  lu.assertEquals({ events[1], events[#events] }, { "pulling manifest", "success" })
  lu.assertNotNil(uv.fs_stat(got.path))
  lu.assertEquals(uv.fs_realpath(got.path):sub(-#"hf.co/u/r/m-Q4_0.gguf"), "hf.co/u/r/m-Q4_0.gguf")
end

function TestPullFromLua:test_failures_are_values_and_misuse_raises()
  local mtx = require("mtx")
  local function of(more)
    local opts = { name = "hf.co/u/r", models_dir = at.dir, hub = at.hub.url }
    for k, v in pairs(more) do opts[k] = v end
    return mtx.pull(opts)
  end
  for code, more in pairs({ invalid = { name = "./x" }, notfound = { name = "hf.co/no/body" }, cancelled = { progress = function() return true end } }) do
    local r, message, got = of(more)
    lu.assertEquals({ r, got }, { nil, code }, message)
  end
  lu.assertEquals(select(3, of({ hub = "nowhere" })), "invalid")
  lu.assertErrorMsgContains("oops", of, { progress = function() error("oops") end })
  for _, more in ipairs({ { name = false }, { model_dir = "x" }, { pull_hosts = { 1 } }, { pull_max_gb = "1" } }) do lu.assertErrorMsgContains("mtx.pull", of, more) end
  lu.assertErrorMsgContains("mtx.pull", mtx.pull, nil)
  assert(of({})) -- none of them is in the way of the next
end
