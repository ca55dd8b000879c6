// SPDX-License-Identifier: MIT
// bailingmoe and bailingmoe2: Ling and Ring 1 and 2. Shared and routed experts; the second
// generation chooses by sigmoid within groups and normalises q and k per head.
#include <string.h>

#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  bool second = strcmp(h->arch, "bailingmoe2") == 0;
  mtx_rope rope = h->rope;
  rope.mode = second ? MTX_ROPE_NEOX : MTX_ROPE_NORM;
  mtx_h_drop_nextn(h);
  mtx_experts e = mtx_experts_read(h, second ? MTX_GATE_SIGMOID : MTX_GATE_SOFTMAX, false);
  mtx_layer l = mtx_layer_default(&rope);
  l.experts = &e;
  if (second) l.qk_norm = MTX_QK_NORM_ROPE;
  return mtx_block_decoder(g, h, mtx_block_embed(g, h, 1.0f), &l);
}

const mtx_arch mtx_arch_bailingmoe = {.names = {"bailingmoe", "bailingmoe2"}, .build = build};
