// SPDX-License-Identifier: MIT
// Decision 6 of the design, as an equality: a thousand random interleavings of
// new, append, fork, rewind and drop, over batch sizes, chunk sizes and thread
// counts, give logits bit-identical to each sequence read whole and alone.
// Models: plain, sliding window, experts, latent attention, recurrent, hybrid, experts with sinks and windows,
// learned positions, ALiBi, short convolutions, Mamba-1 and 2 beside attention, chunks, keys shared by layers, quantised.
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "engine/step.h"
#include "golden_arch.h"
#include "kern/kern.h"

enum { N_CTX = 320, MAX_SEQS = 6, ROUNDS = 170, MAX_CHUNK = 40 };

typedef struct {
  int id;                      // in the cache; -1 = free
  int n;                       // tokens
  int32_t token[N_CTX];
  float *logits;               // [N_CTX, width], filled for every position
} seq;

static uint64_t rng = 0x9E3779B97F4A7C15u;
static int below(int n) {
  rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
  return (int)((rng >> 20) % (uint64_t)n);
}

typedef struct {
  const char *name;
  const mtx_model *m;
  mtx_context *c;
  int width, n_vocab;
  seq s[MAX_SEQS];
} scene;

static mtx_context *context(const mtx_model *m, int max_rows) {
  mtx_context *c;
  mtx_err err = {0};
  mtx_context_opts o = {.n_ctx = N_CTX, .kv_tokens = N_CTX * (MAX_SEQS + 1), .max_seqs = MAX_SEQS + 1, .max_rows = max_rows, .kv_type = MTX_KV_F16, .n_threads = 1};
  if (mtx_context_open(&c, m, &o, &err)) fprintf(stderr, "%s\n", err.msg), exit(2);
  return c;
}

// One step that appends the next tokens of several sequences; keeps their logits.
static void append(scene *x, const int *who, const int *n, int n_who) {
  mtx_row rows[MAX_SEQS * MAX_CHUNK];
  int n_rows = 0;
  for (int i = 0; i < n_who; i++) {
    seq *s = &x->s[who[i]];
    int at = (int)mtx_kv_seq_len(mtx_context_kv(x->c), s->id);
    for (int k = 0; k < n[i]; k++) rows[n_rows++] = (mtx_row){.token = s->token[at + k], .seq = s->id, .want = true};
  }
  int first[MAX_SEQS];
  for (int i = 0; i < n_who; i++) first[i] = (int)mtx_kv_seq_len(mtx_context_kv(x->c), x->s[who[i]].id);
  const float *out;
  mtx_err err = {0};
  mtx_context_set_threads(x->c, 1 + below(2));
  if (mtx_context_step(x->c, rows, n_rows, &out, &err)) {
    CHECK(false, "%s: %s", x->name, err.msg);
    exit(check_report());
  }
  for (int i = 0; i < n_who; i++) {
    memcpy(x->s[who[i]].logits + (size_t)first[i] * (size_t)x->width, out, (size_t)n[i] * (size_t)x->width * sizeof *out);
    out += (size_t)n[i] * (size_t)x->width;
  }
}

// Evaluates again what a fork or rewind could not keep.
static void catch_up(scene *x, int i) {
  seq *s = &x->s[i];
  for (int at; (at = (int)mtx_kv_seq_len(mtx_context_kv(x->c), s->id)) < s->n;) {
    int n = s->n - at < 1 + below(MAX_CHUNK) ? s->n - at : 1 + below(s->n - at < MAX_CHUNK ? s->n - at : MAX_CHUNK);
    append(x, &i, &n, 1);
  }
}

static void verify(scene *x, int i) {
  seq *s = &x->s[i];
  if (s->n == 0) return;
  mtx_context *alone = context(x->m, N_CTX);
  mtx_err err = {0};
  int id;
  mtx_row rows[N_CTX];
  const float *out;
  if (mtx_kv_seq_new(mtx_context_kv(alone), &id, &err)) exit(2);
  for (int k = 0; k < s->n; k++) rows[k] = (mtx_row){.token = s->token[k], .seq = id, .want = true};
  mtx_code code = mtx_context_step(alone, rows, s->n, &out, &err);
  CHECK(code == MTX_OK && memcmp(out, s->logits, (size_t)s->n * (size_t)x->width * sizeof *out) == 0, "%s: a sequence of %d tokens has other bits than alone", x->name, s->n);
  mtx_context_close(alone);
}

static void drop(scene *x, int i) {
  verify(x, i);
  mtx_kv_seq_free(mtx_context_kv(x->c), x->s[i].id);
  x->s[i].id = -1;
}

