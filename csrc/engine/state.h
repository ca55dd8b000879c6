// SPDX-License-Identifier: MIT
// Inside of the engine: what its thread works on.
//
// `lock` guards the fields under "shared"; everything else belongs to the
// engine's thread. A run is one sequence that wants rows: a request, or an
// evaluation of a session. Its tokens[0..n) are what the sequence is to hold;
// the kv length tells how far it is evaluated; the difference is still to feed:
// many at first (prefill), one per step afterwards (decode).
#ifndef MTX_ENGINE_STATE_H
#define MTX_ENGINE_STATE_H

#include <pthread.h>
#include <time.h>

#include "engine/engine.h"
#include "engine/disk.h"
#include "engine/draft.h"
#include "engine/pace.h"
#include "gguf/map.h"
#include "kv/prefix.h"
#include "kv/saved.h"

enum { MTX_MAX_MARKS = 3 };
enum { MTX_DRAFT_WIDEST = 64 };  // rows of a step with drafts

typedef struct mtx_text_rule { char *text; size_t len; bool ban; } mtx_text_rule;  // stop or banned string
typedef struct mtx_ban { int64_t at; int32_t token; } mtx_ban;  // token may not stand at this index

typedef struct mtx_run {
  struct mtx_run *next;        // in the shared list of arrivals
  int64_t id;                  // 0: an evaluation
  mtx_ids tokens;              // prompt, then what was generated
  int64_t n_prompt, n_max;     // n_max: tokens at which it ends by length
  int seq;                     // -1 while it has none
  bool started;                // start event sent
  bool parked, doomed;         // doomed: found finished in this step
  int priority;
  int64_t rank;                // place in the policy's order; INT64_MAX outside it
  double t_submit, t_deadline, t_start, t_first, t_queue;
  int64_t n_cached, n_generated;
  mtx_lora *lora;              // counted
  char *cache_key;             // of the prefix index: the request's key and its adapters
  int64_t mark[MTX_MAX_MARKS]; int n_marks;  // ascending lengths of the prompt that become checkpoints of the prefix index
  // generation
  mtx_sampler *sampler;
  mtx_matcher *matcher;
  mtx_detok detok;
  mtx_ids shown;               // control tokens whose text is given out
  mtx_text_rule *rules; int n_rules;
  mtx_buf held;                // text not given out yet: it may be the start of a rule's text
  bool has_bans;               // then token ids are held back together with their text:
  mtx_ids text_len;            // bytes of text of each generated token
  int64_t n_sent, sent_bytes;  // tokens and bytes given out so far
  mtx_ban *bans; size_t n_bans, cap_bans;
  int logprobs, prompt_logprobs;
  bool ignore_eos;
  bool resumable;              // its held text goes with the DONE event
  bool progress;               // tells how far its prompt is
  int64_t n_told;              // prompt tokens it has told of
  mtx_event *start;            // collects prompt logprobs
  mtx_event *open_event;       // the token or progress event still being merged into, while
  uint64_t open_epoch;         // this equals the engine's epoch
  mtx_token_hook hook;
  // guidance (guide.c): a request and its guide point to each other
  struct mtx_run *guide, *guided;
  double cfg_scale;
  float *row; bool has_row;    // logits that wait for the other's
  // drafts (draft_rows.c)
  mtx_draft *draft;
  int64_t n_sure;              // while a draft is in its sequence: how many of the tokens there hold; 0 = all
  // evaluation
  struct mtx_job *job;
} mtx_run;

typedef enum { MTX_JOB_EVAL, MTX_JOB_FORK, MTX_JOB_REWIND, MTX_JOB_CLOSE, MTX_JOB_SAVE, MTX_JOB_LOAD, MTX_JOB_FORGET, MTX_JOB_DISK_NEXT, MTX_JOB_CHECK, MTX_JOB_PROFILE } mtx_job_kind;

// A command that its caller waits for.
typedef struct mtx_job {
  struct mtx_job *next;
  mtx_job_kind kind;
  mtx_session *session, *other;   // other: the new session of a fork
  const int32_t *tokens; int64_t n;
  bool all, embed;
  int64_t base;                   // tokens of the session before this evaluation
  mtx_pooling pooling; bool normalize;
  float *out;                     // rows land here
  double *sum;                    // mean pooling
  // SAVE, LOAD, FORGET: of the session, or without one of the prefix index under `key`
  const char *key;
  mtx_saved *saved;               // SAVE: n_stored and the image come back, the image malloc'ed; LOAD: opened
  const mtx_map *map;             // LOAD: where it lies
  int64_t n_done;                 // tokens
  mtx_disk_piece *piece;          // DISK_NEXT: written or empty, then what comes next
  bool ok_check;
  bool profile_on; mtx_profile_row *profile; int n_profile;  // PROFILE: room for n_profile rows, then how many came
  mtx_code rc;
  mtx_err err;
  bool done;                      // shared
  struct mtx_embed_group *group;  // nobody waits: its event tells the end
  mtx_run *run;                   // EVAL: freed by the engine, since the caller's job may be gone by then
} mtx_job;

