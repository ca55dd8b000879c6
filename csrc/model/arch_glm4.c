// SPDX-License-Identifier: MIT
// glm4: GLM-4-0414 and GLM-Z1; chatglm: ChatGLM 3 and GLM-4-9B. Gate and up in one matrix, half of
// each head rotated; GLM-4-0414 has norms behind each sub-block too.
#include <string.h>

#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  // Files with sections come from the multimodal models, which rotate halves; text has one position for all sections.
  rope.mode = mtx_h_layer(h, "rope.dimension_sections", 0, 0) ? MTX_ROPE_NEOX : MTX_ROPE_NORM;
  mtx_layer l = mtx_layer_default(&rope);
  l.ffn = MTX_FFN_JOINED;
  if (strcmp(h->arch, "glm4") == 0) mtx_layer_post_norms(&l);
  return mtx_block_decoder(g, h, mtx_block_embed(g, h, 1.0f), &l);
}

const mtx_arch mtx_arch_glm4 = {.names = {"glm4", "chatglm"}, .build = build};
