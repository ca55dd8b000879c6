// SPDX-License-Identifier: MIT
// Steps: checks rows, makes room in the cache, runs the plan. See step.h.
#include "engine/step.h"

#include <stdlib.h>
#include <string.h>

#include "backend/exec.h"
#include "base/sysinfo.h"
#include "kern/kern.h"

struct mtx_context {
  const mtx_model *model;
  mtx_plan plan;               // the model's, with this context's KV type and offsets
  mtx_kv *kv;
  mtx_backend *backend;
  mtx_backend_profile profile;
  int64_t n_ctx;
  int max_rows, max_seqs;
  int32_t *token, *pos, *row_seq, *out_row;
  mtx_exec_seq *seq;
  float *outputs, *hidden;
  size_t outputs_cap, hidden_cap;  // floats
};

static int64_t default_ctx(const mtx_model_info *i) { return i->n_ctx_train < 4096 ? i->n_ctx_train : 4096; }

mtx_code mtx_context_open(mtx_context **out, const mtx_model *m, const mtx_context_opts *opts, mtx_err *err) {
  *out = NULL;
  const mtx_model_info *info = mtx_model_get_info(m);
  mtx_context_opts o = opts ? *opts : (mtx_context_opts){.kv_type = MTX_KV_F16};
  mtx_code code = MTX_ENOMEM;
  mtx_context *c = calloc(1, sizeof *c);
  if (!c) return mtx_fail(err, code, "not enough memory");
  c->model = m;
  c->n_ctx = o.n_ctx > 0 ? o.n_ctx : default_ctx(info);
  c->max_seqs = o.max_seqs > 0 ? o.max_seqs : 16;
  c->max_rows = o.max_rows > 0 ? o.max_rows : 512;
  if (!info->causal && c->max_rows < c->n_ctx) c->max_rows = (int)c->n_ctx;
  int n_threads = mtx_threads_for(o.n_threads);
  if (c->n_ctx > (1 << 30) || c->max_rows > (1 << 20) || c->max_seqs > 4096) {
    code = mtx_fail(err, MTX_EINVAL, "a context of %lld tokens, %d rows per step or %d sequences is not possible", (long long)c->n_ctx, c->max_rows, c->max_seqs);
    goto fail;
  }
  mtx_kv_layout layout = *mtx_model_kv_layout(m);
  layout.type = o.kv_type;
  if ((code = mtx_kv_open(&c->kv, &layout, o.kv_tokens > 0 ? o.kv_tokens : c->n_ctx, c->max_seqs, err))) goto fail;
  c->plan = *mtx_model_plan(m);
  c->plan.kv = *mtx_kv_get_layout(c->kv);
  if ((code = mtx_backend_open_cpu(&c->backend, &c->plan, c->max_rows, n_threads, err))) goto fail;
  size_t n = (size_t)c->max_rows;
  c->token = malloc(n * sizeof *c->token);
  c->pos = malloc(n * sizeof *c->pos);
  c->row_seq = malloc(n * sizeof *c->row_seq);
  c->out_row = malloc(n * sizeof *c->out_row);
  c->seq = malloc((size_t)c->max_seqs * sizeof *c->seq);
  if (!c->token || !c->pos || !c->row_seq || !c->out_row || !c->seq) {
    code = mtx_fail(err, MTX_ENOMEM, "not enough memory for %d rows per step", c->max_rows);
    goto fail;
  }
  *out = c;
  return MTX_OK;
fail:
  mtx_context_close(c);
  return code;
}

void mtx_context_close(mtx_context *c) {
  if (!c) return;
  if (c->backend) c->backend->close(c->backend);
  if (c->kv) mtx_kv_close(c->kv);
  free(c->token);
  free(c->pos);
  free(c->row_seq);
  free(c->out_row);
  free(c->seq);
  free(c->outputs);
  free(c->hidden);
  free(c);
}

mtx_kv *mtx_context_kv(mtx_context *c) { return c->kv; }
int64_t mtx_context_n_ctx(const mtx_context *c) { return c->n_ctx; }
int mtx_context_max_rows(const mtx_context *c) { return c->max_rows; }

void mtx_context_set_threads(mtx_context *c, int n) {
  c->backend->set_threads(c->backend, mtx_threads_for(n));
}

typedef struct { int n_seqs, n_outs, n_hidden; int64_t lora_floats; } row_counts;  // n_outs: of all wanted rows, n_hidden: of those for their hidden state; lora_floats: of the largest set of adapters