struct mtx_session {
  mtx_engine *engine;
  int seq;                 // the engine's thread
  mtx_ids tokens;          // the whole sequence; kv may hold fewer
  mtx_lora *lora;          // counted
  float *logits; size_t cap_logits;
};

struct mtx_engine {
  const mtx_model *model;
  const mtx_tok *tok;
  mtx_context *ctx;
  mtx_kv *kv;
  mtx_prefix *prefix;
  mtx_disk *disk;          // the engine's thread; NULL = prompts are not saved
  mtx_sample_work *work;
  mtx_engine_opts opts;
  int64_t n_ctx;
  int32_t n_vocab, n_out, n_embed;
  uint64_t *mask;          // n_vocab bits
  uint64_t *eog;           // n_vocab bits: tokens that end a generation
  int wake_fd;
  pthread_t thread;
  bool has_thread, joined;
  mtx_code stop_rc; mtx_err stop_err;  // what the thread could not save at its end

  // The engine's thread only.
  mtx_run **runs; size_t n_runs, cap_runs;  // requests and evaluations, in order of arrival
  mtx_row *rows; int n_rows, n_decode_rows, n_draft_rows;  // of this step
  mtx_run **out_run; int64_t *out_token; int n_outs;  // wanted rows: whose, and of which of its tokens
  mtx_pace pace;                 // sizes prefill chunks
  double ms_rows[MTX_DRAFT_WIDEST];  // mean time of a step of i + 1 rows without prompts; 0 = not known
  unsigned n_chosen;             // steps that might have had drafts
  bool drafts_off;               // in the next step
  double t_step;                 // when the last step ended; 0 = there was a rest since
  mtx_policy policy;

  // Shared.
  pthread_mutex_t lock;
  pthread_cond_t work_cond;   // the thread waits on it
  pthread_cond_t done_cond;   // callers wait on it: jobs and events
  bool stop, woken;           // woken: the eventfd is readable
  mtx_run *arrived, **arrived_tail;
  mtx_job *jobs, **jobs_tail;
  int64_t *cancels; size_t n_cancels, cap_cancels;
  mtx_policy new_policy; bool has_new_policy;
  mtx_disk_opts new_disk; bool has_new_disk;   // dir is owned, NULL = none
  int new_threads;
  mtx_event *events, **events_tail;
  uint64_t epoch;             // counts takes
  int64_t next_id, n_waiting;
  int n_sessions;
  uint64_t model_checksum; bool has_checksum;
  mtx_engine_stats stats;
};

double mtx_now_ms(void);  // monotonic
struct timespec mtx_at_ms(double ms);  // that moment, for a timed wait

typedef struct mtx_embed_group mtx_embed_group;

// loop.c
void *mtx_engine_main(void *engine);  // of the thread
void mtx_engine_read_pages(const mtx_engine *e, mtx_engine_stats *s);  // with the lock held, once the thread runs

// inbox.c: what came since last time.
typedef struct { mtx_run *arrived; mtx_job *jobs; int64_t *cancels; size_t n_cancels; bool policy; } mtx_inbox;
bool mtx_inbox_receive(mtx_engine *e, bool idle, mtx_inbox *in);  // idle: waits until there is something to do; false = stop
void mtx_inbox_accept(mtx_engine *e, mtx_inbox *in);
void mtx_inbox_refuse(mtx_engine *e, mtx_inbox *in, const mtx_err *err);  // the engine closes: jobs end with err
bool mtx_engine_add_run(mtx_engine *e, mtx_run *r);  // false without memory
void mtx_engine_sweep(mtx_engine *e);  // frees runs that are doomed

// events.c: called by the engine's thread without the lock.
void mtx_emit(mtx_engine *e, mtx_event *ev);  // takes ev
void mtx_emit_start(mtx_engine *e, mtx_run *r);
void mtx_emit_progress(mtx_engine *e, mtx_run *r, int64_t n_processed);
void mtx_emit_token(mtx_engine *e, mtx_run *r, int32_t token, const char *text, size_t len,
                    const mtx_token_logprob *lp, const mtx_logprob *top);
void mtx_emit_done(mtx_engine *e, mtx_run *r, mtx_done_reason reason, const mtx_text_rule *stop, const mtx_err *err, const char *code);
mtx_event *mtx_event_new(const mtx_run *r, mtx_event_kind kind);
mtx_code mtx_event_add_logprob(mtx_event *ev, const mtx_token_logprob *lp, const mtx_logprob *top);
void mtx_events_wake(mtx_engine *e);  // once per step

