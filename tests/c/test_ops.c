// SPDX-License-Identifier: MIT
// Ops of the plan whose settings no golden model reaches: clamps and limits, positions far into a context, windows
// that stand side by side, keys that an earlier attention stored. Against the formula in double precision, whole
// and cut, with one thread and two.
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "backend/exec.h"
#include "check.h"
#include "golden_arch.h"
#include "graph/graph.h"
#include "kern/kern.h"
#include "kv/kv.h"

enum { N = 40, EMBD = 64, HEAD = 16, WINDOW = 16 };

static const mtx_gguf *file;
static int32_t token[N], pos[N], row_seq[N], out_row[N];
static double embd[N][EMBD];  // of each row

// The embedding of each row, times 100 so that limits are met.
static mtx_val rows_of(mtx_graph *g) { return mtx_g_embed(g, mtx_g_table(g, -1, "token_embd", 128, EMBD), 100.0f); }

// Runs what g makes of the rows, in steps of `chunk`; returns [N, width].
static float *run(mtx_graph *g, mtx_val y, int chunk, int n_threads) {
  mtx_plan *p;
  mtx_err err = {0};
  mtx_kv *kv = NULL;
  mtx_backend *b = NULL;
  int seq = 0;
  int64_t width = mtx_g_width(g, y);
  float *all = malloc(N * (size_t)width * sizeof *all);
  mtx_code code = mtx_graph_finish(g, mtx_g_select(g, y), true, NULL, NULL, &p, &err);
  bool stores = !code && p->kv.n_layers > 0;
  if (!code && stores) {
    mtx_kv_layout layout = p->kv;
    layout.type = MTX_KV_F32;
    code = mtx_kv_open(&kv, &layout, 256, 1, &err);
    if (!code) p->kv = *mtx_kv_get_layout(kv), code = mtx_kv_seq_new(kv, &seq, &err);
  }
  if (!code) code = mtx_backend_open_cpu(&b, p, N, n_threads, &err);
  for (int at = 0; !code && at < N; at += chunk) {
    int n = N - at < chunk ? N - at : chunk;
    mtx_exec_seq s = {.row0 = 0, .n_rows = n, .pos0 = pos[at]};
    if (stores && (code = mtx_kv_seq_reserve(kv, seq, n, &err))) break;
    for (int i = 0; stores && i < p->kv.n_groups; i++) s.pages[i] = mtx_kv_seq_pages(kv, seq, i);
    mtx_exec x = {.n_rows = n, .n_outs = n, .n_head = n, .n_seqs = 1, .token = token + at, .pos = pos + at, .row_seq = row_seq,
                  .seq = &s, .out_row = out_row, .outputs = all + at * width};
    b->run(b, &x);
    if (stores) mtx_kv_seq_advance(kv, seq, n);
  }
  CHECK(code == MTX_OK, "%s %s", err.key, err.msg);
  if (code) exit(check_report());
  b->close(b);
  mtx_kv_close(kv);
  mtx_plan_free(p);
  return all;
}

typedef mtx_val (*builder)(mtx_graph *g);
typedef double (*formula)(int row, int i);

static void check_op(const char *name, builder build, formula f, double tolerance) {
  static const int cuts[] = {N, 7, 1};
  float *whole = NULL;
  for (int c = 0; c < 3; c++)
    for (int threads = 1; threads <= 2; threads++) {
      mtx_graph *g = mtx_graph_new(file);
      mtx_val y = build(g);
      int64_t width = mtx_g_width(g, y);
      float *x = run(g, y, cuts[c], threads);
      for (int r = 0; r < N && !whole; r++)
        for (int i = 0; i < width; i++) {
          double want = f(r, i), got = x[r * width + i];
          CHECK(fabs(got - want) <= tolerance * (1 + fabs(want)), "%s: row %d, %d: %.9g, expected %.9g", name, r, i, got, want);
        }
      if (!whole) {
        whole = x;
        continue;
      }
      CHECK(memcmp(x, whole, N * (size_t)width * sizeof *x) == 0, "%s: other bits in steps of %d with %d threads", name, cuts[c], threads);
      free(x);
    }
  free(whole);
}

static double limited(double x, double lo, double hi) { return x < lo ? lo : x > hi ? hi : x; }

static mtx_val clamp(mtx_graph *g) { return mtx_g_clamp(g, rows_of(g), -20.0f, 30.0f); }
static double clamp_f(int r, int i) { return limited(embd[r][i], -20, 30); }

static mtx_val clamped_glu(mtx_graph *g) {
  mtx_val x = rows_of(g);
  return mtx_g_glu_clamped(g, MTX_UNARY_GELU_QUICK, mtx_g_view(g, x, 0, 32), mtx_g_view(g, x, 32, 32), 7.0f);
}
static double clamped_glu_f(int r, int i) {
  double gate = fmin(embd[r][i], 7), up = limited(embd[r][32 + i], -7, 7);
  return gate / (1 + exp(-1.702 * gate)) * (up + 1);
}

