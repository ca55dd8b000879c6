// SPDX-License-Identifier: MIT
// Opening a model: see model.h.
#include "model/model.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sysinfo.h"
#include "model/pack.h"
#include "model/registry.h"

struct mtx_model {
  mtx_gguf *file;
  mtx_plan *plan;
  mtx_packed packed;
  mtx_model_info info;
  uint64_t id;
};

typedef struct {
  const mtx_model_opts *opts;
  int n;
  char names[400];
} unused_list;

static void note_unused(void *user, mtx_str name) {
  unused_list *u = user;
  if (u->n++ < 8) {
    size_t len = strlen(u->names);
    snprintf(u->names + len, sizeof u->names - len, "%s%.*s", len ? ", " : "", (int)(name.len < 64 ? name.len : 64), name.ptr);
  }
}

static void warn_unused(const unused_list *u) {
  if (!u->n || !u->opts || !u->opts->warn) return;
  char line[512];
  snprintf(line, sizeof line, "%d tensor%s of the file not used: %s%s", u->n, u->n == 1 ? "" : "s", u->names, u->n > 8 ? ", ..." : "");
  u->opts->warn(u->opts->user, line);
}

// The architecture is looked up before anything else is read: the keys of an
// unknown one would only give misleading errors.
static mtx_code find_arch(const mtx_gguf *f, const mtx_arch **out, mtx_err *err) {
  mtx_str name;
  char text[64];
  int n_known = 0;
  if (mtx_gguf_get_str(f, "general.type", false, &name, NULL) == MTX_OK && name.len == 7 && !memcmp(name.ptr, "adapter", 7))
    return mtx_fail_at(err, MTX_EUNSUPPORTED, mtx_gguf_path(f), "general.type", 0, "this file is an adapter; load its base model and name it there");
  mtx_code code = mtx_gguf_get_str(f, "general.architecture", true, &name, err);
  if (code) return code;
  snprintf(text, sizeof text, "%.*s", (int)(name.len < 63 ? name.len : 63), name.ptr);
  if ((*out = mtx_arch_find(text))) return MTX_OK;
  for (const char *const *n = mtx_model_architectures(); *n; n++) n_known++;
  return mtx_fail_at(err, MTX_EUNSUPPORTED, mtx_gguf_path(f), "general.architecture", 0, "mtx does not know the architecture '%s' (it knows %d; README, \"What works\", lists them)", text, n_known);
}

int64_t mtx_model_context(int32_t n_ctx_train) { return n_ctx_train > 0 && n_ctx_train < 4096 ? n_ctx_train : 4096; }

// Weights and the context of one sequence; further sequences take pages only while they run.
static mtx_code check_memory(const mtx_model *m, uint64_t weights, int32_t n_ctx_train, const mtx_model_opts *opts, mtx_err *err) {
  mtx_kv_layout layout = m->plan->kv;
  layout.type = opts ? opts->kv_type : MTX_KV_F16;
  mtx_code code = mtx_kv_layout_fill(&layout, err);
  if (code) return code;
  int64_t n_ctx = opts && opts->n_ctx > 0 ? opts->n_ctx : mtx_model_context(n_ctx_train);
  uint64_t free_bytes = mtx_free_memory(), kv = mtx_kv_seq_bytes(&layout, n_ctx), need, want;
  if (__builtin_add_overflow(weights, kv, &need) || __builtin_add_overflow(need, need / 5, &want)) want = UINT64_MAX;
  if (free_bytes == 0 || want <= free_bytes) return MTX_OK;
  return mtx_fail_at(err, MTX_ENOMEM, mtx_gguf_path(m->file), NULL, 0,
                     "the weights need %llu bytes and %lld tokens of context %llu (together %llu with a margin of 1.2), %llu are free; close other "
                     "programs or use a smaller %s", (unsigned long long)weights, (long long)n_ctx, (unsigned long long)kv, (unsigned long long)want,
                     (unsigned long long)free_bytes, weights + weights / 5 > free_bytes ? "quantisation" : "context or KV type");
}

