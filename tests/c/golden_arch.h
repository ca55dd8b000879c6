// SPDX-License-Identifier: MIT
// Makes the tiny models of tests/golden/arch from their heads and rules.
//
// Element i = 1..n of a tensor, in double and wrapping 64-bit integers, then
// rounded to the tensor's type:
//   const a;  ramp a + (b - a) * (i - 1) / (n - 1);
//   uniform a + b * u: z = FNV1a64(name) + seed * 0xD1342543DE82EF95 + i * golden
//   ratio, mixed as in splitmix64, u = (z >> 40) / 2^23 - 1.
#ifndef MTX_TESTS_GOLDEN_ARCH_H
#define MTX_TESTS_GOLDEN_ARCH_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sha256.h"
#include "gguf/gguf.h"
#include "temp.h"

#define GOLDEN_ARCH "tests/golden/arch"

typedef struct { char kind[8]; double a, b; char tensor[128]; } golden_rule;
typedef struct {
  char name[64], sha256[65];
  uint64_t n_bytes, seed;
  golden_rule *rules;
  int n_rules;
} golden_model;

// Reads rules.txt; exits with a message when it is missing or malformed.
static inline golden_model *golden_arch_models(int *n_models) {
  FILE *f = fopen(GOLDEN_ARCH "/rules.txt", "r");
  char line[512];
  golden_model *m = NULL, *last = NULL;
  *n_models = 0;
  while (f && fgets(line, sizeof line, f)) {
    if (line[0] == '#') continue;
    if (!strncmp(line, "model ", 6)) {
      m = realloc(m, (size_t)(*n_models + 1) * sizeof *m);
      if (!m) exit(2);
      last = &m[(*n_models)++];
      memset(last, 0, sizeof *last);
      unsigned long long bytes, seed;
      if (sscanf(line, "model %63s %llu %llu %64s", last->name, &bytes, &seed, last->sha256) != 4) { *n_models = 0; break; }
      last->n_bytes = bytes, last->seed = seed;
      continue;
    }
    golden_rule r = {0};
    if (!last || sscanf(line, "%7s %lf %lf %127s", r.kind, &r.a, &r.b, r.tensor) != 4) { *n_models = 0; break; }
    last->rules = realloc(last->rules, (size_t)(last->n_rules + 1) * sizeof r);
    if (!last->rules) exit(2);
    last->rules[last->n_rules++] = r;
  }
  if (f) fclose(f);
  if (!*n_models) {
    fprintf(stderr, "%s/rules.txt is missing or damaged\n0 passed, 1 failed\n", GOLDEN_ARCH);
    exit(2);
  }
  return m;
}

static inline void golden_arch_free(golden_model *m, int n) {
  for (int i = 0; i < n; i++) free(m[i].rules);
  free(m);
}

// Rounds to nearest even; finite values of the normal and subnormal half range.
static inline uint16_t golden_half(float f) {
  uint32_t x;
  memcpy(&x, &f, 4);
  uint32_t sign = x >> 16 & 0x8000, man = x & 0x7fffff;
  int e = (int)(x >> 23 & 0xff) - 112;
  if (e >= 31) return (uint16_t)(sign | 0x7c00);
  uint32_t shift = 13;
  if (e <= 0) {
    if (e < -10) return (uint16_t)sign;
    man |= 0x800000, shift = (uint32_t)(14 - e), e = 0;
  }
  uint32_t q = man >> shift, rest = man & ((1u << shift) - 1), half = 1u << (shift - 1);
  q += rest > half || (rest == half && (q & 1));
  return (uint16_t)(sign + ((uint32_t)e << 10) + q);
}

