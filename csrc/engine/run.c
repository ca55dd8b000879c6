// SPDX-License-Identifier: MIT
// One request on the engine's thread: from logits to token, text and end.
#include <math.h>
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
  for (int64_t i = 0; i < r->n_tokens; i++)
    if (r->tokens[i] < 0 || r->tokens[i] >= e->n_vocab)
      return mtx_fail_at(err, MTX_EINVAL, NULL, "tokens", 0, "token %d does not exist; the vocabulary has %d", r->tokens[i], e->n_vocab);
  if (r->max_tokens < 0) return mtx_fail_at(err, MTX_EINVAL, NULL, "max_tokens", 0, "%lld is negative", (long long)r->max_tokens);
  if (r->n_tokens > e->n_ctx - (r->max_tokens > 0))
    return mtx_fail(err, MTX_ELIMIT, "the prompt has %lld tokens, the context is %lld tokens; shorten the prompt or raise the context",
                    (long long)r->n_tokens, (long long)e->n_ctx);
  int64_t capacity = mtx_kv_get_stats(e->kv).n_total * MTX_PAGE_TOKENS;
  if (capacity && r->n_tokens > capacity)
    return mtx_fail(err, MTX_ELIMIT, "the prompt has %lld tokens, the whole KV cache holds %lld; raise its budget",
                    (long long)r->n_tokens, (long long)capacity);
  mtx_code rc = mtx_check_lora(e, r->lora, err);
  if (rc) return rc;
  if (r->logprobs > 1000 || r->prompt_logprobs > 1000)
    return mtx_fail_at(err, MTX_EINVAL, NULL, "logprobs", 0, "at most 1000 alternatives per token");
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
  mtx_sampler_close(r->sampler);
  mtx_matcher_free(r->matcher);
  mtx_event_free(r->start);
  free(r->row);
  if (r->hook.close) r->hook.close(r->hook.self);
  free(r);
}

// ---- the end --------------------------------------------------------------------

