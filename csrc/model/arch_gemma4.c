// SPDX-License-Identifier: MIT
// gemma4: Gemma 4 (E2B, E4B, 26B-A4B, 31B). Sliding-window and global layers with heads of their own sizes, values normalised
// too; a small embedding per token and layer beside the usual one; the last layers read the keys and values of earlier ones;
// experts beside the dense network, whose router sees the layer before any of its norms.
#include <math.h>

#include "model/arch.h"

enum { GLOBAL, LOCAL };

typedef struct {
  int dk[2];              // floats of a head, by kind of layer
  mtx_rope rope[2];
  int n_own;              // leading layers with keys and values of their own
  int n_side;             // floats per token and layer of the side embedding, 0 = none
  int last_stored[2];     // latest layer of each kind that stored keys and values, -1 = none
} gemma4;

static gemma4 read_settings(mtx_graph *g, mtx_hparams *h) {
  gemma4 m = {.dk = {h->dk, (int)mtx_h_u32(h, "attention.key_length_swa", (uint32_t)h->dk)}, .last_stored = {-1, -1}};
  m.n_side = (int)mtx_h_u32(h, "embedding_length_per_layer_input", 0);
  m.n_own = h->n_layer - (int)mtx_h_u32(h, "attention.shared_kv_layers", 0);
  m.rope[GLOBAL] = h->rope;
  m.rope[GLOBAL].mode = MTX_ROPE_NEOX;
  m.rope[LOCAL] = m.rope[GLOBAL];
  m.rope[LOCAL].n_rot = (int)mtx_h_u32(h, "rope.dimension_count_swa", (uint32_t)m.dk[LOCAL]);
  m.rope[LOCAL].base = mtx_h_f32(h, "rope.freq_base_swa", 10000.0f);
  m.rope[LOCAL].scale = 1.0f;
  m.rope[GLOBAL].factors = mtx_g_vector_opt(g, -1, "rope_freqs", m.rope[GLOBAL].n_rot / 2);
  if (m.dk[LOCAL] < 1 || m.dk[LOCAL] > 8192 || m.n_side < 0 || m.n_side > 65536 || m.n_own < 1)
    mtx_h_fail(h, MTX_EFORMAT, "attention.key_length_swa", "heads of %d, side embeddings of %d floats and %d layers with keys are not possible", m.dk[LOCAL], m.n_side, m.n_own);
  return m;
}

// [n_layer * n_side]: a table's row for the token, and a projection of its embedding.
static mtx_val side_inputs(mtx_graph *g, mtx_hparams *h, mtx_val x, int n) {
  int64_t all = (int64_t)n * h->n_layer;
  mtx_val row = mtx_g_embed(g, mtx_g_table(g, -1, "per_layer_token_embd", h->n_vocab, all), sqrtf((float)n));
  mtx_val made = mtx_g_matmul(g, mtx_g_matrix(g, -1, "per_layer_model_proj", all, h->n_embd), x, 0);
  made = mtx_g_scale(g, made, 1.0f / sqrtf((float)h->n_embd), 0.0f);
  made = mtx_g_rms_norm(g, made, n, mtx_g_vector(g, -1, "per_layer_proj_norm", n), h->rms_eps);
  return mtx_g_scale(g, mtx_g_add(g, made, row), sqrtf(0.5f), 0.0f);
}

static mtx_val heads(mtx_graph *g, mtx_hparams *h, int il, const char *name, const char *norm, int n_head, int dk, mtx_val x) {
  mtx_val y = mtx_g_matmul(g, mtx_g_matrix(g, il, name, (int64_t)n_head * dk, h->n_embd), x, 0);
  return norm ? mtx_g_rms_norm(g, y, dk, mtx_g_vector(g, il, norm, dk), h->rms_eps) : y;
}

