---@meta mtx
-- SPDX-License-Identifier: MIT
-- Stubs of what `require "mtx"` gives, for editors and as the reference of the Lua API. A test compares functions and
-- fields with the real ones. Failure returns nil, message, code (codes: meta/core.lua); misuse raises, with the caller's
-- line. Token ids count from 0, everything else from 1. Sessions, samplers and tensors: meta/core.lua.

---@class mtx
---@field VERSION string
---@field core mtx.core the C core below this
local mtx = {}

---Opens a model: the path of a GGUF file (of any shard), or a model folder (config.json, *.safetensors, tokenizer.json).
---Refused before a weight is read: what mtx does not know, what is damaged, what memory does not hold.
---@param path string
---@param options? mtx.LoadOptions
---@return mtx.Model|nil, string?, string?
function mtx.load(path, options) end

---The same on a thread of its own, for programs with an event loop. Without the option progress.
---@param path string
---@param options? mtx.LoadOptions
---@return mtx.Loading|nil, string?, string?
function mtx.start_load(path, options) end

---Writes a model (GGUF file or model folder) in fewer bits to a GGUF file, byte for byte as llama-quantize does.
---@param options mtx.QuantizeOptions
---@return mtx.Quantized|nil, string?
function mtx.quantize(options) end

---A vector of the numbers of a list, or of n zeros.
---@param x number[]|integer
---@return mtx.tensor
function mtx.tensor(x) end

---A sampler chain over a vocabulary of n_vocab tokens: sampler:sample(logits, history) -> token id.
---@param options mtx.SamplerOptions
---@param n_vocab integer
---@return mtx.sampler
function mtx.sampler(options, n_vocab) end