static void fill_info(mtx_model *m, const mtx_hparams *h) {
  mtx_model_info *i = &m->info;
  memcpy(i->arch, h->arch, sizeof i->arch);
  for (uint64_t t = 0; t < mtx_gguf_n_tensors(m->file); t++) {
    const mtx_gguf_tensor *x = mtx_gguf_tensor_at(m->file, t);
    i->n_params += x->ne[0] * x->ne[1] * x->ne[2] * x->ne[3];
  }
  i->file_bytes = mtx_gguf_file_bytes(m->file);
  i->weight_bytes = m->packed.bytes;
  i->n_vocab = h->n_vocab;
  i->n_layer = h->n_layer;
  i->n_embd = h->n_embd;
  i->n_ctx_train = h->n_ctx_train;
  i->has_logits = h->has_logits;
  i->causal = m->plan->causal;
  i->recurrent = m->plan->recurrent;
  i->n_out = m->plan->val[m->plan->output].n;
  i->n_embed = m->plan->hidden ? m->plan->val[m->plan->hidden].n : h->has_logits ? 0 : i->n_out;
  uint32_t pooling;
  char key[128];
  snprintf(key, sizeof key, "%s.pooling_type", h->arch);
  i->pooling = mtx_gguf_get_u32(m->file, key, false, &pooling, NULL) == MTX_OK ? (int32_t)pooling : -1;
}

mtx_code mtx_model_open(mtx_model **out, const char *path, const mtx_model_opts *opts, mtx_err *err) {
  *out = NULL;
  mtx_gguf *file;
  mtx_code code = mtx_gguf_open(&file, path, 0, err);
  return code ? code : mtx_model_open_file(out, file, opts, err);
}

mtx_code mtx_model_open_file(mtx_model **out, mtx_gguf *file, const mtx_model_opts *opts, mtx_err *err) {
  *out = NULL;
  mtx_err spare;
  if (!err) err = &spare;
  uint64_t bytes;
  unused_list unused = {.opts = opts};
  mtx_hparams *h = malloc(sizeof *h);
  mtx_model *m = calloc(1, sizeof *m);
  mtx_code code = MTX_ENOMEM;
  if (!m || !h) {
    mtx_fail(err, code, "not enough memory");
    if (!m) mtx_gguf_close(file);
    else m->file = file;
    goto fail;
  }
  m->file = file;
  const mtx_arch *arch;
  if ((code = find_arch(m->file, &arch, err))) goto fail;
  if ((code = mtx_hparams_read(h, m->file, err))) goto fail;
  mtx_graph *g = mtx_graph_new(m->file);
  if (!g) {
    code = mtx_fail(err, MTX_ENOMEM, "not enough memory");
    goto fail;
  }
  mtx_val result = arch->build(g, h);
  if (h->err.code) mtx_g_fail(g, h->err.code, NULL, "%s", h->err.msg);
  code = mtx_graph_finish(g, result, h->causal, note_unused, &unused, &m->plan, err);
  if (h->err.code) *err = h->err;
  if (code) goto fail;
  warn_unused(&unused);
  if ((code = mtx_pack_size(m->plan, &bytes, err))) goto fail;
  if (!(opts && opts->no_memory_check) && (code = check_memory(m, bytes, h->n_ctx_train, opts, err))) goto fail;
  int n_threads = mtx_threads_for(opts ? opts->n_threads : 0);
  if ((code = mtx_pack_weights(m->plan, m->file, opts, n_threads, &m->packed, err))) goto fail;
  if ((code = mtx_gguf_check(m->file, err))) goto fail;
  fill_info(m, h);
  static atomic_uint_fast64_t n_opened;
  m->id = atomic_fetch_add(&n_opened, 1) + 1;
  free(h);
  *out = m;
  return MTX_OK;
fail:
  free(h);
  mtx_model_close(m);
  return code;
}

void mtx_model_close(mtx_model *m) {
  if (!m) return;
  mtx_plan_free(m->plan);
  mtx_packed_free(&m->packed);
  mtx_gguf_close(m->file);
  free(m);
}

const mtx_model_info *mtx_model_get_info(const mtx_model *m) { return &m->info; }
uint64_t mtx_model_id(const mtx_model *m) { return m->id; }
const mtx_gguf *mtx_model_gguf(const mtx_model *m) { return m->file; }
const mtx_plan *mtx_model_plan(const mtx_model *m) { return m->plan; }
const mtx_kv_layout *mtx_model_kv_layout(const mtx_model *m) { return &m->plan->kv; }
