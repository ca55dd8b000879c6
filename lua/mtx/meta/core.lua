---@meta mtx.core
-- SPDX-License-Identifier: MIT
-- Stubs of every function that the C core gives to Lua, for editors. A test
-- compares this list with the real one. Failure returns nil, message, code
-- (format, unsupported, notfound, io, nomem, limit, cancelled, numeric, invalid,
-- internal); misuse raises. Token ids count from 0, everything else from 1.

---@class mtx.core
local core = {}

---Limits the memory that a Lua state of user scripts may take.
function core.memory_cap(...) end
---Budget of a coroutine: instructions of its whole life (nil leaves what was set), processor time of its next turn.
function core.limit(thread, instructions, seconds) end

core.pattern = {}
---As string.find with a pattern, but raises when the search takes too many steps. literal: '^' is no anchor.
---@return integer|nil first, integer last, ...
function core.pattern.find(text, pattern, from, literal) end

---list[first..last], strings or marked text (lua/mtx/chat/jinja/text.lua, whose metatable is meta), as one: marked if any is.
---@return string|table
function core.join_marked(list, first, last, meta) end

---One datagram to a service manager's socket (sd_notify): "READY=1".
---@return boolean|nil, string?, string?
function core.notify(path, text) end

---Asks the kernel for short time slices for the calling thread (threads it starts have the usual ones): it gets a core soon after it wakes,
---even when threads that compute have all of them. False where that cannot be had (Linux before 6.12, a policy or raised priority of the user's).
---@return boolean
function core.short_slices() end

---A vector of the numbers of a list, or of n zeros.
---@param x number[]|integer
---@return mtx.tensor
function core.tensor(x) end

---A sampler chain over a vocabulary of n_vocab tokens. Options: temperature, top_k, top_p, min_p, typical_p,
---top_n_sigma, top_a, epsilon, eta, xtc_probability, xtc_threshold, repeat_penalty, repeat_last_n, presence_penalty,
---frequency_penalty, dry_multiplier, dry_base, dry_allowed_length, dry_last_n, dry_breakers, mirostat, mirostat_tau,
---mirostat_eta, adaptive_target, adaptive_decay, dynatemp_range, dynatemp_exponent, seed, logit_bias ({[id] = bias or
---{bias, tokens it acts on}}), order.
---@return mtx.sampler
function core.sampler(options, n_vocab) end

core.model = {}
---Opens a model: the path of a GGUF file, or an mtx.gguf, which is closed then. Options: threads, no_memory_check,
---ctx and kv_type (the context that memory must suffice for), progress(done, total), warn(line).
---@return mtx.model|nil, string?, string?
function core.model.open(path, options) end
---The same on a thread of its own. Instead of a path: {code = text of a chunk, args = {texts}} that gives an mtx.gguf
---in a Lua state of the thread's own. Options: threads, no_memory_check, ctx, kv_type.
---@return mtx.task|nil, string?, string?
function core.model.start(path, options) end
---Closes a model and its engine; their memory is given back on a thread of its own. Without a model the engine alone.
---@return mtx.task|nil, string?, string?
function core.model.drop(model, engine) end
---Name of the CPU tier in use; with a cap chooses again (before any model is open).
---@return string
function core.model.cpu(cap) end
---Cores this process may use.
---@return integer
function core.model.cores() end
---Bytes that can be allocated without swapping.
---@return integer
function core.model.free_memory() end
---Names of the architectures this build knows.
---@return string[]
function core.model.architectures() end

core.engine = {}
---Starts an engine on a model. Options: ctx, n_parallel, max_waiting, max_sessions, max_rows, threads, kv_type,
---kv_tokens, cache_bytes.
---@return mtx.engine|nil, string?, string?
function core.engine.open(model, options) end

---The C half of mtx.json: shapes {array, bigint, null, pairs, newindex} ->
---decode(text, max_depth) -> value | nil, message, position.
function core.json_decoder(shapes) end

core.gguf = {}
---Opens a GGUF file (and its shards). Options: vocab_only.
---@return mtx.gguf|nil, string?, string?
function core.gguf.open(path, options) end
---Writes a GGUF file from {path, from, remove, kv, tensors, threads, progress}. A tensor is {name, type, shape, data}, or {name, from} and, to be
---converted, its new type and importance = {from, sums, counts}. progress(done, total) hears of bytes written; true ends it.
---@return true|nil, string?, string?
function core.gguf.write(spec) end
---Tensor types by name: {block = elements of a block, bytes = of a block, reads, writes}.
---@return table<string, table>
function core.gguf.types() end

core.safetensors = {}
---Opens the weights of a model folder (model.safetensors, or the shards of its index).
---@return mtx.safetensors|nil, string?, string?
function core.safetensors.open(folder) end

core.tokenizer = {}
---Opens the tokenizer of a GGUF; a vocabulary-only file is enough.
---@return mtx.tokenizer|nil, string?, string?
function core.tokenizer.open(path) end
---The same from the bytes of a GGUF file in memory.
---@return mtx.tokenizer|nil, string?, string?
function core.tokenizer.open_bytes(gguf) end
---The pieces that the pre-tokenizer `name` cuts a text into.
function core.tokenizer.presplit(name, text) end
---Every name that tokenizer.ggml.pre may have.
function core.tokenizer.presplit_names() end
---Is this whole, valid UTF-8?
---@return boolean
function core.tokenizer.valid_utf8(text) end
---The text with every bad byte replaced by U+FFFD.
---@return string
function core.tokenizer.repair_utf8(text) end

core.grammar = {}
---Compiles a GBNF text; the start rule is "root". schemas: {rule = JSON Schema text}, rules that the text uses
---and does not define; {rule = {schema = JSON Schema text, stop = text}}: its strings as plain text that does not hold `stop`;
---{rule = {inside = regex}}: what it finds a match in, as it stands between the quotes of JSON.
---@return mtx.grammar|nil, string?, string?
function core.grammar.gbnf(text, schemas) end
---Compiles a JSON Schema text. Options: ws (space, none, any); strict: refuse what cannot
---be enforced; any_order: required keys in any order; open_types: without `type` every type;
---open_keys: keys beside `properties` where the schema says nothing of them.
---@return mtx.grammar|nil, string?, string?
function core.grammar.schema(text, options) end
---Texts that a regex finds a match in (JSON Schema's pattern).
---@return mtx.grammar|nil, string?, string?
function core.grammar.regex(text) end
---Exactly one of the strings.
---@return mtx.grammar|nil, string?, string?
function core.grammar.choice(list) end

core.sha256 = {}
---Hex digest of a string.
function core.sha256.of(bytes) end
---Hex digest of a file.
function core.sha256.file(path) end
---A digest fed piece by piece.
---@return mtx.sha256
function core.sha256.new() end

---@class mtx.tensor
---One row is a vector: #t, t[i], t[i] = x. Several rows: #t rows, t[i] a copy of row i.
local tensor = {}
---@return integer rows, integer columns
function tensor:shape() end
function tensor:get(row, column) end
function tensor:set(row, column, value) end
---Index and value of the largest element; the lowest index among equals.
---@return integer index, number value
function tensor:argmax(row) end
---The n largest as {index, value}, largest first.
function tensor:topk(n, row) end
---A new tensor of probabilities, row by row.
function tensor:softmax(temperature) end
---Log probability of one element within its row.
function tensor:log_softmax_at(row, column) end
function tensor:totable() end
---Little-endian float32, row by row.
function tensor:bytes() end

---@class mtx.task
local task = {}
---A descriptor that is readable at the end; closed by take.
function task:fd() end
---@return boolean
function task:ended() end
---@return integer done, integer total bytes packed; 0, 0 while the header is read
function task:progress() end
---Ends a load soon, with code "cancelled".
function task:cancel() end
---Waits for the end: a model and its warnings from start, true and warnings from drop, else what the call gives.
---@return mtx.model|boolean|nil, string[]|string?, string?
function task:take() end

---@class mtx.sampler
local sampler = {}
---Token id chosen from a row of logits; history: list of ids, newest last.
---@return integer|nil, string?, string?
function sampler:sample(logits, history) end
function sampler:close() end

---@class mtx.model
local model = {}
function model:info() end
---@return mtx.tokenizer|nil, string?, string?
function model:tokenizer() end
---A LoRA adapter of this model. Options: no_memory_check.
---@return mtx.adapter|nil, string?, string?
function model:adapter(path, options) end
---The same on a thread of its own: take() gives the adapter. The model stays open until then.
---@return mtx.task|nil, string?, string?
function model:start_adapter(path, options) end
---The set that requests, sessions and embeddings take as `lora`: {{adapter, scale}, ...}; those of scale 0 are left out.
---@return mtx.lora|nil, string?, string?
function model:lora(list) end
---Its metadata and tensors, as long as the model is open.
---@return mtx.gguf
function model:file() end
function model:close() end

---@class mtx.adapter
local adapter = {}
---{path, name, task_name, prompt_prefix, alpha, max_rank, n_pairs, n_unused, file_bytes, weight_bytes}
function adapter:info() end
---Sets and running requests that use it keep it until they end.
function adapter:close() end

---@class mtx.lora
---#set: how many adapters take part.
local lora = {}
---The key under which save_prefix and forget_prefix find what requests with this cache_key and these adapters left.
---@return string|nil, string?, string?
function lora:key(cache_key) end
---Requests, sessions and embeddings made with it keep the adapters.
function lora:close() end

---@class mtx.engine
local engine = {}
---Queues a request: tokens, max_tokens, sampler, stop, banned_strings, grammar, grammar_triggers, grammar_opening, grammar_optional,
---logprobs, prompt_logprobs, priority, deadline_ms, cache_key, lora (a set of adapters), ignore_eos, progress (an event after each step that read a
---part of the prompt), shown (control tokens whose text is given out),
---resumable (the text that is held at a length or a cancel comes with the done event as `rest`) and rest (such text of
---the request that this one continues), cfg_scale and negative (token ids; guidance), sampler_script ({code, args}, see csrc/bind/script.c),
---draft ({max, min_match, fixed}: drafts by lookup) and reference (token ids that the reply may repeat). Returns its id and the seed used.
---@return integer|nil id, integer|string seed_or_message, string? code
function engine:submit(request) end
---Ends a request before the next step.
function engine:cancel(id) end
---Events since last time: {id, kind = "start"|"progress"|"token"|"done", ...}.
function engine:drain() end
---A descriptor that is readable while events wait.
function engine:fd() end
---Blocks until events wait, or ms have passed.
---@return boolean
function engine:wait(ms) end
---Counters; with true also counts every page.
function engine:stats(check) end
---step_tokens, prefill_tokens, prefill_ratio, order, preempt: followed until replaced.
function engine:set_policy(policy) end
function engine:set_threads(n) end
---Time per op since the last call: {op, ns, calls, bytes}; measures from now on when `on`.
function engine:profile(on) end
---Vectors of lists of ids. Options: pooling (model, none = a list per token, mean, cls, last), normalize, lora (a set of adapters).
function engine:embed(lists, options) end
---The same without waiting: a done event brings them as `vectors`, one after the other. Returns its id.
---@return integer|nil, string?, string?
function engine:embed_submit(lists, options) end
---@return mtx.session|nil, string?, string?
---Options: lora (a set of adapters; forks have it too).
function engine:session(options) end
---One id behind each of these sessions, evaluated in one step; the logits of each.
---@return mtx.tensor[]|nil, string?, string?
function engine:eval(sessions, ids) end
---Saves the longest part of ids that the prefix cache knows under a cache_key; 0 and no file when it knows nothing.
---@return integer|nil n_tokens, integer|string n_bytes_or_message, string? code
function engine:save_prefix(key, ids, path) end
---Puts a saved prefix (or session) into the prefix cache under a cache_key; nil: the one it was saved with.
---The ids it holds, and that key.
---@return integer[]|nil ids, string key_or_message, string? code
function engine:load_prefix(key, path) end
---Forgets ids and what only they led to. How many of them were known. Without key: forgets everything.
---@return integer|nil, string?, string?
function engine:forget_prefix(key, ids) end
---Prompts are also looked for in the folder `dir`, and saved there when the engine closes: budget_bytes of all
---files, ttl_s seconds that an unused one stays. nil: no longer. Reads the model's files when it is called first.
---@return boolean|nil, string?, string?
function engine:set_disk(options) end
---Saves there now what no file holds yet. How many files were written.
---@return integer|nil, string?, string?
function engine:store_disk() end
---save_prefix, load_prefix, forget_prefix, set_disk or store_disk on a thread of its own; the engine cannot be closed before take().
---@return mtx.task|nil, string?, string?
function engine:start(name, ...) end
function engine:close() end

---Of such a folder: removes files that were last used more than ttl_s seconds ago, then those used longest ago
---until budget_bytes are not exceeded.
---@return integer n_files, integer bytes that are left
function core.trim_prompts(dir, budget_bytes, ttl_s) end
---Removes the saved prompts of any model in the folder `dir` under a cache_key that begin with ids or are a beginning of
---them. How many files.
---@return integer
function core.forget_prompts(dir, key, ids) end

---@class mtx.session
local session = {}
---Evaluates ids behind the session's; logits of the last, or {all = true} one row each.
---@return mtx.tensor|nil, string?, string?
function session:eval(ids, options) end
---A session with the same tokens, sharing their memory.
---@return mtx.session|nil, string?, string?
function session:fork() end
---Forgets all but the first n tokens.
function session:rewind(n) end
---Writes tokens and memory to a file that only this model (same file, same KV type) can load. Bytes written.
---@return integer|nil, string?, string?
function session:save(path) end
---Becomes the saved session; what it evaluates next is bit for bit what the saved one would have given. A file
---that is damaged or another model's is refused and changes nothing. Tokens it has now.
---@return integer|nil, string?, string?
function session:load(path) end
---@return integer
function session:n_tokens() end
function session:close() end

---@class mtx.tokenizer
local tokenizer = {}
---Options: add_special, parse_special, spans, bos_once, continue.
---@return integer[]|nil, string?, string?
function tokenizer:encode(text, options) end
---Options: remove_special, special, raw.
---@return string
function tokenizer:decode(ids, options) end
---The bytes a token adds to a text.
function tokenizer:piece(id, special) end
---@return integer
function tokenizer:n_tokens() end
---model, pre, add_bos, add_eos, add_sep, and the special ids that exist.
function tokenizer:special() end
---@return boolean
function tokenizer:is_eog(id) end
---Set of names: control, user, byte, ...
function tokenizer:attr(id) end
---Id of the token spelt so.
function tokenizer:find(text) end
---Ids of the ordinary tokens whose bytes hold this text.
---@return integer[]
function tokenizer:containing(text) end
---An incremental detokenizer that never cuts a character.
---@return mtx.detokenizer
function tokenizer:stream() end
function tokenizer:close() end

---@class mtx.detokenizer
local detokenizer = {}
function detokenizer:feed(id) end
function detokenizer:flush() end

---@class mtx.gguf
local gguf = {}
---All keys in order, or one key's value, type and item type.
function gguf:metadata(key) end
---List of {name, type, shape, bytes, offset}.
function gguf:tensors() end
---Raw bytes of a tensor, or a part of them.
function gguf:tensor_data(name, offset, n) end
function gguf:info() end
function gguf:close() end

---@class mtx.safetensors
local safetensors = {}
---List of {name, dtype, shape (the last one contiguous), bytes, file}.
function safetensors:tensors() end
---The weights as a model under GGUF's names; closes the handle. head: bytes of a GGUF file without tensors; list:
---{name, from = name or {names, stacked}, heads (rows lie as so many heads of rotary halves), change = "plus_one" or
---"minus_exp", split = {heads, first row, rows [, "transposed"]}} or {name, values = {numbers}}.
---@return mtx.gguf|nil, string?, string?
function safetensors:model(head, list) end
function safetensors:close() end

---@class mtx.grammar
local grammar = {}
---"complete", or "partial", or nil, the byte that cannot stand there and the rules it stands in.
function grammar:match(text) end
---A position that moves through the grammar. With a model (a handle of core.model) by its tokens, too.
---@return mtx.matcher|nil, string?, string?
function grammar:matcher(model) end
---What the grammar does not enforce.
function grammar:warnings() end
function grammar:close() end

---@class mtx.matcher
local matcher = {}
---Moves on by a text or a token id: true, or nil and the byte that cannot come (it then stands
---before that one), or nil, message, code.
function matcher:accept(text_or_id) end
---Ids of the tokens that may come next, ascending; end tokens exactly when complete.
---@return integer[]|nil, string?, string?
function matcher:allowed() end
---Is the text so far a whole text of the grammar?
---@return boolean
function matcher:complete() end
---The rules it stands in, innermost first.
---@return string
function matcher:where() end
function matcher:close() end

---@class mtx.sha256
local sha256 = {}
function sha256:update(bytes) end
---Takes up to n bytes of a file from `offset` (from 0) on, on a thread; they count once the task has been taken.
---@return mtx.task of how many bytes there were
function sha256:start(path, offset, n) end
function sha256:hex() end

return core
