// SPDX-License-Identifier: MIT
// Embeddings: inputs become evaluations of sequences of their own that share
// steps with everything else; their rows are pooled as they come. The caller
// waits for the vectors, or an event brings them.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/state.h"

// The inputs of one call. With `done` it lives until its last input has ended
// and is touched by the engine's thread only.
struct mtx_embed_group {
  int n, n_left;
  mtx_job *jobs;
  mtx_session *sessions;
  double *sums;          // mean pooling
  int32_t *tokens;       // copies
  mtx_event *done;       // NULL: the caller waits
  mtx_code rc;           // of the first input that failed
  mtx_err err;
};

static void group_free(mtx_embed_group *g) {
  for (int i = 0; i < g->n; i++) {
    mtx_ids_fini(&g->sessions[i].tokens);
    mtx_lora_unref(g->sessions[i].lora);
  }
  free(g->jobs);
  free(g->sessions);
  free(g->sums);
  free(g->tokens);
  mtx_event_free(g->done);
  free(g);
}

// ---- on the engine's thread -----------------------------------------------------

static void pool_end(const mtx_engine *e, mtx_job *job) {
  size_t n = (size_t)e->n_embed;
  if (job->pooling == MTX_POOL_MEAN)
    for (size_t i = 0; i < n; i++) job->out[i] = (float)(job->sum[i] / (double)job->n);
  if (!job->normalize) return;
  double norm = 0;
  for (size_t i = 0; i < n; i++) norm += (double)job->out[i] * job->out[i];
  norm = sqrt(norm);
  for (size_t i = 0; i < n && norm > 0; i++) job->out[i] = (float)(job->out[i] / norm);
}

void mtx_embed_row(mtx_engine *e, mtx_run *r, int64_t i_token, const float *row) {
  mtx_job *job = r->job;
  size_t n = (size_t)e->n_embed;
  bool last = i_token == (int64_t)r->tokens.len - 1;
  if (job->pooling == MTX_POOL_MEAN) {
    for (size_t i = 0; i < n; i++) job->sum[i] += row[i];
  } else {
    memcpy(job->out + (job->all ? (size_t)i_token * n : 0), row, n * sizeof *row);
    last |= !job->all;
  }
  if (!last) return;
  if (!job->all) pool_end(e, job);
  for (size_t i = 0; i < n * (job->all ? (size_t)job->n : 1); i++)
    if (!isfinite(job->out[i])) {
      mtx_job_end(e, job, mtx_fail(&job->err, MTX_ENUMERIC, "the model gave a value that is not a finite number"));
      return;
    }
  mtx_job_end(e, job, MTX_OK);
}

bool mtx_embed_belongs(const mtx_run *r, int64_t id) { return r->job && r->job->group && r->job->group->done->id == id; }

void mtx_embed_ended(mtx_engine *e, mtx_job *job, mtx_code rc) {
  mtx_embed_group *g = job->group;
  if (rc && !g->rc) {
    g->rc = rc;
    g->err = job->err;
  }
  if (--g->n_left) return;
  mtx_event *ev = g->done;
  g->done = NULL;
  ev->reason = !g->rc ? MTX_DONE_STOP : g->rc == MTX_ECANCELLED ? MTX_DONE_CANCELLED : MTX_DONE_ERROR;
  if (g->rc) {
    ev->code = mtx_code_name(g->rc);
    mtx_err_format(&g->err, ev->message, (int)sizeof ev->message);
  }
  group_free(g);
  mtx_emit(e, ev);
}

// ---- on the caller's -------------------------------------------------------------

static mtx_code pooling_of(const mtx_engine *e, mtx_pooling *p, mtx_err *err) {
  const mtx_model_info *info = mtx_model_get_info(e->model);
  if (!info->n_embed) return mtx_fail(err, MTX_EUNSUPPORTED, "this architecture gives no hidden state to make embeddings of");
  if (*p == MTX_POOL_MODEL) {
    // Without the key: encoders were trained with the mean; of a decoder only the last token has seen the whole text.
    bool known = info->pooling >= MTX_POOL_MEAN && info->pooling <= MTX_POOL_LAST;
    *p = known ? (mtx_pooling)info->pooling : info->has_logits ? MTX_POOL_LAST : MTX_POOL_MEAN;
  }
  if (*p < MTX_POOL_NONE || *p > MTX_POOL_LAST) return mtx_fail_at(err, MTX_EINVAL, NULL, "pooling", 0, "%d is unknown", (int)*p);
  return MTX_OK;
}

