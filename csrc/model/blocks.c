// SPDX-License-Identifier: MIT
// Pieces that most decoder architectures share: see arch.h.
#include <math.h>
#include <stdio.h>

#include "model/arch.h"

mtx_val mtx_block_embed(mtx_graph *g, mtx_hparams *h, float scale) {
  return mtx_g_embed(g, mtx_g_table(g, -1, "token_embd", h->n_vocab, h->n_embd), scale);
}

mtx_val mtx_block_norm(mtx_graph *g, mtx_hparams *h, int il, const char *name, mtx_val x) {
  int64_t n = mtx_g_width(g, x);
  return mtx_g_rms_norm(g, x, 0, mtx_g_vector(g, il, name, n), h->rms_eps);
}

mtx_val mtx_block_logits(mtx_graph *g, mtx_hparams *h, mtx_val x) {
  mtx_wid out = mtx_g_matrix_opt(g, -1, "output", h->n_vocab, h->n_embd);
  if (!out) out = mtx_g_matrix(g, -1, "token_embd", h->n_vocab, h->n_embd);
  return mtx_g_matmul(g, out, x, mtx_g_bias(g, -1, "output", h->n_vocab));
}

mtx_val mtx_block_head(mtx_graph *g, mtx_hparams *h, mtx_val x) {
  mtx_val last = mtx_block_norm(g, h, -1, "output_norm", mtx_g_select(g, x));
  mtx_g_hidden(g, last);
  return mtx_block_logits(g, h, last);
}

mtx_qkv mtx_block_qkv(mtx_graph *g, mtx_hparams *h, int il, mtx_val x) {
  int64_t n = mtx_g_width(g, x), nq = (int64_t)h->n_head[il] * h->dk, nk = (int64_t)h->n_head_kv[il] * h->dk, nv = (int64_t)h->n_head_kv[il] * h->dv;
  mtx_qkv a;
  a.q = mtx_g_matmul(g, mtx_g_matrix(g, il, "attn_q", nq, n), x, mtx_g_bias(g, il, "attn_q", nq));
  a.k = mtx_g_matmul(g, mtx_g_matrix(g, il, "attn_k", nk, n), x, mtx_g_bias(g, il, "attn_k", nk));
  a.v = mtx_g_matmul(g, mtx_g_matrix(g, il, "attn_v", nv, n), x, mtx_g_bias(g, il, "attn_v", nv));
  return a;
}

void mtx_block_rope_qk(mtx_graph *g, mtx_hparams *h, int il, mtx_qkv *a, const mtx_rope *r) {
  a->q = mtx_g_rope(g, a->q, h->n_head[il], h->dk, 0, r);
  a->k = mtx_g_rope(g, a->k, h->n_head_kv[il], h->dk, 0, r);
}

mtx_attn mtx_block_attn_params(const mtx_hparams *h, int il, float scale, int window) {
  return (mtx_attn){.n_head = h->n_head[il], .n_head_kv = h->n_head_kv[il], .dk = h->dk, .dv = h->dv,
                    .scale = scale != 0.0f ? scale : 1.0f / sqrtf((float)h->dk), .window = window, .causal = true};
}

mtx_val mtx_block_attn_out(mtx_graph *g, mtx_hparams *h, int il, mtx_val x) {
  return mtx_g_matmul(g, mtx_g_matrix(g, il, "attn_output", h->n_embd, mtx_g_width(g, x)), x, mtx_g_bias(g, il, "attn_output", h->n_embd));
}

static mtx_val gated_ffn(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, mtx_unary f, const char *suffix, int64_t ff) {
  int64_t n = mtx_g_width(g, x);
  char gate_name[64], up_name[64], down_name[64];
  snprintf(gate_name, sizeof gate_name, "ffn_gate%s", suffix);
  snprintf(up_name, sizeof up_name, "ffn_up%s", suffix);
  snprintf(down_name, sizeof down_name, "ffn_down%s", suffix);
  mtx_val gate = mtx_g_matmul(g, mtx_g_matrix(g, il, gate_name, ff, n), x, mtx_g_bias(g, il, gate_name, ff));
  mtx_val up = mtx_g_matmul(g, mtx_g_matrix(g, il, up_name, ff, n), x, mtx_g_bias(g, il, up_name, ff));
  return mtx_g_matmul(g, mtx_g_matrix(g, il, down_name, h->n_embd, ff), mtx_g_glu(g, f, gate, up), mtx_g_bias(g, il, down_name, h->n_embd));
}

mtx_val mtx_block_ffn(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, mtx_unary f) { return gated_ffn(g, h, il, x, f, "", h->n_ff[il]); }

mtx_val mtx_block_shared_expert(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, int n_ff, mtx_unary f) {
  return gated_ffn(g, h, il, x, f, "_shexp", n_ff);
}

mtx_val mtx_block_moe(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, int n_ff, mtx_unary f, mtx_moe m) {
  int64_t n = mtx_g_width(g, x);
  m.n_expert = h->n_expert;
  m.n_used = h->n_expert_used;
  mtx_val logits = mtx_g_matmul(g, mtx_g_matrix(g, il, "ffn_gate_inp", m.n_expert, n), x, 0);
  bool joined = mtx_g_has(g, il, "ffn_gate_up_exps");
  mtx_wid gate = mtx_g_has(g, il, "ffn_gate_exps") ? mtx_g_matrices(g, il, "ffn_gate_exps", m.n_expert, n_ff, n) : 0;
  mtx_wid up = joined ? mtx_g_matrices(g, il, "ffn_gate_up_exps", m.n_expert, 2 * (int64_t)n_ff, n)
                      : mtx_g_matrices(g, il, "ffn_up_exps", m.n_expert, n_ff, n);
  mtx_wid down = mtx_g_matrices(g, il, "ffn_down_exps", m.n_expert, h->n_embd, n_ff);
  return mtx_g_moe(g, x, logits, &m, f, gate, up, down);
}
