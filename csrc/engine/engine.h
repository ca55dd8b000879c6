// SPDX-License-Identifier: MIT
// The engine: one thread that owns a model's context and serves many requests.
//
// Callers hand in requests and take events; both return at once. The thread
// forms steps of rows from all running requests (continuous batching), samples,
// detokenises and finds stop strings. It waits for nobody: events of one request
// merge while nobody takes them, and a reader who lets too much pile up has its
// request ended. One wake-up (an eventfd) per step, whatever it brought.
//
// Sessions are sequences a caller steers by hand; their evaluations go through
// the same steps. Every function may be called from any thread unless it says
// otherwise. Nothing here knows Lua.
#ifndef MTX_ENGINE_ENGINE_H
#define MTX_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "engine/draft.h"
#include "engine/step.h"
#include "grammar/grammar.h"
#include "sample/sample.h"
#include "tok/tok.h"

typedef struct mtx_engine mtx_engine;

typedef struct mtx_engine_opts {
  int64_t n_ctx;           // longest sequence, tokens; 0 = the smaller of 4096 and the trained length
  int n_parallel;          // requests that run together; 0 = 8
  int max_waiting;         // requests that may wait; 0 = 256
  int max_sessions;        // sessions and embedding inputs alive at once; 0 = 32
  int max_rows;            // rows of one step; 0 = 512
  int n_threads;           // 0 = usable cores
  mtx_kv_type kv_type;
  int64_t kv_tokens;       // tokens the KV cache holds over all sequences; 0 = n_ctx * n_parallel and the prefix cache
  uint64_t cache_bytes;    // budget of the prefix cache; 0 = off
  size_t max_unread_bytes; // events of one request nobody has taken; 0 = 4 MiB
} mtx_engine_opts;

// tok may be NULL (then only sessions and embeddings work). Model and tok must
// outlive the engine. stop ends the thread; running requests end without events, prompts are saved (set_disk), and the
// error is that of a file that could not be written. Only close may follow, which stops an engine that runs.
mtx_code mtx_engine_open(mtx_engine **out, const mtx_model *model, const mtx_tok *tok, const mtx_engine_opts *opts, mtx_err *err);
mtx_code mtx_engine_stop(mtx_engine *e, mtx_err *err);
void mtx_engine_close(mtx_engine *e);
int64_t mtx_engine_n_ctx(const mtx_engine *e);

// ---- requests -----------------------------------------------------------------

// A caller's own way to choose tokens, called on the engine's thread for each.
typedef struct mtx_token_hook {
  // logits[n_vocab]: after guidance, grammar and bans, before the sampler; may be changed. history: prompt and
  // generated tokens, newest last. *token is -1: left so, the sampler goes on from the changed row; else that
  // token is taken. An error ends the request.
  mtx_code (*pick)(void *self, float *logits, int32_t n_vocab, const int32_t *history, int64_t n_history, int32_t *token, mtx_err *err);
  void (*close)(void *self);  // once, on the engine's thread; on the caller's when submit fails
  void *self;
} mtx_token_hook;

typedef struct mtx_request {
  const int32_t *tokens; int64_t n_tokens;  // the prompt, at least one token
  int64_t max_tokens;        // generated at most; more than the context leaves is cut
  const mtx_sampler_opts *sampler;          // NULL = defaults
  const char *const *stops; const size_t *stop_lens; int n_stops;
  const char *const *bans; const size_t *ban_lens; int n_bans;  // strings that must not appear; not with a matcher
  mtx_matcher *matcher;      // NULL or a matcher the engine takes over, on failure too
  mtx_token_hook hook;       // pick NULL = none; taken over like the matcher
  double cfg_scale;          // classifier-free guidance (mtx_sample_guide); 1 = off
  const int32_t *negative; int64_t n_negative;  // with guidance: the other prompt, at least one token
  int logprobs;              // -1 = none, else how many alternatives per token
  int prompt_logprobs;       // the same for the prompt's tokens (sent with the start event)
  int priority;              // higher first
  int64_t deadline_ms;       // from now; 0 = none
  const char *cache_key;     // who may reuse whose prefixes; NULL = no reuse, no keeping
  mtx_lora *lora;            // adapters, NULL = none; refed. What they made is reused for the same adapters and scales only
  bool ignore_eos;           // tokens that end a generation are never sampled
  bool resumable;            // the caller may go on with another request: text not given out (it may be the start of a stop
                             // string, or of a character) comes with the DONE event of a length or a cancel. Not with bans
  const char *rest; size_t n_rest;  // such text of the request that this one continues; stop strings are found across
  bool progress;             // an event after each step that read a part of the prompt
  mtx_draft_opts draft;      // max 0 = no drafts. They change no token, only when it comes. MTX_EUNSUPPORTED: with recurrent state or guidance
  const int32_t *reference; int64_t n_reference;  // with drafts: a text that the reply may repeat
  const int32_t *shown; int n_shown;  // control tokens whose text is given out all the same (marks of tool calls)
} mtx_request;
void mtx_request_init(mtx_request *r);

