// SPDX-License-Identifier: MIT
// `make golden`: writes every tiny model of tests/golden/arch to the folder given
// as argument. A file that is there already, with the right size, stays.
#include <sys/stat.h>

#include "golden_arch.h"

int main(int argc, char **argv) {
  int n, n_made = 0, n_failed = 0;
  golden_model *m = golden_arch_models(&n);
  for (int i = 0; argc == 2 && i < n; i++) {
    char path[512], temp[520];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s.gguf", argv[1], m[i].name);
    snprintf(temp, sizeof temp, "%s.part", path);
    if (stat(path, &st) == 0 && (uint64_t)st.st_size == m[i].n_bytes) continue;
    uint8_t *bytes = golden_arch_make(&m[i]);
    FILE *f = bytes ? fopen(temp, "wb") : NULL;
    int ok = f && fwrite(bytes, 1, m[i].n_bytes, f) == m[i].n_bytes;
    if (f && fclose(f) != 0) ok = 0;
    if (ok && rename(temp, path) == 0) n_made++;
    else n_failed++, fprintf(stderr, "%s: not made\n", path);
    free(bytes);
  }
  golden_arch_free(m, n);
  if (argc != 2) return fprintf(stderr, "usage: expand_arch FOLDER\n"), 2;
  printf("golden models: %d made, %d there already, %d failed\n", n_made, n - n_made - n_failed, n_failed);
  return n_failed != 0;
}