// The prefix index remembers a finished request.
static void release(mtx_engine *e, mtx_run *r, bool keep) {
  if (r->seq < 0) return;
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

// ---- text -----------------------------------------------------------------------

// First rule whose text stands in the held text; *at = where. NULL if none.
static const mtx_text_rule *find_rule(const mtx_run *r, size_t *at) {
  const mtx_text_rule *found = NULL;
  for (int i = 0; i < r->n_rules; i++) {
    const mtx_text_rule *rule = &r->rules[i];
    const char *p = r->held.len >= rule->len ? memmem(r->held.ptr, r->held.len, rule->text, rule->len) : NULL;
    if (p && (!found || (size_t)(p - r->held.ptr) < *at)) found = rule, *at = (size_t)(p - r->held.ptr);
  }
  return found;
}

// Bytes at the end of the held text that may be the start of a rule's text.
static size_t open_tail(const mtx_run *r) {
  size_t keep = 0;
  for (int i = 0; i < r->n_rules; i++) {
    const mtx_text_rule *rule = &r->rules[i];
    size_t k = rule->len - 1 < r->held.len ? rule->len - 1 : r->held.len;
    while (k > keep && memcmp(r->held.ptr + r->held.len - k, rule->text, k) != 0) k--;
    if (k > keep) keep = k;
  }
  while (keep < r->held.len && keep && (r->held.ptr[r->held.len - keep] & 0xc0) == 0x80) keep++;  // whole characters only
  return keep;
}

static void drop_front(mtx_buf *b, size_t n) {
  memmove(b->ptr, b->ptr + n, b->len - n);
  b->len -= n;
}

// Gives out the first n held bytes. With bans: only whole tokens, since a ban may
// take back any token whose text is held.
static void give_out(mtx_engine *e, mtx_run *r, size_t n, int32_t token, const mtx_token_logprob *lp, const mtx_logprob *top) {
  if (!r->has_bans) {
    mtx_emit_token(e, r, token, r->held.ptr, n, lp, top);
    if (n) drop_front(&r->held, n);
    return;
  }
  size_t done = 0;
  for (; !r->doomed && r->n_sent < (int64_t)r->text_len.len; r->n_sent++) {
    size_t len = (size_t)r->text_len.ptr[r->n_sent];
    if (done + len > n) break;
    mtx_emit_token(e, r, r->tokens.ptr[r->n_prompt + r->n_sent], r->held.ptr + done, len, NULL, NULL);
    done += len;
  }
  r->sent_bytes += (int64_t)done;
  if (done) drop_front(&r->held, done);
}

// Ends with all text that is certain; a stop string in the last bytes still counts.
// `met`: the stop that ended it without text of its own, or NULL.
static void finish_text(mtx_engine *e, mtx_run *r, mtx_done_reason reason, const mtx_text_rule *met) {
  if (r->resumable && reason == MTX_DONE_LENGTH) {  // it is not certain
    mtx_run_finish(e, r, reason, NULL, NULL, NULL);
    return;
  }
  size_t at = 0;
  (void)mtx_detok_flush(&r->detok, &r->held, NULL);  // without memory a broken last character is lost
  const mtx_text_rule *rule = find_rule(r, &at);
  if (rule && rule->ban) rule = NULL;
  size_t n = rule ? at : r->held.len;
  if (!rule) rule = met;
  if (r->has_bans) {
    if (n) mtx_emit_token(e, r, -1, r->held.ptr, n, NULL, NULL);
    for (; !r->doomed && r->n_sent < r->n_generated; r->n_sent++) mtx_emit_token(e, r, r->tokens.ptr[r->n_prompt + r->n_sent], "", 0, NULL, NULL);
  } else if (n) {
    mtx_emit_token(e, r, -1, r->held.ptr, n, NULL, NULL);
  }
  mtx_run_finish(e, r, rule ? MTX_DONE_STOP_STRING : reason, rule, NULL, NULL);
}

void mtx_run_end(mtx_engine *e, mtx_run *r, mtx_done_reason reason) { finish_text(e, r, reason, NULL); }

// A token's text behind out.
static mtx_code feed(mtx_run *r, int32_t token, mtx_buf *out, mtx_err *err) {
  r->detok.special = false;
  for (size_t i = 0; i < r->shown.len && !r->detok.special; i++) r->detok.special = r->shown.ptr[i] == token;
  return mtx_detok_feed(&r->detok, token, out, err);
}

// A banned string stands at held[at]: goes back before the token that began it
// and forbids that token there.
static mtx_code roll_back(mtx_engine *e, mtx_run *r, size_t at, mtx_err *err) {
  int64_t i = (int64_t)r->text_len.len, end = r->sent_bytes + (int64_t)r->held.len, begin = r->sent_bytes + (int64_t)at;
  while (i > 0 && end > begin) end -= r->text_len.ptr[--i];
  mtx_code rc = mtx_grow(&r->bans, &r->cap_bans, r->n_bans + 1, sizeof *r->bans, err);
  if (rc) return rc;
  size_t n = 0;  // bans of places behind are void now
  for (size_t k = 0; k < r->n_bans; k++)
    if (r->bans[k].at <= r->n_prompt + i) r->bans[n++] = r->bans[k];
  r->bans[n++] = (mtx_ban){r->n_prompt + i, r->tokens.ptr[r->n_prompt + i]};
  r->n_bans = n;
  r->tokens.len = (size_t)(r->n_prompt + i);
  r->text_len.len = (size_t)i;
  r->n_generated = i;
  r->held.len = (size_t)(end - r->sent_bytes);
  mtx_detok_init(&r->detok, e->tok, false, false);
  mtx_buf again = {0};
  for (int64_t k = 0; k < i && !rc; k++) rc = feed(r, r->tokens.ptr[r->n_prompt + k], &again, err);
  mtx_buf_fini(&again);
  if (r->seq >= 0) (void)mtx_kv_seq_truncate(e->kv, r->seq, (int64_t)r->tokens.len - 1);
  return rc;
}

// A stop string may be the name of a control token, whose text is never shown.
static const mtx_text_rule *control_stop(const mtx_engine *e, const mtx_run *r, int32_t token) {
  const char *p;
  size_t len;
  if (!r->n_rules || !(mtx_tok_attr(e->tok, token) & MTX_TOK_ATTR_CONTROL) || !mtx_tok_piece(e->tok, token, true, &p, &len)) return NULL;
  for (int i = 0; i < r->n_rules; i++)
    if (!r->rules[i].ban && len >= r->rules[i].len && memmem(p, len, r->rules[i].text, r->rules[i].len)) return &r->rules[i];
  return NULL;
}

// The sampled token is in r->tokens: its text, and what follows from it.
static void take_token(mtx_engine *e, mtx_run *r, int32_t token, const mtx_token_logprob *lp, const mtx_logprob *top) {
  mtx_err err;
  size_t before = r->held.len, at = 0;
  const mtx_text_rule *rule = control_stop(e, r, token);
  if (rule) {
    finish_text(e, r, MTX_DONE_STOP_STRING, rule);
    return;
  }
  mtx_code rc = feed(r, token, &r->held, &err);
  if (!rc && r->has_bans) rc = mtx_ids_push(&r->text_len, (int32_t)(r->held.len - before), &err);
  if (rc) goto fail;
  if ((rule = find_rule(r, &at))) {
    if (rule->ban) {
      if ((rc = roll_back(e, r, at, &err))) goto fail;
      return;
    }
    give_out(e, r, at, token, lp, top);
    mtx_run_finish(e, r, MTX_DONE_STOP_STRING, rule, NULL, NULL);
    return;
  }
  give_out(e, r, r->held.len - open_tail(r), token, lp, top);
  if (!r->doomed && (int64_t)r->tokens.len >= r->n_max) finish_text(e, r, MTX_DONE_LENGTH, NULL);
  return;
fail:
  mtx_run_finish(e, r, MTX_DONE_ERROR, NULL, &err, NULL);
}

// ---- logits ---------------------------------------------------------------------

static bool bit(const uint64_t *bits, int32_t i) { return bits[i / 64] >> (i % 64) & 1; }

// Grammar, forbidden ends and rolled-back tokens. *end: the grammar is complete and allows nothing more.
static mtx_code restrict_row(mtx_engine *e, mtx_run *r, bool *end, mtx_err *err) {
  *end = false;
  float *row = mtx_sample_row(e->work);
  size_t n_words = ((size_t)e->n_vocab + 63) / 64;
  if (r->ignore_eos)
    for (size_t w = 0; w < n_words; w++)
      for (uint64_t bits = e->eog[w]; bits; bits &= bits - 1) row[w * 64 + (size_t)__builtin_ctzll(bits)] = -INFINITY;
  for (size_t i = 0; i < r->n_bans; i++)
    if (r->bans[i].at == (int64_t)r->tokens.len) row[r->bans[i].token] = -INFINITY;
  if (!r->matcher) return MTX_OK;
  memset(e->mask, 0, n_words * sizeof *e->mask);
  mtx_code rc = mtx_matcher_mask(r->matcher, e->mask, err);
  if (rc) return rc;
  uint64_t any = 0;
  for (size_t w = 0; w < n_words; w++) any |= e->mask[w];
  *end = !any && mtx_matcher_complete(r->matcher);
  mtx_sample_mask(e->work, e->mask);
  return MTX_OK;
}

// The hook sees which tokens are forbidden (-infinity) and cannot allow them again.
static mtx_code ask_hook(mtx_engine *e, mtx_run *r, int32_t *token, mtx_err *err) {
  float *row = mtx_sample_row(e->work);
  if (r->matcher || r->ignore_eos || r->n_bans) {
    for (int32_t i = 0; i < e->n_vocab; i++)
      if (row[i] > -INFINITY) e->mask[i / 64] |= UINT64_C(1) << (i % 64);
      else e->mask[i / 64] &= ~(UINT64_C(1) << (i % 64));
  } else {
    memset(e->mask, 0xff, ((size_t)e->n_vocab + 63) / 64 * sizeof *e->mask);
  }
  mtx_code rc = r->hook.pick(r->hook.self, row, e->n_vocab, r->tokens.ptr, (int64_t)r->tokens.len, token, err);
  if (rc) return rc;
  if (*token >= e->n_vocab) return mtx_fail(err, MTX_EINVAL, "the sampler function chose token %d; the vocabulary has %d", *token, e->n_vocab);
  if (*token >= 0 && !bit(e->mask, *token))
    return mtx_fail(err, MTX_EINVAL, "the sampler function chose token %d, which the grammar, ignore_eos or a banned string forbids", *token);
  if (*token < 0) mtx_sample_mask(e->work, e->mask);
  return MTX_OK;
}

void mtx_run_logits(mtx_engine *e, mtx_run *r, const float *logits) {
  enum { MAX_TOP = 1000 };
  mtx_logprob top[MAX_TOP];
  mtx_token_logprob lp = {0};
  mtx_err err;
  int32_t token = -1;
  bool end;
  if (!r->t_first) r->t_first = mtx_now_ms();
  if (!r->started) mtx_emit_start(e, r);
  if ((int64_t)r->tokens.len >= r->n_max) {  // max_tokens 0
    finish_text(e, r, MTX_DONE_LENGTH, NULL);
    return;
  }
  mtx_sample_load(e->work, logits);
  if (r->guide) mtx_sample_guide(e->work, r->guide->row, r->cfg_scale);
  mtx_code rc = restrict_row(e, r, &end, &err);
  if (!rc && end) {
    finish_text(e, r, MTX_DONE_STOP, NULL);
    return;
  }
  if (!rc && r->hook.pick) rc = ask_hook(e, r, &token, &err);
  if (!rc && token < 0) rc = mtx_sampler_pick(r->sampler, e->work, r->tokens.ptr, (int64_t)r->tokens.len, &token, &err);
  if (rc) goto fail;
  if (bit(e->eog, token) && !r->ignore_eos) {
    finish_text(e, r, MTX_DONE_STOP, NULL);
    return;
  }
  if (r->matcher && (rc = mtx_matcher_accept_token(r->matcher, (uint32_t)token, &err))) goto fail;
  if ((rc = mtx_ids_push(&r->tokens, token, &err))) goto fail;
  r->n_generated++;
  if (r->logprobs >= 0) {
    lp.id = token;
    lp.n_top = mtx_sample_logprobs(e->work, logits, token, &lp.logprob, top, r->logprobs);
  }
  take_token(e, r, token, r->logprobs >= 0 ? &lp : NULL, top);
  return;
fail:
  mtx_run_finish(e, r, MTX_DONE_ERROR, NULL, &err, NULL);
}

void mtx_run_prompt_logits(mtx_engine *e, mtx_run *r, int64_t i_token, const float *logits) {
  enum { MAX_TOP = 1000 };
  mtx_logprob top[MAX_TOP];
  if (r->prompt_logprobs < 0 || i_token + 1 >= r->n_prompt || !r->start) return;
  mtx_token_logprob lp = {.id = r->tokens.ptr[i_token + 1]};
  lp.n_top = mtx_sample_logprobs(e->work, logits, lp.id, &lp.logprob, top, r->prompt_logprobs);
  if (mtx_event_add_logprob(r->start, &lp, top)) {
    mtx_err err;
    mtx_fail(&err, MTX_ENOMEM, "no memory for the prompt's logprobs");
    mtx_run_finish(e, r, MTX_DONE_ERROR, NULL, &err, NULL);
  }
}
