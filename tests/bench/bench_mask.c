// SPDX-License-Identifier: MIT
// How long one token's mask takes at 150,000 tokens, and how long schemas take
// to compile. Prints figures, asserts nothing.
//
// The text that is followed is a fixed document per grammar, cut into the
// longest tokens of the vocabulary, as a model's tokenizer would. "cold" is the
// first document of a fresh grammar; "warm" what later requests see. Between two
// masks the vocabulary is searched, so they find the processor's caches used.
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
#define OBJECT(properties, required) "{\"type\":\"object\",\"properties\":{" properties "},\"required\":[" required "],\"additionalProperties\":false}"

typedef struct {
  const char *name, *grammar, *text;
  bool gbnf;
} mask_case;

static const mask_case cases[] = {
    {"weather tool",
     "{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"get_weather\"},\"arguments\":{\"type\":\"object\",\"properties\":{\"location\":" STR
     ",\"unit\":{\"enum\":[\"celsius\",\"fahrenheit\"]},\"days\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":14}},\"required\":[\"location\",\"unit\"]}},\"required\":[\"name\",\"arguments\"]}",
     "{\"name\": \"get_weather\", \"arguments\": {\"location\": \"San Sebastian on the coast of the Bay of Biscay\", \"unit\": \"celsius\", \"days\": 7}}", false},
    {"file edit tool",
     "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\",\"maxLength\":400},\"edits\":{\"type\":\"array\",\"maxItems\":50,\"items\":"
     OBJECT("\"line\":{\"type\":\"integer\",\"minimum\":1},\"old\":{\"type\":\"string\",\"maxLength\":2000},\"new\":{\"type\":\"string\",\"maxLength\":2000}", "\"line\",\"old\",\"new\"")
     "}},\"required\":[\"path\",\"edits\"]}",
     "{\"path\": \"src/main.c\", \"edits\": [{\"line\": 120, \"old\": \"the distance is no longer in the table\\n\", \"new\": \"a \\\"better\\\" line of text, in the same place as before\"}, "
     "{\"line\": 7, \"old\": \"\", \"new\": \"return (1);\"}]}", false},
    {"search with patterns",
     "{\"type\":\"object\",\"properties\":{\"query\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":60},\"since\":{\"type\":\"string\",\"format\":\"date\"},\"lang\":{\"type\":\"string\",\"pattern\":\"^[a-z]{2}$\"},"
     "\"id\":{\"type\":\"string\",\"pattern\":\"^[a-z0-9_-]{1,64}$\"},\"slug\":{\"type\":\"string\",\"pattern\":\"^[a-z]+(-[a-z]+)*$\",\"maxLength\":80},\"limit\":{\"type\":\"number\",\"minimum\":0,\"maximum\":1}},\"required\":[\"query\"]}",
     "{\"query\": \"stories about the sea and the land in the north\", \"since\": \"2024-02-29\", \"lang\": \"en\", \"id\": \"an-id_0123456789-of-this-one\", \"slug\": \"stories-of-the-sea-and-the-land\", \"limit\": 0.25}", false},
    {"contact with formats",
     OBJECT("\"email\":{\"type\":\"string\",\"format\":\"email\"},\"host\":{\"type\":\"string\",\"format\":\"hostname\"}", "\"email\",\"host\""),
     "{\"email\": \"someone.at.home@mail.example-company.co.uk\", \"host\": \"build-server.internal.example.org\"}", false},
    {"payment with conditions",
     "{\"type\":\"object\",\"properties\":{\"kind\":{\"enum\":[\"card\",\"cash\",\"transfer\"]},\"number\":" STR ",\"iban\":" STR ",\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"new\",\"late\",\"large\"]},\"uniqueItems\":true},"
     "\"note\":{\"type\":\"string\",\"not\":{\"enum\":[\"\",\"none\"]}}},\"required\":[\"kind\"],\"additionalProperties\":false,\"dependentRequired\":{\"note\":[\"tags\"]},\"allOf\":["
     "{\"if\":{\"properties\":{\"kind\":{\"const\":\"card\"}}},\"then\":{\"required\":[\"number\"]},\"else\":{\"properties\":{\"number\":false}}},"
     "{\"if\":{\"properties\":{\"kind\":{\"const\":\"transfer\"}}},\"then\":{\"required\":[\"iban\"]}}]}",
     "{\"kind\": \"card\", \"number\": \"the number on the card\", \"note\": \"a note that is not none\", \"tags\": [\"late\", \"new\"]}", false},
    {"one of three tools",
     "{\"anyOf\":["
     OBJECT("\"name\":{\"const\":\"run_command\"},\"arguments\":" OBJECT("\"command\":{\"type\":\"array\",\"items\":" STR ",\"minItems\":1},\"cwd\":" STR ",\"timeout_ms\":{\"type\":\"integer\"}", "\"command\""), "\"name\",\"arguments\"") ","
     OBJECT("\"name\":{\"const\":\"read_file\"},\"arguments\":" OBJECT("\"path\":" STR ",\"offset\":{\"type\":\"integer\",\"minimum\":0},\"limit\":{\"type\":\"integer\",\"maximum\":2000}", "\"path\""), "\"name\",\"arguments\"") ","
     OBJECT("\"name\":{\"const\":\"create_ticket\"},\"arguments\":" OBJECT("\"title\":" STR ",\"labels\":{\"type\":\"array\",\"items\":{\"enum\":[\"bug\",\"feature\",\"question\"]}},"
            "\"assignee\":{\"anyOf\":[" STR ",{\"type\":\"null\"}]},\"due\":{\"type\":\"string\",\"format\":\"date-time\"},\"meta\":{\"type\":\"object\",\"additionalProperties\":" STR "}", "\"title\",\"labels\""), "\"name\",\"arguments\"") "]}",
     "{\"name\": \"create_ticket\", \"arguments\": {\"title\": \"The server does not start after an update\", \"labels\": [\"bug\", \"question\"], \"assignee\": null, "
     "\"due\": \"2026-03-14T15:09:26Z\", \"meta\": {\"found by\": \"a customer\", \"version\": \"2.1\"}}}", false},
    {"any JSON", "true", "{\"list\": [1, 2.5, {\"a\": null}], \"text\": \"something that is said in the end\", \"ok\": true}", false},
    {"JSON in GBNF",
     "root ::= object\nvalue ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n"
     "object ::= \"{\" ws (string \":\" ws value (\",\" ws string \":\" ws value)*)? \"}\" ws\narray ::= \"[\" ws (value (\",\" ws value)*)? \"]\" ws\n"
     "string ::= \"\\\"\" ([^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{4}))* \"\\\"\" ws\n"
     "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws\nws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n",
     "{\"list\": [1, 2.5, {\"a\": null}], \"text\": \"something that is said in the end\", \"ok\": true}", true},
};

