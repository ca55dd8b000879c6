// SPDX-License-Identifier: MIT
// Sorted lists of names: see mtx_gguf_name.
#include <stdlib.h>
#include <string.h>

#include "gguf/parse.h"

static int str_cmp(mtx_str a, mtx_str b) {
  int c = memcmp(a.ptr, b.ptr, a.len < b.len ? a.len : b.len);
  return c ? c : (a.len > b.len) - (a.len < b.len);
}

static int name_cmp(const void *a, const void *b) {
  const mtx_gguf_name *x = a, *y = b;
  int c = str_cmp(x->name, y->name);
  return c ? c : (x->i > y->i) - (x->i < y->i);
}

int64_t mtx_gguf_names_sort(mtx_gguf_name *names, uint64_t n) {
  if (n) qsort(names, n, sizeof *names, name_cmp);
  for (uint64_t i = 1; i < n; i++)
    if (str_cmp(names[i - 1].name, names[i].name) == 0) return (int64_t)names[i].i;
  return -1;
}

const mtx_gguf_name *mtx_gguf_names_find(const mtx_gguf_name *names, uint64_t n, const char *name) {
  mtx_str key = {name, strlen(name)};
  uint64_t lo = 0, hi = n;
  while (lo < hi) {
    uint64_t mid = lo + (hi - lo) / 2;
    int c = str_cmp(names[mid].name, key);
    if (c == 0) return &names[mid];
    if (c < 0) lo = mid + 1; else hi = mid;
  }
  return NULL;
}
