// SPDX-License-Identifier: MIT
// Any bytes as a GBNF grammar: it compiles within its limits or is refused with a place
// inside the text, and what compiles can be followed token by token.
#include "grammar_body.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  mtx_grammar *g = NULL;
  mtx_err err;
  if (size > 4096) return 0;
  if (mtx_grammar_compile_gbnf((const char *)data, size, &g, &err) != MTX_OK) {
    if (g || err.offset > size) abort();
    return 0;
  }
  fuzz_walk(g, data, size);
  return 0;
}
