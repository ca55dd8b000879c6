// SPDX-License-Identifier: MIT
// The architectures of this build. archs.def is made by the Makefile from the
// names of the files arch_*.c.
#include <string.h>

#include "model/registry.h"

#define X(name) extern const mtx_arch mtx_arch_##name;
#include "archs.def"
#undef X

static const mtx_arch *const archs[] = {
#define X(name) &mtx_arch_##name,
#include "archs.def"
#undef X
};

enum { N_ARCHS = sizeof archs / sizeof *archs };

const mtx_arch *mtx_arch_find(const char *name) {
  for (int i = 0; i < N_ARCHS; i++)
    for (int k = 0; archs[i]->names[k]; k++)
      if (strcmp(archs[i]->names[k], name) == 0) return archs[i];
  return NULL;
}

const char *const *mtx_model_architectures(void) {
  static const char *names[N_ARCHS * 8 + 1];
  int n = 0;
  for (int i = 0; i < N_ARCHS; i++)
    for (int k = 0; archs[i]->names[k]; k++) names[n++] = archs[i]->names[k];
  names[n] = NULL;
  return names;
}
