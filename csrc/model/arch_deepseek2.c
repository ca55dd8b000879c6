// SPDX-License-Identifier: MIT
// deepseek2: DeepSeek V2, V3, R1 and their kin (Kimi K2, Mistral Large 3): latent attention (MLA), shared
// and routed experts, group-limited choice; mistral4: Mistral Small 4, the same with softmax gates; minicpm3: MiniCPM 3,
// dense, with that family's scales and two lists of rotary divisors (see phi3).
//
// Keys and values of all heads come from one latent vector. It is what the cache
// holds: queries are mapped into the latent space (attn_k_b) and results back out
// of it (attn_v_b), so attention has one key head of kv_lora_rank + rotary floats.
#include <math.h>
#include <string.h>

#include "model/arch.h"

typedef struct {
  int rank, n_rot, n_nope, n_v;  // latent floats; rotary, plain and value floats of a head
  float scale;
  mtx_rope rope;
  mtx_temperature temperature;
} mla;

static bool is_minicpm3(const mtx_hparams *h) { return strcmp(h->arch, "minicpm3") == 0; }

static mla read_mla(mtx_graph *g, mtx_hparams *h) {
  mla m = {.rank = (int)mtx_h_need(h, "attention.kv_lora_rank", 1, 1 << 16), .n_rot = h->rope.n_rot};
  int head = (int)mtx_h_u32(h, "attention.key_length_mla", (uint32_t)h->dk);
  m.n_v = (int)mtx_h_u32(h, "attention.value_length_mla", (uint32_t)h->dv);
  m.n_nope = head - m.n_rot;
  if (m.n_nope <= 0 || m.n_v <= 0) mtx_h_fail(h, MTX_EFORMAT, "attention.key_length_mla", "heads of %d floats leave nothing beside %d rotary ones", head, m.n_rot);
  m.rope = h->rope;
  m.rope.mode = MTX_ROPE_NORM;
  m.temperature = (mtx_temperature){.scale = mtx_h_f32(h, "attention.temperature_scale", 0.0f), .every = (float)h->rope.n_ctx_orig};
  if (is_minicpm3(h)) {
    bool is_long = h->n_ctx_train > h->rope.n_ctx_orig;
    m.rope.mode = MTX_ROPE_NEOX;
    m.rope.factors = mtx_g_vector_opt(g, -1, is_long ? "rope_factors_long" : "rope_factors_short", m.n_rot / 2);
    mtx_g_ignore(g, -1, is_long ? "rope_factors_short.weight" : "rope_factors_long.weight");
    m.scale = 1.0f / sqrtf((float)head);
    return m;
  }
  float mscale = mtx_h_f32(h, "rope.scaling.attn_factor", 1.0f);
  if (m.rope.ext != 0.0f) {
    // YaRN's magnitude is not put into the rotation but, squared, into the scores.
    float ln = logf(1.0f / m.rope.scale);
    m.rope.attn = mscale / (1.0f + 0.1f * ln);
    mscale *= 1.0f + mtx_h_f32(h, "rope.scaling.yarn_log_multiplier", 0.0f) * ln;  // the file holds 0.1 * mscale_all_dim
  }
  m.scale = mscale * mscale / sqrtf((float)head);
  return m;
}

static mtx_val queries(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, const mla *m) {
  int64_t n_q = (int64_t)h->n_head[il] * (m->n_nope + m->n_rot);
  int rank = (int)mtx_h_u32(h, "attention.q_lora_rank", 0);
  if (!rank || !mtx_g_has(g, il, "attn_q_a")) return mtx_g_matmul(g, mtx_g_matrix(g, il, "attn_q", n_q, h->n_embd), x, 0);
  mtx_val a = mtx_block_norm(g, h, il, "attn_q_a_norm", mtx_g_matmul(g, mtx_g_matrix(g, il, "attn_q_a", rank, h->n_embd), x, 0));
  return mtx_g_matmul(g, mtx_g_matrix(g, il, "attn_q_b", n_q, rank), a, 0);
}

// Old files hold attn_kv_b instead of attn_k_b and attn_v_b: keys and values are
// then expanded per head and cached in full.
static mtx_val expanded(mtx_graph *g, mtx_hparams *h, int il, mtx_val q, mtx_val latent, mtx_val k_rot, const mla *m) {
  int n_head = h->n_head[il], head = m->n_nope + m->n_rot, both = m->n_nope + m->n_v;
  mtx_val kv = mtx_g_matmul(g, mtx_g_matrix(g, il, "attn_kv_b", (int64_t)n_head * both, m->rank), latent, 0);
  mtx_val k = mtx_g_alloc(g, (int64_t)n_head * head), v = mtx_g_alloc(g, (int64_t)n_head * m->n_v);
  mtx_g_copy_into(g, k, head, 0, kv, both, m->n_nope, n_head);
  mtx_g_copy_into(g, k, head, m->n_nope, k_rot, 0, m->n_rot, n_head);
  mtx_g_copy_into(g, v, m->n_v, 0, mtx_g_view(g, kv, m->n_nope, (int64_t)n_head * both - m->n_nope), both, m->n_v, n_head);
  mtx_attn a = {.n_head = n_head, .n_head_kv = n_head, .dk = head, .dv = m->n_v, .scale = m->scale, .causal = true};
  return mtx_g_attention(g, q, k, v, &a);
}