// run.c: one request.
mtx_code mtx_run_new(const mtx_engine *e, const mtx_request *r, mtx_run **out, mtx_err *err);  // takes r->matcher
void mtx_run_free(mtx_run *r);
// Takes the logits of the run's last token: samples, emits, may set doomed.
void mtx_run_logits(mtx_engine *e, mtx_run *r, const float *logits);
void mtx_run_prompt_logits(mtx_engine *e, mtx_run *r, int64_t i_token, const float *logits);
// The sampled token is in r->tokens: its text, and what follows from it. lp and its alternatives: NULL, or what goes out with it.
void mtx_run_take_token(mtx_engine *e, mtx_run *r, int32_t token, const mtx_token_logprob *lp, const mtx_logprob *top);
// Ends a request: event, pages to the prefix index or back, doomed.
void mtx_run_finish(mtx_engine *e, mtx_run *r, mtx_done_reason reason, const mtx_text_rule *stop, const mtx_err *err, const char *code);
void mtx_run_end(mtx_engine *e, mtx_run *r, mtx_done_reason reason);  // the same behind all text that is held
void mtx_run_fail(mtx_engine *e, mtx_run *r, const mtx_err *err);  // request or evaluation

// guide.c: the second sequence of a request with guidance.
mtx_code mtx_guide_new(const mtx_engine *e, const mtx_request *r, mtx_run *run, mtx_err *err);  // fills run->guide
// A row has come for r: the run to sample and its logits, r itself without guidance; NULL while the other row is missing.
mtx_run *mtx_guide_join(mtx_engine *e, mtx_run *r, int64_t i_token, const float **logits);
void mtx_guide_follow(mtx_engine *e, mtx_run *r);  // after sampling: the guide gets r's tokens

// batch.c: rows of the next step (e->rows); may end runs that can never go on.
void mtx_batch_build(mtx_engine *e);
// Frees pages of somebody who stands behind `r` (NULL: of anybody); false when there are none to free.
bool mtx_batch_make_room(mtx_engine *e, const mtx_run *r);
int64_t mtx_run_next_mark(const mtx_run *r, int64_t at);  // the first of its marks behind `at`; INT64_MAX when there is none
bool mtx_run_wants_hidden(const mtx_engine *e, const mtx_run *r);  // rows of a decoder that are embedded
int mtx_run_compare(const mtx_run *a, const mtx_run *b);  // order in which runs are served

// draft_rows.c: drafts in the step that is being built, which has decoding rows alone.
void mtx_draft_rows(mtx_engine *e, int most_rows);
void mtx_draft_measure(mtx_engine *e, double ms);    // the step took ms
bool mtx_draft_holds(mtx_run *r, int64_t i_token);   // is the token of this row the one that was sampled for its place?
// Sequences are cut back to what holds of their drafts; how many tokens that is. failed: the step changed nothing, the next one goes without.
int mtx_draft_settle(mtx_engine *e, bool failed);

// session.c: jobs.
void mtx_job_start(mtx_engine *e, mtx_job *job);
void mtx_job_rows(mtx_engine *e, mtx_run *r, int64_t i_token, const float *row);  // one output row of an evaluation
void mtx_jobs_hand_in(mtx_engine *e, mtx_job *jobs, size_t n);  // with the lock held, on a caller's thread
mtx_code mtx_jobs_run(mtx_engine *e, mtx_job *jobs, size_t n, mtx_err *err);  // hands in and waits for all of them
mtx_code mtx_check_tokens(const mtx_engine *e, const char *field, const int32_t *tokens, int64_t n, mtx_err *err);

// embed.c: evaluations whose rows are pooled to vectors.
void mtx_embed_row(mtx_engine *e, mtx_run *r, int64_t i_token, const float *row);
void mtx_embed_ended(mtx_engine *e, mtx_job *job, mtx_code rc);  // an input of a group
bool mtx_embed_belongs(const mtx_run *r, int64_t id);            // to the group of that id

// lora.c
mtx_code mtx_check_lora(const mtx_engine *e, const mtx_lora *l, mtx_err *err);  // are they of e's model?
// The part of a key (mtx_engine_cache_key) that tells the adapters; "" when there are none.
const char *mtx_key_adapters(const char *key, size_t n, size_t *n_adapters);

// store.c: saved state.
void mtx_job_save(mtx_engine *e, mtx_job *job);
void mtx_job_load(mtx_engine *e, mtx_job *job);
void mtx_engine_take_disk(mtx_engine *e, mtx_disk_opts o);  // on the engine's thread: from now on; takes o.dir

bool mtx_engine_check(mtx_engine *e);  // on a caller's thread: counts every page
void mtx_job_end(mtx_engine *e, mtx_job *job, mtx_code rc);          // wakes the caller

#endif