static bool compile(const mask_case *c, mtx_grammar **g) {
  mtx_err err;
  mtx_code code = c->gbnf ? mtx_grammar_compile_gbnf(c->grammar, strlen(c->grammar), g, &err)
                          : mtx_grammar_compile_json_schema(c->grammar, strlen(c->grammar), NULL, g, &err);
  if (code) fprintf(stderr, "%s: %s\n", c->name, err.msg);
  return !code;
}

// The masks of a model that thinks before it answers, up to the trigger.
static void thinking(const vocab *v, uint64_t *bits) {
  const char *trigger = "</think>";
  const mtx_matcher_opts o = {.triggers = &trigger, .trigger_lens = (size_t[]){8}, .n_triggers = 1, .skip_ws = true};
  mtx_grammar *g;
  mtx_matcher *m;
  mtx_err err;
  double us[64];
  if (!compile(cases, &g) || mtx_matcher_new(g, v->trie, &o, &m, &err)) return;
  for (int i = 0; i < 64; i++) {
    double t = now_us();
    if (mtx_matcher_mask(m, bits, &err) || mtx_matcher_accept_bytes(m, i % 8 ? "a <" : "</thin", i % 8 ? 3 : 6, NULL, &err)) return;
    us[i] = now_us() - t;
  }
  printf("while thinking: first %.1f us, ", us[0]);
  qsort(us, 64, sizeof *us, cmp_double);
  printf("p50 %.1f us, max after the first %.1f us\n", us[32], us[62]);
  mtx_matcher_free(m);
  mtx_grammar_unref(g);
}

int main(int argc, char **argv) {
  vocab v = {.piece = calloc(2 * MADE_UP, sizeof *v.piece), .len = calloc(2 * MADE_UP, sizeof *v.len), .flags = calloc(2 * MADE_UP, 1)};
  static double us[400000], cold[4000], warm[400000];
  size_t n_all_cold = 0, n_all = 0;
  mtx_err err;
  if (argc > 1) {
    if (!from_file(&v, argv[1])) return 1;
  } else {
    make_up(&v);
  }
  double t = now_us();
  if (mtx_vocab_trie_new((const char *const *)v.piece, v.len, v.flags, v.n, &v.trie, &err)) return 1;
  printf("trie of %u tokens: %.1f ms", v.n, (now_us() - t) / 1e3);
  t = now_us();
  if (mtx_vocab_trie_warm(v.trie, &err)) return 1;
  printf(", its strings %.1f ms\n", (now_us() - t) / 1e3);
  uint64_t *bits = malloc((v.n + 63) / 64 * sizeof *bits);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    mtx_grammar *g = NULL;
    t = now_us();
    if (!compile(cases + i, &g)) return 1;
    printf("%s: compile %.2f ms, %zu bytes\n", cases[i].name, (now_us() - t) / 1e3, mtx_grammar_size_bytes(g));
    size_t n = follow(&v, g, cases[i].text, us, bits), n_warm = 0;
    memcpy(cold + n_all_cold, us, n * sizeof *us);
    n_all_cold += n;
    percentiles("cold", us, n);
    for (int k = 0; k < 20; k++) n_warm += follow(&v, g, cases[i].text, us + n_warm, bits);
    memcpy(warm + n_all, us, n_warm * sizeof *us);
    n_all += n_warm;
    percentiles("warm", us, n_warm);
    mtx_grammar_unref(g);
  }
  printf("all:\n");
  percentiles("cold", cold, n_all_cold);
  percentiles("warm", warm, n_all);
  thinking(&v, bits);
  return 0;
}