// Cuts the rows into sequences; fills c->seq (index in kv kept in ids) and the row arrays.
static mtx_code take_rows(mtx_context *c, const mtx_row *rows, int n_rows, int *ids, row_counts *n, mtx_err *err) {
  const mtx_model_info *info = mtx_model_get_info(c->model);
  *n = (row_counts){0};
  for (int i = 0; i < n_rows; i++) {
    const mtx_row *r = &rows[i];
    if (r->token < 0 || r->token >= info->n_vocab)
      return mtx_fail(err, MTX_EINVAL, "token %d is outside the vocabulary of %d", r->token, info->n_vocab);
    if (i == 0 || r->seq != rows[i - 1].seq) {
      if (!mtx_kv_seq_valid(c->kv, r->seq)) return mtx_fail(err, MTX_EINVAL, "sequence %d does not exist", r->seq);
      for (int k = 0; k < n->n_seqs; k++)
        if (ids[k] == r->seq) return mtx_fail(err, MTX_EINVAL, "rows of sequence %d do not stand together", r->seq);
      ids[n->n_seqs] = r->seq;
      c->seq[n->n_seqs++] = (mtx_exec_seq){.row0 = i, .pos0 = mtx_kv_seq_len(c->kv, r->seq), .lora = r->lora};
      if (r->lora && r->lora->row_floats > n->lora_floats) n->lora_floats = r->lora->row_floats;
      if (r->lora && r->lora->model_id != mtx_model_id(c->model)) return mtx_fail(err, MTX_EINVAL, "the adapters are of another model");
    } else if (r->lora != rows[i - 1].lora) {
      return mtx_fail(err, MTX_EINVAL, "rows of sequence %d differ in their adapters", r->seq);
    }
    mtx_exec_seq *s = &c->seq[n->n_seqs - 1];
    c->token[i] = r->token;
    c->pos[i] = (int32_t)(s->pos0 + s->n_rows++);
    c->row_seq[i] = n->n_seqs - 1;
    if (r->want == MTX_WANT_OUTPUT) c->out_row[n->n_outs++] = i;
    if (r->want == MTX_WANT_HIDDEN && !c->plan.hidden)
      return mtx_fail(err, MTX_EUNSUPPORTED, "this architecture gives no hidden state beside its output");
    if (c->pos[i] >= c->n_ctx)
      return mtx_fail(err, MTX_ELIMIT, "the context holds %lld tokens; sequence %d is full", (long long)c->n_ctx, r->seq);
    if (!info->causal && s->pos0 > 0)
      return mtx_fail(err, MTX_EINVAL, "this model reads a sequence at once; sequence %d already has %lld tokens", r->seq, (long long)s->pos0);
  }
  for (int i = 0; i < n_rows; i++)
    if (rows[i].want == MTX_WANT_HIDDEN) c->out_row[n->n_outs++] = i, n->n_hidden++;
  return MTX_OK;
}

static mtx_code need_floats(float **at, size_t *cap, int n_rows, int64_t width, mtx_err *err) {
  size_t n = (size_t)n_rows * (size_t)width;
  if (n <= *cap) return MTX_OK;
  float *p = aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64);
  if (!p) return mtx_fail(err, MTX_ENOMEM, "not enough memory for %d output rows (%zu bytes)", n_rows, n * sizeof(float));
  free(*at);
  *at = p;
  *cap = n;
  return MTX_OK;
}

// One pass over rows that end no recurrent sequence beyond a snapshot border.
static mtx_code run_rows(mtx_context *c, const mtx_row *rows, int n_rows, float *outputs, float *hidden, row_counts *n, mtx_err *err) {
  int ids[c->max_seqs];
  mtx_code code = take_rows(c, rows, n_rows, ids, n, err);
  if (code) return code;
  for (int i = 0; i < n->n_seqs; i++) {
    if ((code = mtx_kv_seq_reserve(c->kv, ids[i], c->seq[i].n_rows, err))) return code;
  }
  for (int i = 0; i < n->n_seqs; i++) {
    for (int g = 0; g < c->plan.kv.n_groups; g++) c->seq[i].pages[g] = mtx_kv_seq_pages(c->kv, ids[i], g);
    c->seq[i].state = mtx_kv_seq_state(c->kv, ids[i]);
  }
  int n_head = n->n_outs - n->n_hidden;
  mtx_exec x = {.n_rows = n_rows, .n_outs = n->n_outs, .n_head = n_head, .n_seqs = n->n_seqs, .token = c->token, .pos = c->pos,
                .row_seq = c->row_seq, .seq = c->seq, .lora = n->lora_floats > 0, .out_row = c->out_row, .outputs = outputs, .hidden = hidden};
  c->backend->run(c->backend, &x);
  if (n->n_hidden) {  // the rows asked for, without those that only went on to the head
    size_t width = (size_t)mtx_model_get_info(c->model)->n_embed;
    memmove(hidden, hidden + (size_t)n_head * width, (size_t)n->n_hidden * width * sizeof *hidden);
  }
  for (int i = 0; i < n->n_seqs; i++) mtx_kv_seq_advance(c->kv, ids[i], c->seq[i].n_rows);
  return MTX_OK;
}

