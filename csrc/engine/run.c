// SPDX-License-Identifier: MIT
// One request on the engine's thread: its checks, its parts, its end. (run_logits.c: its next token; run_text.c: that
// token's text.)
#include <stdlib.h>
#include <string.h>

#include "engine/state.h"

void mtx_request_init(mtx_request *r) {
  *r = (mtx_request){.logprobs = -1, .prompt_logprobs = -1, .cfg_scale = 1};
}

static mtx_code check(const mtx_engine *e, const mtx_request *r, mtx_err *err) {
  if (!mtx_model_get_info(e->model)->has_logits) return mtx_fail(err, MTX_EUNSUPPORTED, "this model gives embeddings, no text; use embed");
  if (!e->work) return mtx_fail(err, MTX_EUNSUPPORTED, "this model has no tokenizer that mtx can read; a session takes token ids and gives logits");
  if (r->n_tokens < 1) return mtx_fail_at(err, MTX_EINVAL, NULL, "tokens", 0, "the prompt is empty");
  mtx_code rc = mtx_check_tokens(e, "tokens", r->tokens, r->n_tokens, err);
  if (!rc && r->n_reference) rc = mtx_check_tokens(e, "reference", r->reference, r->n_reference, err);
  if (rc) return rc;
  if (r->max_tokens < 0) return mtx_fail_at(err, MTX_EINVAL, NULL, "max_tokens", 0, "%lld is negative", (long long)r->max_tokens);
  if (r->n_tokens > e->n_ctx - (r->max_tokens > 0))
    return mtx_fail(err, MTX_ELIMIT, "the prompt has %lld tokens, the context is %lld tokens; shorten the prompt or raise the context",
                    (long long)r->n_tokens, (long long)e->n_ctx);
  int64_t capacity = mtx_kv_get_stats(e->kv).n_total * MTX_PAGE_TOKENS;
  if (capacity && r->n_tokens > capacity)
    return mtx_fail(err, MTX_ELIMIT, "the prompt has %lld tokens, the whole KV cache holds %lld; raise its budget",
                    (long long)r->n_tokens, (long long)capacity);
  if ((rc = mtx_check_lora(e, r->lora, err))) return rc;
  if (r->logprobs > 1000 || r->prompt_logprobs > 1000)
    return mtx_fail_at(err, MTX_EINVAL, NULL, "logprobs", 0, "at most 1000 alternatives per token");
  if (r->draft.max && mtx_model_get_info(e->model)->recurrent)
    return mtx_fail_at(err, MTX_EUNSUPPORTED, NULL, "draft", 0, "this model has recurrent state, which cannot be cut back to what holds of a draft");
  if (r->draft.max && r->cfg_scale != 1) return mtx_fail_at(err, MTX_EUNSUPPORTED, NULL, "draft", 0, "cannot be combined with guidance (cfg_scale)");
  if (r->n_bans && r->n_rest) return mtx_fail_at(err, MTX_EUNSUPPORTED, NULL, "rest", 0, "cannot be combined with banned strings");
  if (r->n_bans && (r->matcher || r->logprobs >= 0))
    return mtx_fail_at(err, MTX_EUNSUPPORTED, NULL, "banned_strings", 0, "cannot be combined with a grammar or logprobs");
  for (int i = 0; i < r->n_stops; i++)
    if (!r->stop_lens[i]) return mtx_fail_at(err, MTX_EINVAL, NULL, "stop", 0, "a stop string is empty");
  for (int i = 0; i < r->n_bans; i++)
    if (!r->ban_lens[i]) return mtx_fail_at(err, MTX_EINVAL, NULL, "banned_strings", 0, "a banned string is empty");
  return MTX_OK;
}

static mtx_code add_rule(mtx_run *run, const char *text, size_t len, bool ban, mtx_err *err) {
  mtx_text_rule *rule = &run->rules[run->n_rules];
  rule->text = malloc(len);
  if (!rule->text) return mtx_fail(err, MTX_ENOMEM, "no memory for a request");
  memcpy(rule->text, text, len);
  rule->len = len;
  rule->ban = ban;
  run->n_rules++;
  return MTX_OK;
}

// Where later prompts may leave this one, for models that go on only from checkpoints:
// its end (the next turn; with recurrent state one token before it, so that the same
// prompt again has a token to evaluate), and where its last two clusters of control tokens begin.
// Such a cluster frames a turn, as <|im_end|> <|im_start|> user does: at the last one a
// chat continues whose template rewrites the reply's start, at the one before it a chat
// whose last turn was edited.
static void set_marks(const mtx_engine *e, mtx_run *r) {
  enum { GAP = 16, CLUSTER = 64, LEAST = 32 };  // tokens: between control tokens of a cluster, of a cluster, worth a checkpoint
  bool recurrent = mtx_model_get_info(e->model)->recurrent;
  int64_t at[MTX_MAX_MARKS] = {r->n_prompt - (recurrent && r->n_prompt > 1)}, first = -1, last = -1;
  int n = 1;
  for (int64_t i = at[0] - 1; i >= LEAST && n < MTX_MAX_MARKS; i--) {
    if (first >= 0 && (first - i > GAP || last - i > CLUSTER)) {
      at[n++] = first;
      first = -1;
    }
    if (!(mtx_tok_attr(e->tok, r->tokens.ptr[i]) & MTX_TOK_ATTR_CONTROL)) continue;
    if (first < 0) last = i;
    first = i;
  }
  if (first >= 0 && n < MTX_MAX_MARKS) at[n++] = first;
  for (int i = n - 1; i >= 0; i--) r->mark[r->n_marks++] = at[i];
}

int64_t mtx_run_next_mark(const mtx_run *r, int64_t at) {
  for (int i = 0; i < r->n_marks; i++)
    if (r->mark[i] > at) return r->mark[i];
  return INT64_MAX;
}

