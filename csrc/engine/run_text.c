// SPDX-License-Identifier: MIT
// The text of a request: what is certain of it goes out, stop strings end it, banned strings take it back.
#include <string.h>

#include "engine/state.h"

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
  if (r->draft) mtx_draft_cut(r->draft, (int64_t)r->tokens.len);
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

void mtx_run_take_token(mtx_engine *e, mtx_run *r, int32_t token, const mtx_token_logprob *lp, const mtx_logprob *top) {
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