static inline void golden_arch_fill(const golden_rule *r, uint64_t seed, uint8_t *dst, uint64_t n, int is_half) {
  uint64_t base = 0xcbf29ce484222325u;
  for (const char *c = r->tensor; *c; c++) base = (base ^ (uint8_t)*c) * 0x100000001b3u;
  base += seed * 0xD1342543DE82EF95u;
  for (uint64_t i = 1; i <= n; i++) {
    double x = r->a;
    if (r->kind[0] == 'r') {
      x = r->a + (r->b - r->a) * (double)(i - 1) / (double)(n - 1);
    } else if (r->kind[0] == 'u') {
      uint64_t z = base + i * 0x9E3779B97F4A7C15u;
      z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
      z = (z ^ z >> 27) * 0x94D049BB133111EBu;
      z ^= z >> 31;
      x = r->a + r->b * ((double)(z >> 40) / 8388608.0 - 1.0);
    }
    float f = (float)x;
    uint16_t h = golden_half(f);
    if (is_half) memcpy(dst + 2 * (i - 1), &h, 2);
    else memcpy(dst + 4 * (i - 1), &f, 4);
  }
}

// The whole file in memory, owned by the caller, sha256 checked; NULL with a
// message on stderr when anything is wrong.
static inline uint8_t *golden_arch_make(const golden_model *m) {
  char path[256];
  snprintf(path, sizeof path, GOLDEN_ARCH "/%s.head", m->name);
  FILE *f = fopen(path, "rb");
  uint8_t *bytes = calloc(1, m->n_bytes);
  mtx_gguf *g = NULL;
  mtx_err err = {0};
  if (!f || !bytes || !fread(bytes, 1, m->n_bytes, f) || ferror(f)) {
    fprintf(stderr, "%s: cannot be read\n", path);
    goto fail;
  }
  if (mtx_gguf_open_mem(&g, bytes, m->n_bytes, 0, &err) != MTX_OK) {
    fprintf(stderr, "%s: %s %s\n", path, err.key, err.msg);
    goto fail;
  }
  if ((uint64_t)m->n_rules != mtx_gguf_n_tensors(g)) fprintf(stderr, "%s: %d rules for %d tensors\n", path, m->n_rules, (int)mtx_gguf_n_tensors(g));
  for (int i = 0; i < m->n_rules; i++) {
    const mtx_gguf_tensor *t = mtx_gguf_tensor_find(g, m->rules[i].tensor);
    if (!t) { fprintf(stderr, "%s: no tensor %s\n", path, m->rules[i].tensor); goto fail; }
    golden_arch_fill(&m->rules[i], m->seed, bytes + mtx_gguf_tensor_offset(g, t), t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3], t->type == 1);
  }
  mtx_sha256 s;
  char hex[65];
  mtx_sha256_init(&s);
  mtx_sha256_update(&s, bytes, m->n_bytes);
  mtx_sha256_hex(&s, hex);
  if (strcmp(hex, m->sha256) != 0) { fprintf(stderr, "%s: the model's sha256 is %s, not %s\n", path, hex, m->sha256); goto fail; }
  mtx_gguf_close(g);
  fclose(f);
  return bytes;
fail:
  mtx_gguf_close(g);
  if (f) fclose(f);
  free(bytes);
  return NULL;
}

static inline const golden_model *golden_arch_find(const golden_model *models, int n_models, const char *name) {
  for (int i = 0; i < n_models; i++)
    if (strcmp(models[i].name, name) == 0) return &models[i];
  return NULL;
}

// Writes the model to a new file. False with a message on stderr.
static inline bool golden_arch_write_one(const golden_model *m, char path[TEMP_PATH]) {
  uint8_t *bytes = golden_arch_make(m);
  if (bytes) temp_write(path, bytes, m->n_bytes);
  else fprintf(stderr, "%s cannot be made\n", m->name);
  free(bytes);
  return bytes != NULL;
}

static inline bool golden_arch_write(const golden_model *models, int n_models, const char *name, char path[TEMP_PATH]) {
  const golden_model *m = golden_arch_find(models, n_models, name);
  if (!m) fprintf(stderr, "%s is missing\n", name);
  return m && golden_arch_write_one(m, path);
}

#endif
