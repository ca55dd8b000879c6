-- SPDX-License-Identifier: MIT
-- Configuration of the server: a table, no code. `mtx config --config FILE` shows
-- what comes of it; environment (MTX_*) and flags go over it.
return {
  host = "127.0.0.1",
  port = 11434,
  models_dir = "/var/lib/mtx/models",
  keys_file = "/etc/mtx/keys",
  parallel = 8,
  keep_alive = "10m",
  policy = "fair",
  log_format = "json",
}
