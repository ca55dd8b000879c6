// SPDX-License-Identifier: MIT
// How long one token's mask takes at 150,000 tokens, and how long schemas take
// to compile. Prints figures, asserts nothing.
//
// The text that is followed is a fixed document per schema, cut into the
// longest tokens of the vocabulary, as a model's tokenizer would. "cold"
// is the first document of a fresh grammar; "warm" what later requests see.
// Usage: bench_mask [VOCABULARY.gguf]; without one the vocabulary is made up.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "grammar/grammar.h"
#include "tok/tok.h"

#define MADE_UP 150000u

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);  // other work on the machine does not count
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

typedef struct {
  uint32_t n;
  char **piece;
  uint32_t *len;
  uint8_t *flags;
  mtx_vocab_trie *trie;
} vocab;

static uint64_t rng = 88172645463325252u;
static uint32_t rnd(uint32_t n) {
  rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
  return (uint32_t)((rng >> 11) % n);
}

// Bytes, then words (half with a space before), then punctuation runs as in code.
static void make_up(vocab *v) {
  static const char *const part[] = {"a", "e", "in", "on", "er", "th", "st", "re", "at", "o", "u", "ly", "ing", "ed", "co", "de",
                                     "se", "ra", "lo", "mi", "pa", "ti", "be", "no", "\xc3\xa9", "\xe4\xb8\xad", "\xe6\x96\x87", "s", "t", "n"};
  static const char *const mark[] = {"\"", "\",", "\":", "{", "}", "[", "]", ",", ":", " ", "\\", "\\n", ".", "(", ")", "=", "'", "\n", "0", "1", "2"};
  v->n = MADE_UP;
  for (uint32_t i = 0; i < v->n; i++) {
    char buf[64];
    size_t n = 0;
    if (i < 256) {
      buf[n++] = (char)i;
    } else {
      bool marks = i % 16 == 0;
      if (rnd(2)) buf[n++] = ' ';
      for (uint32_t k = marks ? 1 + rnd(3) : 1 + rnd(5); k > 0; k--) {
        const char *p = marks ? mark[rnd(21)] : part[rnd(30)];
        memcpy(buf + n, p, strlen(p));
        n += strlen(p);
      }
    }
    v->piece[i] = malloc(n);
    memcpy(v->piece[i], buf, n);
    v->len[i] = (uint32_t)n;
  }
  v->flags[v->n - 1] = MTX_TRIE_EOG;
}

static bool from_file(vocab *v, const char *path) {
  mtx_gguf *g;
  mtx_tok *t;
  mtx_err err;
  if (mtx_gguf_open(&g, path, MTX_GGUF_VOCAB_ONLY, &err) || mtx_tok_open(&t, g, &err)) {
    fprintf(stderr, "%s: %s\n", path, err.msg);
    return false;
  }
  v->n = (uint32_t)mtx_tok_n_tokens(t) < MADE_UP * 2 ? (uint32_t)mtx_tok_n_tokens(t) : MADE_UP * 2;
  for (uint32_t i = 0; i < v->n; i++) {
    const char *p = "";
    size_t n = 0;
    mtx_tok_piece(t, (int32_t)i, true, &p, &n);
    v->piece[i] = malloc(n + 1);
    memcpy(v->piece[i], p, n);
    v->len[i] = (uint32_t)n;
    if (mtx_tok_attr(t, (int32_t)i) & MTX_TOK_ATTR_CONTROL) v->flags[i] |= MTX_TRIE_CONTROL;
    if (mtx_tok_is_eog(t, (int32_t)i)) v->flags[i] |= MTX_TRIE_EOG;
  }
  return true;
}

static int cmp_double(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return a < b ? -1 : a > b;
}

// Follows the text once; appends the time of each mask.
static size_t follow(const vocab *v, mtx_grammar *g, const char *text, double *us, uint64_t *bits) {
  mtx_matcher *m;
  mtx_err err;
  size_t n = 0;
  if (mtx_matcher_new(g, v->trie, NULL, &m, &err)) return 0;
  for (size_t at = 0, len = strlen(text); at < len;) {
    double t = now_us();
    if (mtx_matcher_mask(m, bits, &err)) break;
    us[n++] = now_us() - t;
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < v->n; i++)
      if ((bits[i >> 6] >> (i & 63) & 1) && v->len[i] && v->len[i] <= len - at && !memcmp(v->piece[i], text + at, v->len[i]) &&
          (best == UINT32_MAX || v->len[i] > v->len[best]))
        best = i;
    if (best == UINT32_MAX || mtx_matcher_accept_token(m, best, &err)) {
      fprintf(stderr, "stuck at byte %zu of %s\n", at, text);
      break;
    }
    at += v->len[best];
  }
  mtx_matcher_free(m);
  return n;
}

