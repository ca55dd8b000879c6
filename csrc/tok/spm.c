// SPDX-License-Identifier: MIT
// SentencePiece BPE: pairs merge by the score of the token they spell.
#include <stdio.h>

#include "tok/vocab.h"

mtx_code mtx_spm_load(mtx_tok *t, mtx_err *err) {
  (void)err;
  for (int b = 0; b < 256; b++) {
    char c = (char)b, hex[8];
    snprintf(hex, sizeof hex, "<0x%02X>", (unsigned)b);
    int32_t id = mtx_tok_find(t, hex, 6);
    t->byte_id[b] = id >= 0 ? id : mtx_tok_find(t, &c, 1);
  }
  mtx_tok_mark_glue(t);
  return MTX_OK;
}

mtx_code mtx_spm_encode(mtx_enc *e, const char *p, size_t n, bool prefix_space) {
  mtx_code rc;
  mtx_cache_start(e, n);
  e->text.len = 0;
  if (prefix_space && (rc = mtx_buf_append(&e->text, MTX_ESCAPED_SPACE, 3, e->err))) return rc;
  if ((rc = mtx_escape_spaces(&e->text, p, n, e->err))) return rc;
  return mtx_encode_words(e, e->text.ptr, e->text.len);
}
