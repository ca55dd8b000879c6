// SPDX-License-Identifier: MIT
// seed_oss: Seed-OSS. Qwen 2's shape under other names.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  mtx_layer l = mtx_layer_default(&rope);
  l.ffn_norm = "post_attention_norm";
  return mtx_block_decoder(g, h, mtx_block_embed(g, h, 1.0f), &l);
}

const mtx_arch mtx_arch_seed_oss = {.names = {"seed_oss"}, .build = build};