static void percentiles(const char *name, double *us, size_t n) {
  if (!n) return;
  qsort(us, n, sizeof *us, cmp_double);
  printf("  %-6s %5zu masks: p50 %7.1f us  p99 %8.1f us  max %9.1f us\n", name, n, us[n / 2], us[n * 99 / 100], us[n - 1]);
}

#define STR "{\"type\":\"string\"}"
static const char *const cases[][3] = {
    {"weather tool",
     "{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"get_weather\"},\"arguments\":{\"type\":\"object\",\"properties\":{\"location\":" STR
     ",\"unit\":{\"enum\":[\"celsius\",\"fahrenheit\"]},\"days\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":14}},\"required\":[\"location\",\"unit\"]}},\"required\":[\"name\",\"arguments\"]}",
     "{\"name\": \"get_weather\", \"arguments\": {\"location\": \"San Sebastian on the coast of the Bay of Biscay\", \"unit\": \"celsius\", \"days\": 7}}"},
    {"file edit tool",
     "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\",\"maxLength\":400},\"edits\":{\"type\":\"array\",\"maxItems\":50,\"items\":{\"type\":\"object\",\"properties\":{\"line\":{\"type\":\"integer\","
     "\"minimum\":1},\"old\":{\"type\":\"string\",\"maxLength\":2000},\"new\":{\"type\":\"string\",\"maxLength\":2000}},\"required\":[\"line\",\"old\",\"new\"],\"additionalProperties\":false}}},\"required\":[\"path\",\"edits\"]}",
     "{\"path\": \"src/main.c\", \"edits\": [{\"line\": 120, \"old\": \"the distance is no longer in the table\\n\", \"new\": \"a \\\"better\\\" line of text, in the same place as before\"}, "
     "{\"line\": 7, \"old\": \"\", \"new\": \"return (1);\"}]}"},
    {"search with patterns",
     "{\"type\":\"object\",\"properties\":{\"query\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":60},\"since\":{\"type\":\"string\",\"format\":\"date\"},\"lang\":{\"type\":\"string\",\"pattern\":\"^[a-z]{2}$\"},"
     "\"id\":{\"type\":\"string\",\"pattern\":\"^[a-z0-9_-]{1,64}$\"},\"limit\":{\"type\":\"number\",\"minimum\":0,\"maximum\":1}},\"required\":[\"query\"]}",
     "{\"query\": \"stories about the sea and the land in the north\", \"since\": \"2024-02-29\", \"lang\": \"en\", \"id\": \"an-id_0123456789-of-this-one\", \"limit\": 0.25}"},
    {"any JSON", "true", "{\"list\": [1, 2.5, {\"a\": null}], \"text\": \"something that is said in the end\", \"ok\": true}"},
};

int main(int argc, char **argv) {
  vocab v = {.piece = calloc(2 * MADE_UP, sizeof *v.piece), .len = calloc(2 * MADE_UP, sizeof *v.len), .flags = calloc(2 * MADE_UP, 1)};
  static double us[400000], all[400000];
  size_t n_all = 0;
  mtx_err err;
  if (argc > 1) {
    if (!from_file(&v, argv[1])) return 1;
  } else {
    make_up(&v);
  }
  double t = now_us();
  if (mtx_vocab_trie_new((const char *const *)v.piece, v.len, v.flags, v.n, &v.trie, &err)) return 1;
  printf("trie of %u tokens: %.1f ms\n", v.n, (now_us() - t) / 1e3);
  uint64_t *bits = malloc((v.n + 63) / 64 * sizeof *bits);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    mtx_grammar *g = NULL;
    t = now_us();
    if (mtx_grammar_compile_json_schema(cases[i][1], strlen(cases[i][1]), NULL, &g, &err)) {
      fprintf(stderr, "%s: %s\n", cases[i][0], err.msg);
      return 1;
    }
    double compiled = now_us() - t;
    printf("%s: compile %.2f ms, %zu bytes\n", cases[i][0], compiled / 1e3, mtx_grammar_size_bytes(g));
    size_t n = follow(&v, g, cases[i][2], us, bits), n_warm = 0;
    percentiles("cold", us, n);
    for (int k = 0; k < 20; k++) n_warm += follow(&v, g, cases[i][2], us + n_warm, bits);
    memcpy(all + n_all, us, n_warm * sizeof *us);
    n_all += n_warm;
    percentiles("warm", us, n_warm);
    mtx_grammar_unref(g);
  }
  printf("all:\n");
  percentiles("warm", all, n_all);
  return 0;
}