// Copies everything. MTX_ELIMIT: queue full, or the prompt can never fit (both
// with numbers). MTX_EINVAL: empty prompt, token out of range, sampler option.
mtx_code mtx_engine_submit(mtx_engine *e, const mtx_request *r, int64_t *id, mtx_err *err);
// Takes effect before the next step, in every phase; a done event follows. Unknown ids are ignored.
void mtx_engine_cancel(mtx_engine *e, int64_t id);

// ---- events -------------------------------------------------------------------

typedef enum { MTX_EVENT_START, MTX_EVENT_PROGRESS, MTX_EVENT_TOKEN, MTX_EVENT_DONE } mtx_event_kind;
typedef enum { MTX_DONE_STOP, MTX_DONE_LENGTH, MTX_DONE_STOP_STRING, MTX_DONE_CANCELLED, MTX_DONE_ERROR } mtx_done_reason;
const char *mtx_done_reason_name(mtx_done_reason r);  // "stop", "length", ...

typedef struct mtx_token_logprob {
  int32_t id, n_top;
  double logprob;          // of the model's distribution, before any sampler
  size_t top;              // first of n_top entries in mtx_event.top
} mtx_token_logprob;

typedef struct mtx_event {
  struct mtx_event *next;
  int64_t id;
  mtx_event_kind kind;
  mtx_buf text;            // TOKEN: whole UTF-8 characters, may be empty. DONE: the stop string that was met; the rest of a resumable request
  mtx_ids tokens;          // TOKEN
  mtx_token_logprob *logprobs; size_t n_logprobs, cap_logprobs;  // TOKEN; START: prompt tokens from the second on
  mtx_logprob *top; size_t n_top, cap_top;
  float *vectors; int64_t n_vectors, vector_len;      // DONE of embeddings
  int64_t n_prompt, n_cached, n_generated;            // START, PROGRESS: the first two; DONE: all
  int64_t n_drafted, n_draft_accepted;                // DONE: tokens that were drafted, and of them those that were sampled
  int64_t n_processed;     // PROGRESS: tokens of the prompt that are in memory, cached ones too
  double t_queue_ms, t_prefill_ms, t_decode_ms;       // DONE; START: t_queue_ms; PROGRESS: t_prefill_ms so far
  mtx_done_reason reason;
  const char *code;        // DONE with an error: mtx_code_name, or "deadline"; static
  char message[512];
} mtx_event;

int mtx_engine_fd(const mtx_engine *e);      // readable while events wait; owned by the engine
mtx_event *mtx_engine_take(mtx_engine *e);   // all events in order, NULL when there are none; the caller frees them
void mtx_event_free(mtx_event *ev);          // the whole list
bool mtx_engine_wait(mtx_engine *e, int64_t ms);  // blocks until events wait; false on time-out; ms < 0 = for ever

// ---- policy -------------------------------------------------------------------

typedef struct mtx_policy {
  int step_tokens;         // rows of one step; 0 = as many as the context takes
  int prefill_tokens;      // prompt rows of a step while others decode; 0 = as prefill_ratio says
  double prefill_ratio;    // with prompt rows a step takes about this many times its decode part, by measured times,
                           // and longer where more requests read than decode; 0 = 2.5
  const int64_t *order; int n_order;      // ids that come first, in this order, whatever their priority
  const int64_t *preempt; int n_preempt;  // ids that get no rows; their pages stay until others need them
} mtx_policy;
// Followed from the next step on until replaced. Copies the lists.
mtx_code mtx_engine_set_policy(mtx_engine *e, const mtx_policy *p, mtx_err *err);
void mtx_engine_set_threads(mtx_engine *e, int n);

typedef struct mtx_engine_stats {
  int64_t n_waiting, n_prefill, n_decode, n_parked, n_sessions;       // now
  int64_t n_pages, n_pages_free, n_pages_shared, n_cache_entries;     // now
  uint64_t cache_bytes, kv_page_bytes;
  int64_t n_submitted, n_finished, n_cancelled, n_failed, n_preempted;  // since open
  int64_t n_prompt_tokens, n_cached_tokens, n_generated_tokens, n_drafted_tokens, n_accepted_tokens, n_steps, n_rows;
  double t_busy_ms;        // time in steps
  int last_rows;           // rows of the last step
  bool kv_ok;              // page counts agree with page tables
} mtx_engine_stats;
// As of the last step. check: also counts every page (a command to the thread; slow).
void mtx_engine_get_stats(mtx_engine *e, mtx_engine_stats *out, bool check);

// Time per op since the last call, into rows[cap]; returns how many. From now on
// measured or not. A command to the thread.
int mtx_engine_profile(mtx_engine *e, bool on, mtx_profile_row *rows, int cap);

// ---- sessions (calls block until done; one thread per session) ------------------

