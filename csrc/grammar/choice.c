// SPDX-License-Identifier: MIT
// A list of texts, one of which is to be written, into a grammar.
#include "grammar/build.h"

mtx_code mtx_grammar_compile_choice(const char *const *choices, const size_t *lens, size_t n, mtx_grammar **out,
                                    mtx_err *err) {
  *out = NULL;
  if (n == 0) return mtx_fail(err, MTX_EINVAL, "the list of choices is empty");
  mtx_gb b;
  mtx_gb_init(&b);
  mtx_gx *list = n <= 1000000 ? malloc(n * sizeof *list) : NULL;
  if (!list) mtx_gb_fail(&b, MTX_ELIMIT, 0, "%zu choices are too many", n);
  for (size_t i = 0; i < n && !b.code; i++) list[i] = mtx_gx_lit(&b, choices[i], lens[i]);
  uint32_t root = mtx_gb_rule(&b, "root", 4);
  if (!b.code) mtx_gb_define(&b, root, mtx_gx_alt(&b, list, n));
  free(list);
  mtx_code code = mtx_gb_finish(&b, root, out, err);
  mtx_gb_fini(&b);
  return code;
}
