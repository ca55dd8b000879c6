// SPDX-License-Identifier: MIT
// What merge.c and merge_long.c share: symbols of a word and the pairs they make.
#ifndef MTX_TOK_MERGE_H
#define MTX_TOK_MERGE_H

#include <math.h>

#include "tok/unicode.h"
#include "tok/vocab.h"

enum { MTX_MERGE_FEW = 32 };  // up to so many symbols the best pair is found by looking at all

typedef struct { uint32_t key, id; } mtx_best;  // key: lower merges first; UINT32_MAX: no merge

// Scores ordered as unsigned numbers, the highest lowest. NaN never merges.
static inline uint32_t mtx_score_key(float f) {
  if (isnan(f)) return UINT32_MAX;
  f += 0.0f;  // -0 is 0
  uint32_t u;
  memcpy(&u, &f, 4);
  u = u & 0x80000000u ? ~u : u | 0x80000000u;
  return ~u < UINT32_MAX ? ~u : UINT32_MAX - 1;
}

static inline mtx_best mtx_pair_of(const mtx_tok *t, const char *p, const mtx_sym *a, const mtx_sym *b) {
  if (t->kind == MTX_KIND_BPE) {
    if (a->id == UINT32_MAX || b->id == UINT32_MAX) return (mtx_best){UINT32_MAX, 0};
    const mtx_pair *m = mtx_pairmap_get(&t->merges, a->id, b->id);
    return m ? (mtx_best){m->rank, m->merged} : (mtx_best){UINT32_MAX, 0};
  }
  size_t n = (size_t)a->len + b->len;
  if (n > t->max_key) return (mtx_best){UINT32_MAX, 0};
  int32_t id = mtx_strmap_get(&t->map, p + a->pos, n);
  if (id < 0) return (mtx_best){UINT32_MAX, 0};
  return (mtx_best){mtx_score_key(t->score ? t->score[id] : 0), (uint32_t)id};
}

static inline uint32_t mtx_first_symbol(const mtx_tok *t, const char *p, size_t n, mtx_sym *s) {
  size_t len = t->byte_level ? 1 : mtx_utf8_len((unsigned char)*p);
  if (len > n) len = n;
  s->len = (uint32_t)len;
  if (t->byte_level) {
    s->id = t->byte_sym[(uint8_t)*p];
  } else {
    int32_t id = mtx_strmap_get(&t->map, p, len);
    s->id = id < 0 ? UINT32_MAX : (uint32_t)id;
  }
  return s->len;
}

// merge.c: merges s[0..n), n <= MTX_MERGE_FEW, to the end; returns how many are left.
int mtx_merge_few(const mtx_tok *t, const char *p, mtx_sym *s, int n);
// Appends the tokens of symbols that merge no further.
mtx_code mtx_merge_emit(mtx_enc *e, const char *p, const mtx_sym *s, size_t n);
// merge_long.c: a word of more symbols.
mtx_code mtx_merge_long(mtx_enc *e, const char *p, size_t n);

#endif