// Rows up to which every sequence of a recurrent model stays within its current
// snapshot interval; n_rows when nothing must be cut.
static int cut_at_snapshot(const mtx_context *c, const mtx_row *rows, int n_rows) {
  if (!c->plan.recurrent) return n_rows;
  for (int i = 0, first = 0; i < n_rows; i++) {
    if (i > 0 && rows[i].seq != rows[i - 1].seq) first = i;
    int64_t pos = mtx_kv_seq_len(c->kv, rows[i].seq) + (i - first);
    if (i > first && pos % MTX_SNAPSHOT_TOKENS == 0) return i;
  }
  return n_rows;
}

mtx_code mtx_context_step(mtx_context *c, const mtx_row *rows, int n_rows, const float **outputs, mtx_err *err) {
  if (outputs) *outputs = NULL;
  if (n_rows <= 0) return mtx_fail(err, MTX_EINVAL, "a step needs at least one row");
  if (n_rows > c->max_rows) return mtx_fail(err, MTX_ELIMIT, "%d rows in one step; at most %d fit", n_rows, c->max_rows);
  int ids[c->max_seqs], done_head = 0, done_hidden = 0;
  row_counts all;
  int changes = 0;
  for (int i = 0; i < n_rows; i++) changes += i == 0 || rows[i].seq != rows[i - 1].seq;
  if (changes > c->max_seqs) return mtx_fail(err, MTX_EINVAL, "rows of %d sequences in one step; %d can be alive", changes, c->max_seqs);
  mtx_code code = take_rows(c, rows, n_rows, ids, &all, err);  // everything is checked before anything runs
  if (code) return code;
  for (int i = 0; i < all.n_seqs; i++)
    if ((code = mtx_kv_seq_reserve(c->kv, ids[i], c->seq[i].n_rows, err))) return code;
  if (all.lora_floats && (code = c->backend->use_lora(c->backend, all.lora_floats, err))) return code;
  const mtx_model_info *info = mtx_model_get_info(c->model);
  if ((code = need_floats(&c->outputs, &c->outputs_cap, all.n_outs - all.n_hidden, info->n_out, err))) return code;
  if (c->plan.hidden && (code = need_floats(&c->hidden, &c->hidden_cap, all.n_outs, info->n_embed, err))) return code;
  for (int at = 0; at < n_rows;) {
    int n = cut_at_snapshot(c, rows + at, n_rows - at);
    row_counts part;
    float *out = c->outputs ? c->outputs + (size_t)done_head * (size_t)info->n_out : NULL;  // NULL: no row wants any
    float *hidden = c->hidden ? c->hidden + (size_t)done_hidden * (size_t)info->n_embed : NULL;
    if ((code = run_rows(c, rows + at, n, out, hidden, &part, err))) return code;
    done_head += part.n_outs - part.n_hidden;
    done_hidden += part.n_hidden;
    at += n;
  }
  // Embedding rows come from the mapped file; a file cut short meanwhile reads as zeros.
  if ((code = mtx_gguf_check(mtx_model_gguf(c->model), err))) return code;
  if (outputs) *outputs = c->outputs;
  return MTX_OK;
}

const float *mtx_context_hidden(const mtx_context *c) { return c->hidden; }

void mtx_context_profile(mtx_context *c, bool on) {
  memset(&c->profile, 0, sizeof c->profile);
  c->backend->profile = on ? &c->profile : NULL;
}

int mtx_context_profile_take(mtx_context *c, mtx_profile_row *rows, int cap) {
  int n = 0;
  for (int op = 0; op < MTX_OP_COUNT && n < cap; op++)
    if (c->profile.calls[op]) rows[n++] = (mtx_profile_row){mtx_op_name((mtx_op)op), c->profile.ns[op], c->profile.calls[op], c->profile.bytes[op]};
  memset(&c->profile, 0, sizeof c->profile);
  return n;
}