static int pick(const scene *x, bool alive) {
  int n = 0, found[MAX_SEQS];
  for (int i = 0; i < MAX_SEQS; i++)
    if ((x->s[i].id >= 0) == alive) found[n++] = i;
  return n ? found[below(n)] : -1;
}

static void round_of(scene *x) {
  mtx_kv *kv = mtx_context_kv(x->c);
  mtx_err err = {0};
  int i = pick(x, true), j = pick(x, false), what = below(10);
  if (i < 0 || (what == 0 && j >= 0)) {
    seq *s = &x->s[j];
    s->n = 0;
    if (mtx_kv_seq_new(kv, &s->id, &err)) CHECK(false, "%s", err.msg);
  } else if (what == 1 && j >= 0 && x->s[i].n > 0) {
    seq *a = &x->s[i], *b = &x->s[j];
    int64_t kept;
    int n = 1 + below(a->n);
    if (mtx_kv_seq_fork(kv, a->id, n, &b->id, &kept, &err)) CHECK(false, "%s", err.msg);
    b->n = n;
    memcpy(b->token, a->token, sizeof b->token);
    memcpy(b->logits, a->logits, (size_t)n * (size_t)x->width * sizeof *b->logits);
    catch_up(x, j);
  } else if (what == 2 && x->s[i].n > 1) {
    x->s[i].n = 1 + below(x->s[i].n);
    mtx_kv_seq_truncate(kv, x->s[i].id, x->s[i].n);
    catch_up(x, i);
  } else if (what == 3) {
    drop(x, i);
  } else {
    int who[MAX_SEQS], n[MAX_SEQS], n_who = 0;
    for (int k = 0; k < MAX_SEQS; k++) {
      seq *s = &x->s[k];
      if (s->id < 0 || below(2) || s->n + 1 >= N_CTX) continue;
      int most = N_CTX - 1 - s->n < MAX_CHUNK ? N_CTX - 1 - s->n : MAX_CHUNK;
      who[n_who] = k;
      n[n_who] = below(3) ? 1 + below(most) : 1;
      for (int t = 0; t < n[n_who]; t++) s->token[s->n++] = below(x->n_vocab);
      n_who++;
    }
    if (n_who) append(x, who, n, n_who);
  }
}

static void run_model(const char *name, const char *path) {
  mtx_model *m;
  mtx_err err = {0};
  if (mtx_model_open(&m, path, NULL, &err)) fprintf(stderr, "%s: %s\n", path, err.msg), exit(2);
  scene x = {.name = name, .m = m, .c = context(m, MAX_SEQS * MAX_CHUNK), .width = mtx_model_get_info(m)->n_out, .n_vocab = mtx_model_get_info(m)->n_vocab};
  for (int i = 0; i < MAX_SEQS; i++) {
    x.s[i].id = -1;
    x.s[i].logits = malloc((size_t)N_CTX * (size_t)x.width * sizeof(float));
  }
  for (int r = 0; r < ROUNDS; r++) {
    round_of(&x);
    if (r % 16 == 0) CHECK(mtx_kv_check(mtx_context_kv(x.c)), "%s: page counts are wrong after round %d", name, r);
  }
  for (int i = 0; i < MAX_SEQS; i++)
    if (x.s[i].id >= 0) drop(&x, i);
  mtx_kv_stats st = mtx_kv_get_stats(mtx_context_kv(x.c));
  CHECK(mtx_kv_check(mtx_context_kv(x.c)) && st.n_free == st.n_total, "%s: %lld of %lld pages came back", name, (long long)st.n_free, (long long)st.n_total);
  for (int i = 0; i < MAX_SEQS; i++) free(x.s[i].logits);
  mtx_context_close(x.c);
  mtx_model_close(m);
}

static void run_golden(const golden_model *gm) {
  char path[TEMP_PATH];
  if (!golden_arch_write_one(gm, path)) exit(2);
  run_model(gm->name, path);
  unlink(path);
}

int main(void) {
  static const char *const names[] = {"llama", "gemma3", "qwen3moe", "deepseek2", "mamba2", "qwen35", "gpt-oss", "gpt2", "bloom", "lfm2", "jamba-moe",
                                      "llama4", "falcon-h1", "gemma4"};
  int n;
  golden_model *all = golden_arch_models(&n);
  mtx_kern_init(MTX_TIER_AMX);
  for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
    const golden_model *gm = golden_arch_find(all, n, names[k]);
    CHECK(gm, "%s is missing", names[k]);
    if (gm) run_golden(gm);
  }
  golden_arch_free(all, n);
  // Quantised weights: int8 products, packed and generic ones.
  run_model("q4_k_m", "build/golden/quantised/q256-q4_k_m.gguf");
  run_model("iq2_xxs", "build/golden/quantised/q256-iq2_xxs.gguf");
  return check_report();
}
