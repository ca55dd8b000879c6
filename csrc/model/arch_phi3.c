// SPDX-License-Identifier: MIT
// phi3 and phimoe: Phi 3, 3.5, 4 and 4-mini; Phi-3.5-MoE.
// 
// Long contexts come as two lists of divisors of the frequencies. Which one holds cannot
// change within a sequence (its keys are rotated already), so a model made for more than
// its original context always takes the long list, as vLLM does; llama.cpp looks at the
// context it was opened with. Phi-3's sliding window is off, as there.
#include <string.h>

#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  bool experts = strcmp(h->arch, "phimoe") == 0, is_long = h->n_ctx_train > h->rope.n_ctx_orig;
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  rope.factors = mtx_g_vector_opt(g, -1, is_long ? "rope_factors_long" : "rope_factors_short", rope.n_rot / 2);
  mtx_g_ignore(g, -1, is_long ? "rope_factors_short.weight" : "rope_factors_long.weight");
  mtx_experts e = mtx_experts_read(h, MTX_GATE_SOFTMAX, true);
  mtx_layer l = mtx_layer_default(&rope);
  l.ffn = MTX_FFN_JOINED;
  if (experts) l.experts = &e;
  return mtx_block_decoder(g, h, mtx_block_embed(g, h, 1.0f), &l);
}

const mtx_arch mtx_arch_phi3 = {.names = {"phi3", "phimoe"}, .build = build};