static mtx_val temperature(mtx_graph *g) { return mtx_g_temperature(g, rows_of(g), &(mtx_temperature){.scale = 0.1f, .every = 8.0f, .offset = 1.0f}); }
static double temperature_f(int r, int i) { return embd[r][i] * (1 + 0.1 * log(1 + floor((r + 1) / 8.0))); }

static mtx_val xielu(mtx_graph *g) { return mtx_g_xielu(g, mtx_g_scale(g, rows_of(g), 0.05f, 0.0f), &(mtx_xielu){0.7f, 1.3f, 0.5f, -1e-6f}); }
static double xielu_f(int r, int i) {
  double x = 0.05f * embd[r][i];
  return x > 0 ? 0.7 * x * x + 0.5 * x : 1.3 * (expm1(fmin(x, -1e-6)) - x) + 0.5 * x;
}

// Query, key and value are the row's first three slices.
static mtx_attn params(bool chunked) {
  return (mtx_attn){.n_head = 1, .n_head_kv = 1, .dk = HEAD, .dv = HEAD, .scale = 0.001f, .window = WINDOW, .chunked = chunked, .causal = true};
}
static double attention_f(int q0, int r, int i, bool chunked) {
  int first = chunked ? r - r % WINDOW : r + 1 > WINDOW ? r + 1 - WINDOW : 0;
  double sum = 0, y = 0;
  for (int t = first; t <= r; t++) {
    double s = 0;
    for (int d = 0; d < HEAD; d++) s += embd[r][q0 + d] * embd[t][HEAD + d];
    sum += exp(0.001 * s);
    y += exp(0.001 * s) * embd[t][2 * HEAD + i];
  }
  return y / sum;
}
static mtx_val attend(mtx_graph *g, bool chunked) {
  mtx_val x = rows_of(g);
  mtx_attn a = params(chunked);
  return mtx_g_attention(g, mtx_g_view(g, x, 0, HEAD), mtx_g_view(g, x, HEAD, HEAD), mtx_g_view(g, x, 2 * HEAD, HEAD), &a);
}
static mtx_val chunks(mtx_graph *g) { return attend(g, true); }
static double chunks_f(int r, int i) { return attention_f(0, r, i, true); }

// A second attention reads the first one's keys and values with another query.
static mtx_val shared(mtx_graph *g) {
  mtx_val x = rows_of(g), first = attend(g, false);
  mtx_attn a = params(false);
  return mtx_g_add(g, first, mtx_g_attention_shared(g, mtx_g_view(g, x, 3 * HEAD, HEAD), 0, &a));
}
static double shared_f(int r, int i) { return attention_f(0, r, i, false) + attention_f(3 * HEAD, r, i, false); }

static void refuses_strangers(void) {
  mtx_err err = {0};
  mtx_plan *p;
  mtx_graph *g = mtx_graph_new(file);
  mtx_attn a = params(false);
  a.dk = 8;
  attend(g, false);
  mtx_val y = mtx_g_attention_shared(g, mtx_g_view(g, rows_of(g), 0, 8), 0, &a);
  CHECK(mtx_graph_finish(g, y, true, NULL, NULL, &p, &err) == MTX_EFORMAT && !p, "keys of another size were taken: %s", err.msg);
}

int main(void) {
  int n;
  char path[TEMP_PATH];
  mtx_err err = {0};
  mtx_gguf *gguf;
  mtx_kern_init(MTX_TIER_AMX);
  golden_model *models = golden_arch_models(&n);
  bool opened = golden_arch_write(models, n, "llama", path) && !mtx_gguf_open(&gguf, path, 0, &err);
  CHECK(opened, "%s", err.msg);
  if (!opened) return check_report();
  file = gguf;
  const float *table = mtx_gguf_tensor_find(file, "token_embd.weight")->data;
  for (int r = 0; r < N; r++) {
    token[r] = (r * 37 + 5) % 128;
    pos[r] = out_row[r] = r;
    for (int i = 0; i < EMBD; i++) embd[r][i] = 100.0 * table[token[r] * EMBD + i];
  }
  check_op("clamp", clamp, clamp_f, 1e-6);
  check_op("glu_clamped", clamped_glu, clamped_glu_f, 1e-5);
  check_op("temperature", temperature, temperature_f, 1e-5);
  check_op("xielu", xielu, xielu_f, 1e-6);
  check_op("chunked attention", chunks, chunks_f, 1e-4);
  check_op("shared attention", shared, shared_f, 1e-4);
  refuses_strangers();
  mtx_gguf_close(gguf);
  unlink(path);
  golden_arch_free(models, n);
  return check_report();
}
