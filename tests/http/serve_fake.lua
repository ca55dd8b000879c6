-- SPDX-License-Identifier: MIT
-- `mtx tests/http/serve_fake.lua [mtx serve's options]`: the real server over the
-- scripted engine (tests/lua/fake_engine.lua), for clients in other processes.
package.path = "tests/lua/?.lua;" .. package.path
local config = require("mtx.config")
local fake = require("fake_engine")
local serve = require("mtx.serve")
local temp = require("temp")

local flags = assert(config.parse_flags({ ... }))
local deps, dir = fake.deps()
flags.models_dir = dir
local c = assert(config.load({ env = function() end, flags = flags }))
local ctx = assert(serve.new(c, deps))
local code = serve.run(ctx)
temp.remove()
return code