static mtx_code group_new(mtx_engine *e, const int32_t *const *tokens, const int64_t *n_tokens, int n, mtx_pooling pooling, bool normalize,
                          mtx_lora *lora, mtx_embed_group **out, mtx_err *err) {
  *out = NULL;
  mtx_code rc = pooling_of(e, &pooling, err);
  if (!rc) rc = mtx_check_lora(e, lora, err);
  for (int i = 0; i < n && !rc; i++) rc = mtx_check_tokens(e, "tokens", tokens[i], n_tokens[i], err);
  if (rc) return rc;
  mtx_embed_group *g = calloc(1, sizeof *g);
  if (!g) goto nomem;
  g->jobs = calloc((size_t)n, sizeof *g->jobs);
  g->sessions = calloc((size_t)n, sizeof *g->sessions);
  g->sums = calloc((size_t)n * (size_t)e->n_embed, sizeof *g->sums);
  if (!g->jobs || !g->sessions || !g->sums) goto nomem;
  g->n = g->n_left = n;
  for (int i = 0; i < n; i++) {
    g->sessions[i] = (mtx_session){.engine = e, .seq = -1, .lora = mtx_lora_ref(lora)};
    g->jobs[i] = (mtx_job){.kind = MTX_JOB_EVAL, .session = &g->sessions[i], .tokens = tokens[i], .n = n_tokens[i], .embed = true,
                           .all = pooling == MTX_POOL_NONE, .pooling = pooling, .normalize = normalize, .sum = g->sums + (size_t)i * (size_t)e->n_embed};
  }
  *out = g;
  return MTX_OK;
nomem:
  if (g) group_free(g);
  return mtx_fail(err, MTX_ENOMEM, "no memory for %d embeddings", n);
}

static int64_t n_vectors(const mtx_embed_group *g) {
  int64_t n = 0;
  for (int i = 0; i < g->n; i++) n += g->jobs[i].all ? g->jobs[i].n : 1;
  return n;
}

static void place_vectors(const mtx_engine *e, mtx_embed_group *g, float *out) {
  for (int i = 0; i < g->n; i++) {
    g->jobs[i].out = out;
    out += (size_t)e->n_embed * (g->jobs[i].all ? (size_t)g->jobs[i].n : 1);
  }
}

mtx_code mtx_engine_embed(mtx_engine *e, const int32_t *const *tokens, const int64_t *n_tokens, int n,
                          mtx_pooling pooling, bool normalize, mtx_lora *lora, float *out, mtx_err *err) {
  mtx_embed_group *g;
  mtx_code rc = group_new(e, tokens, n_tokens, n, pooling, normalize, lora, &g, err);
  if (rc) return rc;
  place_vectors(e, g, out);
  rc = mtx_jobs_run(e, g->jobs, (size_t)n, err);
  group_free(g);
  return rc;
}

// What an event needs beyond a waiting caller: its own copy of the tokens, and room for the vectors.
static bool keep(const mtx_engine *e, mtx_embed_group *g) {
  size_t n = 0, width = (size_t)e->n_embed;
  for (int i = 0; i < g->n; i++) n += (size_t)g->jobs[i].n;
  g->tokens = malloc(n * sizeof *g->tokens);
  g->done = calloc(1, sizeof *g->done);
  if (!g->tokens || !g->done) return false;
  mtx_event *ev = g->done;
  *ev = (mtx_event){.kind = MTX_EVENT_DONE, .n_prompt = (int64_t)n, .n_vectors = n_vectors(g), .vector_len = e->n_embed};
  ev->vectors = malloc((size_t)ev->n_vectors * width * sizeof *ev->vectors);
  if (!ev->vectors) return false;
  int32_t *at = g->tokens;
  for (int i = 0; i < g->n; i++) {
    memcpy(at, g->jobs[i].tokens, (size_t)g->jobs[i].n * sizeof *at);
    g->jobs[i].tokens = at;
    g->jobs[i].group = g;
    at += g->jobs[i].n;
  }
  place_vectors(e, g, ev->vectors);
  return true;
}

mtx_code mtx_engine_embed_submit(mtx_engine *e, const int32_t *const *tokens, const int64_t *n_tokens, int n,
                                 mtx_pooling pooling, bool normalize, mtx_lora *lora, int64_t *id, mtx_err *err) {
  if (n < 1) return mtx_fail_at(err, MTX_EINVAL, NULL, "inputs", 0, "there are none");
  mtx_embed_group *g;
  mtx_code rc = group_new(e, tokens, n_tokens, n, pooling, normalize, lora, &g, err);
  if (rc) return rc;
  if (!keep(e, g)) {
    group_free(g);
    return mtx_fail(err, MTX_ENOMEM, "no memory for %d embeddings", n);
  }
  pthread_mutex_lock(&e->lock);
  *id = g->done->id = e->next_id++;
  mtx_jobs_hand_in(e, g->jobs, (size_t)n);
  pthread_mutex_unlock(&e->lock);
  return MTX_OK;
}