---@class mtx.PullOptions
---@field name string what `mtx pull` takes: "hf.co/USER/REPO[:QUANT or :FILE]", an address of a GGUF file, "NAME[:TAG]" of Ollama's registry
---@field models_dir? string where it goes (MTX_MODELS_DIR, else ./models)
---@field hub? string another hub with the same API (MTX_HUB, HF_ENDPOINT, else Hugging Face's)
---@field hub_token? string for private and gated models (HF_TOKEN)
---@field pull_hosts? string[] further places that files may come from
---@field pull_max_gb? number the largest model that is pulled, in GiB
---@field progress? fun(event: {status: string, file: string?, total: integer?, completed: integer?, overall_total: integer?, overall_completed: integer?}): boolean? true ends it; what is there is kept

---Fetches a model as `mtx pull` does, and waits; with luv's event loop, so not from one of its callbacks. `path` is what mtx.load
---takes. Codes of failures: invalid, notfound, conflict, limit (no room), cancelled, io.
---@param opts mtx.PullOptions
---@return {name: string, path: string}|nil, string?, string?
function mtx.pull(opts) end

---@class mtx.QuantizeOptions
---@field from string the model
---@field to? string the new file; not wanted with dry_run
---@field type string a mix: "Q4_K_M", "Q8_0", ... (`mtx quantize --help` lists them)
---@field tensor_types? string[] "PATTERN=TYPE": tensors whose name matches the Lua pattern
---@field rules? fun(tensor: {name: string, type: string, shape: integer[], role: string, layer: integer?, n_layers: integer, architecture: string, mix: string}, type: string): string? a type, "keep" or nil; after all else
---@field imatrix? string importance matrix (GGUF, as llama-imatrix writes it)
---@field threads? integer 0 = all cores (0)
---@field requantize? boolean also from weights that are quantised already
---@field dry_run? boolean only decide, write nothing
---@field force? boolean replace a file of that name
---@field progress? fun(done: integer, total: integer): boolean? bytes written; true ends it and leaves nothing

---@class mtx.Quantized
---@field tensors {name: string, shape: integer[], from: string, to: string, instead_of: string?, from_bytes: integer, bytes: integer, importance: boolean?}[] instead_of: the type whose blocks the rows do not divide into
---@field bytes integer of all weights
---@field from_bytes integer the same of the source
---@field file_bytes? integer
---@field needs_importance? string a tensor that would be garbage without (in a dry run)

---@class mtx.LoadOptions
---@field ctx? integer longest sequence in tokens (the model's, at most 4096)
---@field threads? integer 0 = usable cores; more than these are not used (0)
---@field kv_type? "f16"|"f32"|"bf16"|"q8_0" form of cached keys and values ("f16")
---@field n_parallel? integer requests that run together (8)
---@field cache_bytes? integer memory for prompts of earlier requests; only requests with a cache_key use it (0 = off)
---@field cpu? "scalar"|"avx2"|"avx512"|"amx"|"neon" highest CPU tier
---@field no_memory_check? boolean load even when memory looks too small
---@field progress? fun(done: integer, total: integer) called while weights are packed, with bytes
---@field warn? fun(line: string) one line per thing worth knowing (tensors without use, no tokenizer)
---@field lora? mtx.Lora adapters of requests that name none themselves; false = none
---@field template? string Jinja, instead of the model's chat template
---@field kv_tokens? integer tokens that all sequences together may cache (0 = ctx * n_parallel and the prompt cache)
---@field max_rows? integer tokens of one step, of all requests
---@field max_waiting? integer requests that may wait; more are refused with code "limit"

---An adapter, the path of its file, or a list of these and of {adapter or path, scale}.
---@alias mtx.Lora mtx.adapter|string|false|(mtx.adapter|string|{[1]: mtx.adapter|string, [2]: number})[]

---@class mtx.SamplerOptions
---@field temperature? number 0 takes the likeliest token (1)
---@field dynatemp_range? number temperature moves by as much with the entropy (0 = off)
---@field dynatemp_exponent? number (1)
---@field top_k? integer the n likeliest (0 = all)
---@field top_p? number the smallest set with this probability (1 = off)
---@field min_p? number none below this share of the best one's probability (0 = off)
---@field typical_p? number locally typical (1 = off)
---@field top_n_sigma? number logits within n standard deviations of the best (0 = off)
---@field top_a? number none below this times the best one's probability squared (0 = off)
---@field epsilon? number none below this probability (0 = off)
---@field eta? number the same, lower where the entropy is high (0 = off)
---@field xtc_probability? number how often the likeliest are dropped (0 = off)
---@field xtc_threshold? number those above it, all but the last (0.1)
---@field repeat_penalty? number divides logits of recent tokens (1 = off)
---@field repeat_last_n? integer tokens that count as recent (64; -1 = all)
---@field presence_penalty? number taken once from tokens seen (0 = off)
---@field frequency_penalty? number taken for each time seen (0 = off)
---@field dry_multiplier? number penalty of a repeat (0 = off)
---@field dry_base? number growth with its length (1.75)
---@field dry_allowed_length? integer tokens that may repeat (2)
---@field dry_last_n? integer tokens looked at (-1, all)
---@field dry_breakers? integer[] tokens that a repeat does not pass
---@field mirostat? 0|1|2 instead of cuts (0 = off)
---@field mirostat_tau? number surprise aimed at, in bits (5)
---@field mirostat_eta? number learning rate (0.1)
---@field adaptive_target? number tokens near this probability are preferred (-1 = off)
---@field adaptive_decay? number how slowly that forgets (0.9)
---@field seed? integer same seed, same answer, on any machine (negative = a random one)
---@field logit_bias? table<integer, number|{[1]: number, [2]: integer}> by token id: what is added to its logit [, for so many tokens]
---@field order? string[] the order of the stages

---What is guessed of a reply.
---@class mtx.Draft
---@field kind? "lookup" what followed the end of the text where that stood before
---@field max? integer tokens of a draft at most, up to 32 (15); fewer where measured times say that more do not pay
---@field min_match? integer tokens that must have stood before (2)
---@field adaptive? boolean false: always as long as can be
---@field reference? string|integer[] a text that the reply may repeat

---One of messages, prompt and tokens says what is continued.
---@class mtx.Request: mtx.SamplerOptions
---@field messages? {role: string, content: string}[] a chat, through the model's template
---@field prompt? string plain text; text that spells a control token stays text
---@field tokens? integer[]
---@field tools? table[] for the template: tools in OpenAI's form
---@field kwargs? table further variables of the template
---@field add_generation_prompt? boolean (true)
---@field continue_final_message? boolean the answer goes on in the last message
---@field max_tokens? integer (until the context is full)
---@field stop? string[] the text ends before any of these
---@field banned_strings? string[] never written
---@field grammar? mtx.grammar what the text must be (mtx.core.grammar)
---@field grammar_triggers? string[] free text up to one of these, then the grammar
---@field grammar_opening? string text after which alone that free text begins
---@field logprobs? integer log probabilities of the token and of the n likeliest (nil = none)
---@field ignore_eos? boolean tokens that end a text are not taken
---@field shown? integer[] control tokens whose text is given out
---@field priority? integer higher ones first (0)
---@field deadline_ms? integer milliseconds after which the request fails with code "deadline"
---@field cache_key? string what it has in common with an earlier request of this key is not read again
---@field lora? mtx.Lora
---@field draft? mtx.Draft|"lookup"|boolean tokens guessed ahead and evaluated together: the same answer, sooner where it repeats. Not for models with recurrent state, not with cfg_scale
---@field cfg_scale? number guidance away from negative_prompt (1 = off)
---@field negative_prompt? string with messages in the place of the system message
---@field sampler? fun(logits: mtx.tensor, history: integer[], options: any): integer? chooses a token id; nil leaves it to the options above
---@field sampler_options? any its third argument
---@field dry_sequence_breakers? string[] texts for dry_breakers

---@class mtx.BeamRequest
---@field messages? {role: string, content: string}[]
---@field prompt? string
---@field tokens? integer[]
---@field tools? table[]
---@field kwargs? table
---@field add_generation_prompt? boolean
---@field continue_final_message? boolean
---@field max_tokens? integer (64)
---@field ignore_eos? boolean
---@field lora? mtx.Lora
---@field n_beams? integer 1 to 32 (4)
---@field n_best? integer texts given back (1)
---@field length_penalty? number score = log probability / length^this (1)

---@class mtx.Result
---@field text string
---@field ids integer[]
---@field prompt_ids integer[]
---@field finish_reason "stop"|"length"|"cancelled"
---@field stop_string? string the one that ended it
---@field logprobs? {id: integer, logprob: number, top: {id: integer, logprob: number}[]}[] where they were asked for
---@field seed integer
---@field timings {n_prompt: integer, n_cached: integer, n_generated: integer, n_drafted: integer?, n_draft_accepted: integer?, queue_ms: number, prefill_ms: number, decode_ms: number, first_token_ms: number?, prompt_per_second: number, decode_per_second: number}

---@class mtx.Model
---A loaded model: weights, tokenizer and, on first use, an engine. Several streams of one model run side by side.
local Model = {}

---Facts: architecture, name, path, n_params, n_vocab, n_embd, n_layer, n_ctx_train, n_ctx, quantization, file_bytes,
---weight_bytes, resident_bytes (of the process), has_logits, pooling, chat_template, tokenizer, n_threads, tier.
---@return table
function Model:info() end
---Value of a key of the file's metadata, or nil.
---@return any
function Model:metadata(key) end
---Options: add_special (BOS, EOS and the like as the model wants them; true without options), parse_special (text that
---spells a control token becomes it), spans ({from, to} bytes that may hold control tokens), bos_once.
---@param text string UTF-8
---@return integer[]|nil, string?, string?
function Model:tokenize(text, options) end
---@param ids integer[]
---@return string
function Model:detokenize(ids) end
---The bytes that a token adds to a text; a character may be spread over several tokens.
---@param id integer
---@return string
function Model:piece(id) end
---Ids of the tokens whose text holds this one.
---@return integer[]
function Model:containing(text) end
---Does a text end with this token?
---@return boolean
function Model:is_eog(id) end
---The prompt of a chat. Options: tools, kwargs, add_generation_prompt (true), continue_final_message. spans: what of the
---text is the template's own and may hold control tokens (for tokenize).
---@param messages {role: string, content: string}[]
---@return string|nil text, table|string spans_or_message, string? code
function Model:apply_template(messages, options) end
---Starts a request: `for piece in assert(model:stream{...}) do io.write(piece) end`. Pieces are whole UTF-8 characters.
---@param request mtx.Request
---@return mtx.Stream|nil, string?, string?
function Model:stream(request) end
---The same, and waits for the end.
---@param request mtx.Request
---@return mtx.Result|nil, string?, string?
function Model:generate(request) end
---Beam search: the n_best texts, best first.
---@param request mtx.BeamRequest
---@return {ids: integer[], text: string, logprob: number, score: number, finish_reason: string}[]|nil, string?, string?
function Model:beam(request) end
---A sequence that is evaluated token by token: eval, fork, rewind, save, load, close. Options: lora.
---@return mtx.session|nil, string?, string?
function Model:session(options) end
---Vectors of texts or lists of ids. Options: pooling ("none" = one per token, "mean", "cls", "last"), normalize (true), lora.
---@param inputs (string|integer[])[]
---@return number[][]|nil, string?, string?
function Model:embed(inputs, options) end
---A LoRA adapter of this model.
---@return mtx.adapter|nil, string?, string?
function Model:adapter(path) end
---The same on a thread of its own.
---@return mtx.task|nil, string?, string?
function Model:start_adapter(path) end
---The engine behind it: submit, cancel, drain, set_policy, stats (programs with an event loop).
---@return mtx.engine|nil, string?, string?
function Model:engine() end
---Time per operation since the last call: {op, ns, calls, bytes}; measures from now on when `on`.
---@return table[]|nil, string?, string?
function Model:profile(on) end
---Another model over the same weights, with an engine of its own: ctx, n_parallel, max_waiting, kv_tokens, cache_bytes, max_rows may
---differ. The weights stay until the last is closed.
---@param opts? mtx.LoadOptions
---@return mtx.Model
function Model:share(opts) end
---Ends the engine and frees the weights. Close sessions first.
function Model:close() end
---The same; the memory is given back on a thread of its own.
---@return mtx.task|nil, string?, string?
function Model:drop() end

---@class mtx.Stream
---Called, as a for loop does, it gives the next piece of text and nil at the end; when the request fails (an error of a sampler
---function, too) it raises.
---@overload fun(): string|nil
---@field on_idle? fun() called now and then while there is nothing to give
local Stream = {}
---The next piece of text; at the end nil, with message and code when the request failed.
---@return string|nil, string?, string?
function Stream:next() end
---Ends the request; pieces that are there still come.
function Stream:cancel() end
---Waits for the end.
---@return mtx.Result|nil, string?, string?
function Stream:result() end

---@class mtx.Loading
local Loading = {}
---A descriptor that is readable at the end; closed by take.
---@return integer
function Loading:fd() end
---Bytes of weights packed, of how many; 0, 0 while the header is read.
---@return integer done, integer total
function Loading:progress() end
---Ends it soon, with code "cancelled".
function Loading:cancel() end
---Waits for the end.
---@return mtx.Model|nil, string?, string?
function Loading:take() end

return mtx
