// SPDX-License-Identifier: MIT
// Builds GGUF files byte by byte, right or wrong on purpose, for C tests. It
// shares no code with the writer, so the two can be held against each other.
#ifndef MTX_TESTS_GGUF_BYTES_H
#define MTX_TESTS_GGUF_BYTES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { uint8_t *p; size_t n, cap; } gb;

static inline void gb_raw(gb *b, const void *p, size_t n) {
  if (b->n + n > b->cap) {
    b->cap = (b->n + n) * 2;
    b->p = realloc(b->p, b->cap);
    if (!b->p) exit(2);
  }
  if (n) memcpy(b->p + b->n, p, n);
  b->n += n;
}
static inline void gb_u8(gb *b, uint8_t v) { gb_raw(b, &v, 1); }
static inline void gb_u32(gb *b, uint32_t v) { gb_raw(b, &v, 4); }
static inline void gb_u64(gb *b, uint64_t v) { gb_raw(b, &v, 8); }
static inline void gb_strn(gb *b, const char *s, size_t n) { gb_u64(b, n); gb_raw(b, s, n); }
static inline void gb_str(gb *b, const char *s) { gb_strn(b, s, strlen(s)); }
static inline void gb_pad(gb *b, size_t to) { while (b->n % to) gb_u8(b, 0); }
static inline void gb_free(gb *b) { free(b->p); *b = (gb){0}; }

static inline void gb_head(gb *b, uint32_t version, uint64_t n_tensors, uint64_t n_kv) {
  gb_raw(b, "GGUF", 4);
  gb_u32(b, version);
  gb_u64(b, n_tensors);
  gb_u64(b, n_kv);
}
static inline void gb_kv_str(gb *b, const char *key, const char *value) { gb_str(b, key); gb_u32(b, 8); gb_str(b, value); }
static inline void gb_kv_u32(gb *b, const char *key, uint32_t v) { gb_str(b, key); gb_u32(b, 4); gb_u32(b, v); }
static inline void gb_kv_i32(gb *b, const char *key, int32_t v) { gb_str(b, key); gb_u32(b, 5); gb_raw(b, &v, 4); }
static inline void gb_kv_u16(gb *b, const char *key, uint16_t v) { gb_str(b, key); gb_u32(b, 2); gb_raw(b, &v, 2); }
static inline void gb_tensor(gb *b, const char *name, uint32_t n_dims, const uint64_t *ne, uint32_t type, uint64_t offset) {
  gb_str(b, name);
  gb_u32(b, n_dims);
  for (uint32_t i = 0; i < n_dims && i < 16; i++) gb_u64(b, ne[i]);
  gb_u32(b, type);
  gb_u64(b, offset);
}

static inline int gb_save(const gb *b, const char *path) {
  FILE *f = fopen(path, "wb");
  if (!f) return 0;
  size_t n = b->n ? fwrite(b->p, 1, b->n, f) : 0;
  return fclose(f) == 0 && n == b->n;
}

#endif
