// SPDX-License-Identifier: MIT
// qwen2: Qwen 1.5, 2 and 2.5; qwen2vl: the language part of Qwen 2 VL and 2.5 VL. Llama's shape with biases
// on q, k, v and rotary halves (text has one position for all sections of M-RoPE).
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  mtx_layer l = mtx_layer_default(&rope);
  return mtx_block_decoder(g, h, mtx_block_embed(g, h, 1.0f), &l);
}

const mtx_arch mtx_arch_qwen2 = {.names = {"qwen2", "qwen2vl"}, .build = build};
