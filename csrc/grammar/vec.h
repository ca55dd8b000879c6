// SPDX-License-Identifier: MIT
// Growable arrays of the grammar compiler, by macro because C has no templates.
//
// A vector is three fields in a struct: T *NAME; uint32_t n_NAME, cap_NAME.
// Growth doubles; the caller states the limit, so memory stays bounded.
#ifndef MTX_GRAMMAR_VEC_H
#define MTX_GRAMMAR_VEC_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

// Makes room for n more elements of `size` bytes; false when over `limit`
// elements or out of memory (the vector is then unchanged).
static inline bool mtx_vec_grow(void **v, uint32_t n_used, uint32_t *cap, uint32_t n, size_t size,
                                uint32_t limit) {
  if (n > limit || n_used > limit - n) return false;
  if (n_used + n <= *cap) return true;
  uint64_t want = (uint64_t)*cap * 2;
  if (want < n_used + n) want = n_used + n;
  if (want < 16) want = 16;
  if (want > limit) want = limit;
  void *p = realloc(*v, (size_t)want * size);
  if (!p) return false;
  *v = p;
  *cap = (uint32_t)want;
  return true;
}

#define MTX_VEC(T, name) \
  T *name;               \
  uint32_t n_##name, cap_##name

#define MTX_VEC_GROW(s, name, n, limit) \
  mtx_vec_grow((void **)&(s)->name, (s)->n_##name, &(s)->cap_##name, (n), sizeof *(s)->name, (limit))

#endif
