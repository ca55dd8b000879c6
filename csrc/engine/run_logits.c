// SPDX-License-Identifier: MIT
// The next token of a request: its row of logits, what is allowed in it, and the choice.
#include <math.h>
#include <string.h>

#include "engine/state.h"

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
    mtx_run_end(e, r, MTX_DONE_LENGTH);
    return;
  }
  mtx_sample_load(e->work, logits);
  if (r->guide) mtx_sample_guide(e->work, r->guide->row, r->cfg_scale);
  mtx_code rc = restrict_row(e, r, &end, &err);
  if (!rc && end) {
    mtx_run_end(e, r, MTX_DONE_STOP);
    return;
  }
  if (!rc && r->hook.pick) rc = ask_hook(e, r, &token, &err);
  if (!rc && token < 0) rc = mtx_sampler_pick(r->sampler, e->work, r->tokens.ptr, (int64_t)r->tokens.len, &token, &err);
  if (rc) goto fail;
  if (bit(e->eog, token) && !r->ignore_eos) {
    mtx_run_end(e, r, MTX_DONE_STOP);
    return;
  }
  if (r->matcher && (rc = mtx_matcher_accept_token(r->matcher, (uint32_t)token, &err))) goto fail;
  if ((rc = mtx_ids_push(&r->tokens, token, &err)) || (r->draft && (rc = mtx_draft_add(r->draft, token, &err)))) goto fail;
  r->n_generated++;
  if (r->logprobs >= 0) {
    lp.id = token;
    lp.n_top = mtx_sample_logprobs(e->work, logits, token, &lp.logprob, top, r->logprobs);
  }
  mtx_run_take_token(e, r, token, r->logprobs >= 0 ? &lp : NULL, top);
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
