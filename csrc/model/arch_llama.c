// SPDX-License-Identifier: MIT
// llama: Llama 1-3, Mistral, Mixtral, SmolLM, TinyLlama and their kin; mistral3: Mistral Small 3.1
// and later, Ministral 3; and families of the same shape: InternLM 2, XVERSE, dense ERNIE 4.5.
//
// Pre-norm decoder, rotary pairs interleaved, gated SiLU or Mixtral's experts.
// Llama-3 scaling comes as the tensor rope_freqs (divisors of the frequencies). GGUF files
// of this architecture have no window; model folders of Mistral 7B v0.1 and Mixtral do.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NORM;
  rope.factors = mtx_g_vector_opt(g, -1, "rope_freqs", rope.n_rot / 2);
  mtx_experts e = {.route = {.gate = MTX_GATE_SOFTMAX, .norm = true, .scale = 1.0f}, .n_ff = h->n_ff[0]};
  mtx_layer l = mtx_layer_default(&rope);
  l.attn.scale = mtx_h_f32(h, "attention.scale", 0.0f);
  l.attn.window = h->window;
  l.temperature = (mtx_temperature){.scale = mtx_h_f32(h, "attention.temperature_scale", 0.0f), .every = (float)rope.n_ctx_orig};
  if (h->n_expert) l.experts = &e;
  for (int il = 0; il < h->n_layer; il++) mtx_g_ignore(g, il, "attn_rot_embd");
  return mtx_block_decoder(g, h, mtx_block_embed(g, h, 1.0f), &l);
}

const mtx_arch mtx_arch_llama = {.names = {"llama", "mistral3", "internlm2", "xverse", "ernie4_5"}, .build = build};
