// SPDX-License-Identifier: MIT
// Classifier-free guidance: one generation over two sequences.
//
// The guide is a run of its own with another prompt. It has no id and no events;
// it stands right behind the request it guides and follows its tokens. A token is
// sampled when the logits of both have come, whichever step that was, so the two
// need not share steps and either may be parked or lose its pages meanwhile.
#include <stdlib.h>
#include <string.h>

#include "engine/state.h"

static mtx_code check(const mtx_engine *e, const mtx_request *r, mtx_err *err) {
  if (!(r->cfg_scale >= -100 && r->cfg_scale <= 100))
    return mtx_fail_at(err, MTX_EINVAL, NULL, "cfg_scale", 0, "%g is out of range; it must be between -100 and 100", r->cfg_scale);
  if (r->n_negative < 1) return mtx_fail_at(err, MTX_EINVAL, NULL, "negative", 0, "the negative prompt is empty");
  if (r->n_negative > e->n_ctx - (r->max_tokens > 0))
    return mtx_fail_at(err, MTX_ELIMIT, NULL, "negative", 0, "the negative prompt has %lld tokens, the context is %lld tokens", (long long)r->n_negative,
                       (long long)e->n_ctx);
  return mtx_check_tokens(e, "negative", r->negative, r->n_negative, err);
}

mtx_code mtx_guide_new(const mtx_engine *e, const mtx_request *r, mtx_run *run, mtx_err *err) {
  if (r->cfg_scale == 1) return MTX_OK;
  mtx_code rc = check(e, r, err);
  if (rc) return rc;
  mtx_run *g = calloc(1, sizeof *g);
  if (!g) return mtx_fail(err, MTX_ENOMEM, "no memory for a request");
  run->guide = g;
  run->cfg_scale = r->cfg_scale;
  *g = (mtx_run){.guided = run, .seq = -1, .priority = run->priority, .rank = INT64_MAX, .n_prompt = r->n_negative, .logprobs = -1, .prompt_logprobs = -1, .lora = mtx_lora_ref(run->lora)};
  run->row = malloc((size_t)e->n_out * sizeof(float));
  g->row = malloc((size_t)e->n_out * sizeof(float));
  if (run->cache_key) g->cache_key = strdup(run->cache_key);
  if (!run->row || !g->row || (run->cache_key && !g->cache_key)) return mtx_fail(err, MTX_ENOMEM, "no memory for a request");
  // Both must fit the context.
  if (run->n_max - run->n_prompt > e->n_ctx - r->n_negative) run->n_max = run->n_prompt + e->n_ctx - r->n_negative;
  g->n_max = r->n_negative + run->n_max - run->n_prompt;
  return mtx_ids_append(&g->tokens, r->negative, (size_t)r->n_negative, err);
}

mtx_run *mtx_guide_join(mtx_engine *e, mtx_run *r, int64_t i_token, const float **logits) {
  mtx_run *main = r->guided ? r->guided : r, *guide = main->guide;
  if (!guide) return r;
  // One that lost its pages while it waited is evaluated again; its first row may have served by now.
  if (i_token != (int64_t)r->tokens.len - 1) return NULL;
  memcpy(r->row, *logits, (size_t)e->n_out * sizeof(float));
  r->has_row = true;
  if (r == guide && !r->t_first) r->t_first = mtx_now_ms();
  if (!main->has_row || !guide->has_row) return NULL;
  main->has_row = guide->has_row = false;
  *logits = main->row;
  return main;
}

void mtx_guide_follow(mtx_engine *e, mtx_run *r) {
  mtx_run *g = r->guide;
  if (!g || r->doomed) return;
  size_t have = g->tokens.len - (size_t)g->n_prompt, n = (size_t)r->n_generated;
  if (n < have) {  // a banned string was taken back
    g->tokens.len = (size_t)g->n_prompt + n;
    if (g->seq >= 0 && mtx_kv_seq_len(e->kv, g->seq) >= (int64_t)g->tokens.len) (void)mtx_kv_seq_truncate(e->kv, g->seq, (int64_t)g->tokens.len - 1);
    return;
  }
  mtx_err err;
  if (mtx_ids_append(&g->tokens, r->tokens.ptr + r->n_prompt + have, n - have, &err)) mtx_run_fail(e, r, &err);
}