mtx_code mtx_run_new(const mtx_engine *e, const mtx_request *r, mtx_run **out, mtx_err *err) {
  *out = NULL;
  mtx_code rc = check(e, r, err);
  mtx_run *run = rc ? NULL : calloc(1, sizeof *run);
  if (!run) {
    mtx_matcher_free(r->matcher);
    if (r->hook.close) r->hook.close(r->hook.self);
    return rc ? rc : mtx_fail(err, MTX_ENOMEM, "no memory for a request");
  }
  run->matcher = r->matcher;
  run->hook = r->hook;
  run->lora = mtx_lora_ref(r->lora);
  run->seq = -1;
  run->n_prompt = r->n_tokens;
  run->n_max = r->max_tokens < e->n_ctx - r->n_tokens ? r->n_tokens + r->max_tokens : e->n_ctx;
  run->priority = r->priority;
  run->rank = INT64_MAX;
  run->t_submit = mtx_now_ms();
  run->t_deadline = r->deadline_ms > 0 ? run->t_submit + (double)r->deadline_ms : 0;
  run->logprobs = r->logprobs;
  run->prompt_logprobs = r->prompt_logprobs;
  run->ignore_eos = r->ignore_eos;
  run->progress = r->progress;
  run->resumable = r->resumable && !r->n_bans;
  run->has_bans = r->n_bans > 0;
  mtx_detok_init(&run->detok, e->tok, false, false);
  mtx_sampler_opts defaults;
  mtx_sampler_opts_init(&defaults);
  if ((rc = mtx_sampler_open(&run->sampler, r->sampler ? r->sampler : &defaults, e->n_vocab, err))) goto fail;
  if ((rc = mtx_ids_append(&run->tokens, r->tokens, (size_t)r->n_tokens, err))) goto fail;
  if (r->n_rest && (rc = mtx_detok_bytes(&run->detok, r->rest, r->n_rest, &run->held, err))) goto fail;
  if (r->n_shown && (rc = mtx_ids_append(&run->shown, r->shown, (size_t)r->n_shown, err))) goto fail;
  mtx_buf key = {0};
  rc = r->cache_key ? mtx_engine_cache_key(r->cache_key, r->lora, &key, err) : MTX_OK;
  run->cache_key = key.ptr;
  if (rc) goto fail;
  rc = MTX_ENOMEM;
  run->rules = calloc((size_t)(r->n_stops + r->n_bans) + 1, sizeof *run->rules);
  if (r->prompt_logprobs >= 0) run->start = mtx_event_new(run, MTX_EVENT_START);
  if (!run->rules || (r->prompt_logprobs >= 0 && !run->start)) {
    mtx_fail(err, rc, "no memory for a request");
    goto fail;
  }
  if (r->cache_key && mtx_prefix_wants_checkpoints(e->prefix)) set_marks(e, run);
  for (int i = 0; i < r->n_stops; i++)
    if ((rc = add_rule(run, r->stops[i], r->stop_lens[i], false, err))) goto fail;
  for (int i = 0; i < r->n_bans; i++)
    if ((rc = add_rule(run, r->bans[i], r->ban_lens[i], true, err))) goto fail;
  if ((rc = mtx_guide_new(e, r, run, err))) goto fail;
  if (r->draft.max && ((rc = mtx_draft_open(&run->draft, &r->draft, run->n_max, r->reference, r->n_reference, err)) ||
                       (rc = mtx_draft_read(run->draft, r->tokens, r->n_tokens, err)))) goto fail;
  *out = run;
  return MTX_OK;
fail:
  mtx_run_free(run->guide);
  mtx_run_free(run);
  return rc;
}

void mtx_run_free(mtx_run *r) {
  if (!r) return;
  for (int i = 0; i < r->n_rules; i++) free(r->rules[i].text);
  free(r->rules);
  free(r->cache_key);
  mtx_lora_unref(r->lora);
  free(r->bans);
  mtx_ids_fini(&r->tokens);
  mtx_ids_fini(&r->shown);
  mtx_ids_fini(&r->text_len);
  mtx_buf_fini(&r->held);
  mtx_draft_close(r->draft);
  mtx_sampler_close(r->sampler);
  mtx_matcher_free(r->matcher);
  mtx_event_free(r->start);
  free(r->row);
  if (r->hook.close) r->hook.close(r->hook.self);
  free(r);
}

// The prefix index remembers a finished request.
static void release(mtx_engine *e, mtx_run *r, bool keep) {
  if (r->seq < 0) return;
  if (r->n_sure) (void)mtx_kv_seq_truncate(e->kv, r->seq, r->n_sure);
  if (keep && r->cache_key) mtx_prefix_put(e->prefix, r->cache_key, r->seq, r->tokens.ptr);
  mtx_kv_seq_free(e->kv, r->seq);
  r->seq = -1;
}

void mtx_run_finish(mtx_engine *e, mtx_run *r, mtx_done_reason reason, const mtx_text_rule *stop, const mtx_err *err, const char *code) {
  if (r->doomed) return;
  r->doomed = true;
  release(e, r, reason != MTX_DONE_ERROR);
  if (r->guide) {
    r->guide->doomed = true;
    release(e, r->guide, reason != MTX_DONE_ERROR);
  }
  mtx_emit_done(e, r, reason, stop, err, code);
}

void mtx_run_fail(mtx_engine *e, mtx_run *r, const mtx_err *err) {
  if (r->guided) r = r->guided;
  if (r->job) {
    r->job->err = *err;
    mtx_job_end(e, r->job, err->code);
  } else {
    mtx_run_finish(e, r, MTX_DONE_ERROR, NULL, err, NULL);
  }
}