static mtx_val absorbed(mtx_graph *g, mtx_hparams *h, int il, mtx_val q, mtx_val latent, mtx_val k_rot, const mla *m) {
  int n_head = h->n_head[il], head = m->n_nope + m->n_rot, dk = m->rank + m->n_rot;
  mtx_val q_latent = mtx_g_matmul_heads(g, mtx_g_matrices(g, il, "attn_k_b", n_head, m->rank, m->n_nope), q, head, 0);
  mtx_val qa = mtx_g_alloc(g, (int64_t)n_head * dk), k = mtx_g_alloc(g, dk);
  mtx_g_copy_into(g, qa, dk, 0, q_latent, m->rank, m->rank, n_head);
  mtx_g_copy_into(g, qa, dk, m->rank, mtx_g_view(g, q, m->n_nope, (int64_t)n_head * head - m->n_nope), head, m->n_rot, n_head);
  mtx_g_copy_into(g, k, dk, 0, latent, 0, m->rank, 1);
  mtx_g_copy_into(g, k, dk, m->rank, k_rot, 0, m->n_rot, 1);
  mtx_attn a = {.n_head = n_head, .n_head_kv = 1, .dk = dk, .dv = m->rank, .scale = m->scale, .causal = true};
  mtx_val y = mtx_g_attention(g, qa, k, latent, &a);
  return mtx_g_matmul_heads(g, mtx_g_matrices(g, il, "attn_v_b", n_head, m->n_v, m->rank), y, m->rank, 0);
}

static mtx_val attention(mtx_graph *g, mtx_hparams *h, int il, mtx_val x) {
  mla settings = read_mla(g, h), *m = &settings;
  if (h->err.code) return 0;
  int n_head = h->n_head[il], head = m->n_nope + m->n_rot;
  mtx_val q = mtx_g_rope(g, queries(g, h, il, x, m), n_head, head, m->n_nope, &m->rope);
  if (m->temperature.scale != 0.0f) q = mtx_g_temperature(g, q, &m->temperature);
  mtx_val kv = mtx_g_matmul(g, mtx_g_matrix(g, il, "attn_kv_a_mqa", m->rank + m->n_rot, h->n_embd), x, 0);
  mtx_val latent = mtx_block_norm(g, h, il, "attn_kv_a_norm", mtx_g_view(g, kv, 0, m->rank));
  mtx_val k_rot = mtx_g_rope(g, mtx_g_view(g, kv, m->rank, m->n_rot), 1, m->n_rot, 0, &m->rope);
  mtx_val y = mtx_g_has(g, il, "attn_k_b") ? absorbed(g, h, il, q, latent, k_rot, m) : expanded(g, h, il, q, latent, k_rot, m);
  return mtx_block_attn_out(g, h, il, y);
}

// The scales of its configuration; the vocabulary's matrix reads the state times 256 / n_embd.
static mtx_val minicpm3(mtx_graph *g, mtx_hparams *h, mtx_layer *l) {
  l->residual_scale = 1.4f / sqrtf((float)h->n_layer);
  mtx_val x = mtx_block_embed(g, h, 12.0f);
  for (int il = 0; il < h->n_layer && !h->err.code; il++) x = mtx_block_layer(g, h, il, x, l);
  mtx_val last = mtx_g_scale(g, mtx_block_norm(g, h, -1, "output_norm", mtx_g_select(g, x)), 256.0f / (float)h->n_embd, 0.0f);
  mtx_g_hidden(g, last);
  return mtx_block_logits(g, h, last);
}

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_layer l = mtx_layer_default(NULL);
  l.mixer = attention;
  mtx_experts e = {0};
  if (h->n_expert) {
    e = mtx_experts_read(h, MTX_GATE_SOFTMAX, false);
    l.experts = &e;
  }
  return is_minicpm3(h) ? minicpm3(g, h, &l) : mtx_block_decoder(g, h, mtx_block_embed(g, h, 1.0f), &l);
}

const mtx_arch mtx_arch_deepseek2 = {.names = {"deepseek2", "mistral4", "minicpm3"}, .build = build};