typedef struct mtx_session mtx_session;
// With adapters (refed) or NULL; forks have them too.
mtx_code mtx_session_open(mtx_engine *e, mtx_lora *lora, mtx_session **out, mtx_err *err);
void mtx_session_close(mtx_session *s);  // NULL is fine; before the engine is closed
int64_t mtx_session_n_tokens(const mtx_session *s);
// Evaluates tokens behind the session's. *logits gets n_out floats for the last
// token, or n rows when `all`; owned by the session until the next eval.
// A failure (MTX_ELIMIT: context or KV cache full) leaves the session as it was.
mtx_code mtx_session_eval(mtx_session *s, const int32_t *tokens, int64_t n, bool all, const float **logits, mtx_err *err);
// One token for each of n different sessions of one engine, in shared steps; logits[i] as above.
// After a failure some of them may have gone on.
mtx_code mtx_sessions_eval(mtx_session *const *s, const int32_t *tokens, int n, const float **logits, mtx_err *err);
mtx_code mtx_session_fork(mtx_session *s, mtx_session **out, mtx_err *err);
// Forgets all but the first n tokens. What the cache can no longer give back of
// them is evaluated again, from the session's own list, with the next eval.
mtx_code mtx_session_rewind(mtx_session *s, int64_t n, mtx_err *err);

// MODEL: what the file says; when it says nothing, mean for encoders, last for decoders.
// ---- saved state (the file: kv/saved.h) -------------------------------------

// The session's tokens and memory to a file, which appears when it is whole. *n_bytes: its size.
mtx_code mtx_session_save(mtx_session *s, const char *path, uint64_t *n_bytes, mtx_err *err);
// The session becomes the saved one; the next eval gives what it would have given there, bit for
// bit. A failure leaves the session as it was. Errors as mtx_saved_open and mtx_map_open; MTX_ELIMIT also: pages;
// MTX_EUNSUPPORTED also: saved with other adapters.
mtx_code mtx_session_load(mtx_session *s, const char *path, mtx_err *err);

// The key under which the prefix index keeps what requests with this cache_key and these adapters leave; `dst` gets it.
// MTX_EINVAL: the key holds the byte 0x1f, which parts the two.
mtx_code mtx_engine_cache_key(const char *cache_key, const mtx_lora *lora, mtx_buf *dst, mtx_err *err);

// The same for the prefix index, by such a key: the longest part of tokens[0..n) it knows under `key`; n_saved 0 and
// no file when it knows nothing.
mtx_code mtx_engine_save_prefix(mtx_engine *e, const char *key, const int32_t *tokens, int64_t n, const char *path,
                                int64_t *n_saved, uint64_t *n_bytes, mtx_err *err);
// Remembered under the cache_key `key`, for the adapters it was saved with; NULL = under the key it was saved with. *tokens and *owner (empty at first) get what
// the file holds and that key, zero-terminated.
mtx_code mtx_engine_load_prefix(mtx_engine *e, const char *key, const char *path, mtx_ids *tokens, mtx_buf *owner, mtx_err *err);
// From the next request on prompts are also looked for in a folder, and saved there when the engine stops (disk.h).
// dir NULL = no longer; budget_bytes: of all files there; ttl_s: files unused for longer go. Reads the model's files
// when it is called first.
mtx_code mtx_engine_set_disk(mtx_engine *e, const char *dir, uint64_t budget_bytes, double ttl_s, mtx_err *err);
// Saves there now what no file holds yet; *n_files: how many were written. The engine's thread copies, the caller's writes.
mtx_code mtx_engine_store_disk(mtx_engine *e, int *n_files, mtx_err *err);
// Forgets tokens[0..n) and what only they led to; *n_known: how many of them the index knew. key NULL: everything.
// Files of set_disk's folder go as well.
mtx_code mtx_engine_forget_prefix(mtx_engine *e, const char *key, const int32_t *tokens, int64_t n, int64_t *n_known, mtx_err *err);

typedef enum { MTX_POOL_MODEL = -1, MTX_POOL_NONE = 0, MTX_POOL_MEAN = 1, MTX_POOL_CLS = 2, MTX_POOL_LAST = 3 } mtx_pooling;
// One vector of n_embed floats (model info) per input into out[n][n_embed]: the
// encoder's rows, or a decoder's hidden state before its vocabulary head. POOL_NONE:
// one vector per token, as they are, inputs one after the other. MTX_EUNSUPPORTED:
// the architecture has neither.
mtx_code mtx_engine_embed(mtx_engine *e, const int32_t *const *tokens, const int64_t *n_tokens, int n,
                          mtx_pooling pooling, bool normalize, mtx_lora *lora, float *out, mtx_err *err);
// The same without waiting: one DONE event with the vectors follows (its n_prompt:
// tokens of all inputs). Copies the tokens. mtx_engine_cancel(id) ends it.
mtx_code mtx_engine_embed_submit(mtx_engine *e, const int32_t *const *tokens, const int64_t *n_tokens, int n,
                                 mtx_pooling pooling, bool normalize, mtx_lora *lora, int64_t *id, mtx_err *err);

#endif