static mtx_val attention(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, gemma4 *m, int kind) {
  int n_head = h->n_head[il], n_kv = h->n_head_kv[il], dk = m->dk[kind];
  mtx_attn a = {.n_head = n_head, .n_head_kv = n_kv, .dk = dk, .dv = dk, .scale = 1.0f, .window = kind == LOCAL ? h->window : 0, .causal = true};
  mtx_val q = mtx_g_rope(g, heads(g, h, il, "attn_q", "attn_q_norm", n_head, dk, x), n_head, dk, 0, &m->rope[kind]), y;
  if (il < m->n_own) {
    mtx_val k = heads(g, h, il, "attn_k", NULL, n_kv, dk, x);
    mtx_val v = mtx_g_has(g, il, "attn_v") ? heads(g, h, il, "attn_v", NULL, n_kv, dk, x) : k;  // the 31B model: one projection for both
    k = mtx_g_rms_norm(g, k, dk, mtx_g_vector(g, il, "attn_k_norm", dk), h->rms_eps);
    k = mtx_g_rope(g, k, n_kv, dk, 0, &m->rope[kind]);
    y = mtx_g_attention(g, q, k, mtx_g_rms_norm(g, v, dk, 0, h->rms_eps), &a);
    m->last_stored[kind] = il;
  } else {
    if (m->last_stored[kind] < 0) mtx_h_fail(h, MTX_EFORMAT, "attention.shared_kv_layers", "layer %d has no earlier one of its kind to share with", il);
    static const char *const idle[] = {"attn_k.weight", "attn_v.weight", "attn_k_norm.weight"};  // some files hold them all the same
    for (int i = 0; i < 3; i++) mtx_g_ignore(g, il, idle[i]);
    y = mtx_g_attention_shared(g, q, m->last_stored[kind], &a);
  }
  return mtx_block_attn_out(g, h, il, y);
}

static mtx_val feed_forward(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, const mtx_experts *e) {
  mtx_val dense = mtx_block_ffn(g, h, il, mtx_block_norm(g, h, il, "ffn_norm", x), MTX_FFN_GATED, MTX_UNARY_GELU);
  if (!h->n_expert) return dense;
  mtx_val seen = mtx_g_scale(g, mtx_g_rms_norm(g, x, 0, 0, h->rms_eps), 1.0f / sqrtf((float)h->n_embd), 0.0f);
  seen = mtx_g_mul_vec(g, seen, mtx_g_floats(g, il, "ffn_gate_inp.scale", h->n_embd, true), h->n_embd);
  mtx_val logits = mtx_g_matmul(g, mtx_g_matrix(g, il, "ffn_gate_inp", h->n_expert, h->n_embd), seen, 0);
  mtx_val y = mtx_block_routed(g, h, il, mtx_block_norm(g, h, il, "pre_ffw_norm_2", x), logits, e, MTX_UNARY_GELU);
  return mtx_g_add(g, mtx_block_norm(g, h, il, "post_ffw_norm_1", dense), mtx_block_norm(g, h, il, "post_ffw_norm_2", y));
}

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  gemma4 m = read_settings(g, h);
  mtx_experts e = mtx_experts_read(h, MTX_GATE_SOFTMAX, true);
  float softcap = mtx_h_f32(h, "final_logit_softcapping", 0.0f);
  if (h->err.code) return 0;
  mtx_val x = mtx_block_embed(g, h, sqrtf((float)h->n_embd)), side = m.n_side ? side_inputs(g, h, x, m.n_side) : 0;
  for (int il = 0; il < h->n_layer && !h->err.code; il++) {
    mtx_val y = attention(g, h, il, mtx_block_norm(g, h, il, "attn_norm", x), &m, mtx_h_local(h, il, 6) ? LOCAL : GLOBAL);
    x = mtx_g_add(g, x, mtx_block_norm(g, h, il, "post_attention_norm", y));
    x = mtx_g_add(g, x, mtx_block_norm(g, h, il, "post_ffw_norm", feed_forward(g, h, il, x, &e)));
    if (side) {
      mtx_val gate = mtx_g_matmul(g, mtx_g_matrix(g, il, "inp_gate", m.n_side, h->n_embd), x, 0);
      y = mtx_g_glu(g, MTX_UNARY_GELU, gate, mtx_g_view(g, side, (int64_t)il * m.n_side, m.n_side));
      y = mtx_g_matmul(g, mtx_g_matrix(g, il, "proj", h->n_embd, m.n_side), y, 0);
      x = mtx_g_add(g, x, mtx_block_norm(g, h, il, "post_norm", y));
    }
    float scale = mtx_g_number(g, il, "layer_output_scale.weight", 1.0f);
    if (scale != 1.0f) x = mtx_g_scale(g, x, scale, 0.0f);
  }
  mtx_val logits = mtx_block_head(g, h, x);
  return softcap != 0.0f ? mtx_g_softcap(g, logits, softcap) : logits;
}

const mtx_arch mtx_arch_gemma4 = {.names = {"gemma4"}, .build = build};
