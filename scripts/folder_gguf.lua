-- SPDX-License-Identifier: MIT
-- A GGUF file of a model folder, with the tensor types that it has.
-- usage: mtx scripts/folder_gguf.lua FOLDER OUT.gguf
local g <close> = assert(require("mtx.model.source").open(arg[1]))
assert(require("mtx.core").gguf.write({ path = arg[2], from = g }))
