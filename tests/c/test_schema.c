// SPDX-License-Identifier: MIT
// JSON Schema to grammar, without Lua: refusals, order of keys, limits.
//
// With arguments it is the tool of tests/http/test_grammar_walks.sh:
//   test_schema walk N [WS]  schemas on stdin, one a line; prints for each N
//                          finished random texts, "^^I<tab>TEXT" (^^: 0x1e); WS: mtx_json_ws
//   test_schema match      lines "SCHEMA<tab>TEXT" on stdin; prints per line
//                          complete, partial, no, or error: MESSAGE
#include <stdlib.h>
#include <time.h>

#include "check.h"
#include "grammar/grammar.h"

static mtx_code compile(const char *schema, bool strict, mtx_grammar **g, mtx_err *err) {
  mtx_schema_opts o = {.strict = strict};
  memset(err, 0, sizeof *err);
  return mtx_grammar_compile_json_schema(schema, strlen(schema), &o, g, err);
}

static const char *match(mtx_grammar *g, const char *text) {
  mtx_matcher *m = NULL;
  mtx_err err;
  if (mtx_matcher_new(g, NULL, NULL, &m, &err)) return "error";
  mtx_code code = mtx_matcher_accept_bytes(m, text, strlen(text), NULL, &err);
  const char *r = code ? "no" : mtx_matcher_complete(m) ? "complete" : "partial";
  mtx_matcher_free(m);
  return r;
}

static void test_texts(void) {
  static const struct {
    const char *schema, *text, *result;
  } cases[] = {
      // T89
      {"{\"$ref\":\"#/$defs/E\",\"$defs\":{\"E\":{\"enum\":[\"x\"]}}}", "\"x\"", "complete"},
      {"{\"$ref\":\"#/$defs/E\",\"$defs\":{\"E\":{\"enum\":[\"x\"]}}}", "{", "no"},
      // T90: required keys in the order they are written, whatever the alphabet says
      {"{\"properties\":{\"reasoning\":{\"const\":1},\"answer\":{\"const\":2}},\"required\":[\"reasoning\",\"answer\"]}",
       "{\"reasoning\": 1, \"answer\": 2}", "complete"},
      {"{\"properties\":{\"reasoning\":{\"const\":1},\"answer\":{\"const\":2}},\"required\":[\"answer\",\"reasoning\"],"
       "\"additionalProperties\":false}", "{\"a", "no"},
      {"{\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}},\"additionalProperties\":false}", "{\"b\":2,\"a\":1}", "complete"},
      {"{\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}},\"additionalProperties\":false}", "{\"b\":2,\"b\"", "no"},
      // T92: search, nested as at the top
      {"{\"type\":\"object\",\"properties\":{\"s\":{\"type\":\"string\",\"pattern\":\"\\\\d{4}-\\\\d\\\\d\"}}}", "{\"s\":\"on 2024-11.\"}", "complete"},
      {"{\"type\":\"object\",\"properties\":{\"s\":{\"type\":\"string\",\"pattern\":\"^[a-z]+$\"}}}", "{\"s\":\"aB", "no"},
      // T93
      {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"],\"additionalProperties\":false}", "{\"a\":1,", "no"},
      {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"],\"additionalProperties\":{\"type\":\"integer\"}}", "{\"a\":1,\"z\":5}", "complete"},
      {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"],\"additionalProperties\":{\"type\":\"integer\"}}", "{\"a\":1,\"z\":\"", "no"},
      // a declared key cannot come as another key by an escape
      {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}}}", "{\"\\u0061\":5", "no"},
      // schemas that are documents of their own
      {"{\"$id\":\"https://a.b/c/root\",\"$ref\":\"../d/x#/$defs/y\",\"$defs\":{\"q\":{\"$id\":\"/d/x\",\"$defs\":{\"y\":{\"const\":1}}}}}", "1", "complete"},
      {"{\"$id\":\"https://a.b/c/root\",\"$ref\":\"./x\",\"$defs\":{\"q\":{\"$id\":\"x\",\"$ref\":\"#/$defs/y\",\"$defs\":{\"y\":{\"const\":1}}},\"y\":{\"const\":2}}}", "1", "complete"},
      {"{\"$ref\":\"urn:x:1#k\",\"$defs\":{\"q\":{\"$id\":\"urn:x:1\",\"$defs\":{\"r\":{\"$anchor\":\"k\",\"const\":1}}}}}", "1", "complete"},
      {"true", "{\"a\": [1, {\"b\": null}], \"c\": \"\\ud83d\\ude00\"}", "complete"},
      {"true", "\"\\ud83d\"", "no"},
      {"{}", "[]", "complete"},
      // unique items of a list that has none
      {"{\"type\":\"array\",\"items\":{\"enum\":[]},\"uniqueItems\":true}", "[]", "complete"},
      {"{\"type\":\"array\",\"items\":{\"enum\":[]},\"uniqueItems\":true}", "[1]", "no"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    mtx_grammar *g = NULL;
    mtx_err err;
    CHECK(!compile(cases[i].schema, false, &g, &err), "%s: %s", cases[i].schema, err.msg);
    if (!g) continue;
    const char *r = match(g, cases[i].text);
    CHECK(!strcmp(r, cases[i].result), "%s on %s: %s", cases[i].schema, cases[i].text, r);
    mtx_grammar_unref(g);
  }
}

static void test_refused(void) {
  static const struct {
    const char *schema;
    mtx_code code;
    const char *part;
  } cases[] = {
      {"", MTX_EFORMAT, "JSON"},
      {"{\"a\":1", MTX_EFORMAT, "JSON"},
      {"3", MTX_EFORMAT, "object, true or false"},
      {"false", MTX_EFORMAT, "nothing can match"},
      {"{\"type\":\"strin\"}", MTX_EFORMAT, "unknown type"},
      {"{\"$ref\":\"#/$defs/A\",\"$defs\":{\"A\":{\"$ref\":\"#/$defs/B\"},\"B\":{\"$ref\":\"#/$defs/A\"}}}", MTX_EFORMAT, "back to itself"},
      {"{\"anyOf\":[{\"$ref\":\"#\"}]}", MTX_EFORMAT, "nothing can match"},
      {"{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", MTX_EFORMAT, "back to itself"},
      {"{\"$ref\":\"https://example.org/s.json\"}", MTX_EUNSUPPORTED, "another document"},
      {"{\"$ref\":\"#/$defs/none\"}", MTX_ENOTFOUND, "points to nothing"},
      {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", MTX_EFORMAT, "nothing can match"},
      {"{\"type\":\"string\",\"minLength\":5,\"maxLength\":4}", MTX_EFORMAT, "nothing can match"},
      {"{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", MTX_EFORMAT, "nothing can match"},
      {"{\"type\":\"array\",\"minItems\":-1}", MTX_EFORMAT, "minItems"},
      {"{\"type\":\"array\",\"items\":{\"enum\":[]},\"uniqueItems\":true,\"minItems\":1}", MTX_EFORMAT, "nothing can match"},
      // T87
      {"{\"type\":\"string\",\"pattern\":\"*a\"}", MTX_EFORMAT, "position 0"},
      {"{\"type\":\"string\",\"pattern\":\"(?<=x)*\"}", MTX_EUNSUPPORTED, "look-around"},
      {"{\"type\":\"string\",\"pattern\":\"a{3,1}\"}", MTX_EFORMAT, "position 1"},
      {"{\"type\":\"string\",\"pattern\":\"[z-a]\"}", MTX_EFORMAT, "position 1"},
      {"{\"type\":\"string\",\"pattern\":\"(\"}", MTX_EFORMAT, "position 0"},
      {"{\"type\":\"string\",\"pattern\":\"\\\\\"}", MTX_EFORMAT, "position 0"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    mtx_grammar *g = NULL;
    mtx_err err;
    mtx_code code = compile(cases[i].schema, false, &g, &err);
    CHECK(code == cases[i].code && !g && strstr(err.msg, cases[i].part), "%s: %d %s", cases[i].schema, code, err.msg);
    mtx_grammar_unref(g);
  }
}

static void test_unenforced(void) {
  static const char *const cases[][2] = {
      {"{\"type\":\"array\",\"uniqueItems\":true}", "uniqueItems"},
      {"{\"type\":\"object\",\"not\":{\"additionalProperties\":false}}", "not"},
      {"{\"type\":\"array\",\"not\":{\"const\":[1]}}", "not"},
      {"{\"type\":\"array\",\"items\":{\"type\":\"object\"},\"contains\":{\"additionalProperties\":false},\"maxContains\":2}", "maxContains"},
      {"{\"type\":\"array\",\"contains\":{\"const\":1},\"minContains\":500}", "contains"},
      {"{\"type\":\"object\",\"if\":{\"additionalProperties\":false},\"then\":{\"maxProperties\":0}}", "if"},
      {"{\"type\":\"object\",\"oneOf\":[{\"additionalProperties\":{\"type\":\"string\"}},{\"additionalProperties\":{\"minimum\":1}}]}", "oneOf"},
      {"{\"type\":\"string\",\"format\":\"colour\"}", "format"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    mtx_grammar *g = NULL;
    mtx_err err;
    CHECK(!compile(cases[i][0], false, &g, &err), "%s: %s", cases[i][0], err.msg);
    if (g) CHECK(mtx_grammar_n_warnings(g) == 1 && strstr(mtx_grammar_get_warning(g, 0), cases[i][1]), "%s", cases[i][0]);
    mtx_grammar_unref(g);
    g = NULL;
    CHECK(compile(cases[i][0], true, &g, &err) == MTX_EUNSUPPORTED && strstr(err.msg, cases[i][1]), "strict %s: %s", cases[i][0], err.msg);
    mtx_grammar_unref(g);
  }
}

// What is required, and so comes in order, is what the schema requires whatever comes.
static void test_conditions_keep_no_order(void) {
  static const char schema[] = "{\"type\":\"object\",\"properties\":{\"kind\":{\"enum\":[\"a\",\"b\"]},\"size\":{\"type\":\"integer\"},\"note\":{\"type\":\"integer\"}},"
                               "\"required\":[\"kind\",\"note\"],\"if\":{\"properties\":{\"kind\":{\"const\":\"a\"}}},\"then\":{\"required\":[\"size\"]},\"additionalProperties\":false}";
  static const char *const cases[][2] = {
      {"{\"kind\":\"a\",\"note\":1,\"size\":2}", "complete"}, {"{\"size\":2,\"kind\":\"a\",\"note\":1}", "complete"},
      {"{\"kind\":\"b\",\"note\":1}", "complete"},            {"{\"note\":1,\"kind\":\"b\"}", "no"},
      {"{\"kind\":\"a\",\"note\":1}", "no"}};
  mtx_grammar *g = NULL;
  mtx_err err;
  CHECK(!compile(schema, true, &g, &err), "%s", err.msg);
  for (size_t i = 0; g && i < sizeof cases / sizeof *cases; i++) CHECK(!strcmp(match(g, cases[i][0]), cases[i][1]), "%s", cases[i][0]);
  mtx_grammar_unref(g);
}

// ---- limits ---------------------------------------------------------------------------------

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

// The size bound is exact; the time is printed, a busy machine proves nothing.
static void bounded(const char *name, const char *schema) {
  mtx_grammar *g = NULL;
  mtx_err err;
  double t = now_ms();
  mtx_code code = compile(schema, false, &g, &err);
  t = now_ms() - t;
  CHECK(!code || code == MTX_ELIMIT || code == MTX_EFORMAT, "%s: %s", name, err.msg);
  if (g) CHECK(mtx_grammar_size_bytes(g) < 50u << 20, "%s: %zu bytes", name, mtx_grammar_size_bytes(g));
  printf("%-24s %7.1f ms %9zu bytes %s\n", name, t, g ? mtx_grammar_size_bytes(g) : 0, code ? err.msg : "");
  mtx_grammar_unref(g);
}

static char *repeat(const char *head, const char *part, int n, const char *between, const char *tail) {
  size_t cap = strlen(head) + strlen(tail) + (size_t)n * (strlen(part) + strlen(between) + 12) + 1, at;
  char *s = malloc(cap);
  at = (size_t)snprintf(s, cap, "%s", head);
  for (int i = 0; i < n; i++) {
    if (i) at += (size_t)snprintf(s + at, cap - at, "%s", between);
    at += (size_t)snprintf(s + at, cap - at, part, i);
  }
  snprintf(s + at, cap - at, "%s", tail);
  return s;
}

static void test_bounds(void) {
  char *s = repeat("{\"anyOf\":[", "{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"tool%d\"},\"arguments\":{\"type\":\"object\",\"properties\":"
                   "{\"o\":{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\",\"maxLength\":10000}},\"required\":[\"text\"]}}}},"
                   "\"required\":[\"name\",\"arguments\"]}", 32, ",", "]}");
  mtx_grammar *g = NULL;
  mtx_err err;
  CHECK(!compile(s, false, &g, &err), "T88: %s", err.msg);
  if (g) CHECK(!strcmp(match(g, "{\"name\": \"tool31\", \"arguments\": {\"o\": {\"text\": \"abc\"}}}"), "complete"));
  mtx_grammar_unref(g);
  bounded("32 tools (T88)", s);
  free(s);
  s = repeat("{\"enum\":[", "%d", 500000, ",", "]}");
  bounded("500,000 enum values", s);
  free(s);
  s = repeat("{\"enum\":[", "\"value number %d\"", 20000, ",", "]}");
  bounded("20,000 enum strings", s);
  free(s);
  s = repeat("{\"type\":\"object\",\"properties\":{", "\"key%d\":{\"type\":\"string\"}", 1500, ",", "}}");
  bounded("1,500 properties", s);
  free(s);
  char *open = repeat("", "{\"type\":\"array\",\"minItems\":1000000,\"maxItems\":100000000,\"items\":", 60, "", "{}");
  char *closing = repeat("", "}", 60, "", "");
  s = repeat(open, "%s", 0, "", closing);
  bounded("nested huge arrays", s);
  free(s);
  free(open);
  free(closing);
  s = repeat("", "{\"items\":", 3000, "", "");
  bounded("deep nesting", s);
  free(s);
  s = repeat("{\"allOf\":[", "{\"anyOf\":[{\"required\":[\"a%d\"]},{\"required\":[\"b\"]}]}", 24, ",", "],\"type\":\"object\"}");
  bounded("2^24 alternatives", s);
  free(s);
  bounded("pattern bomb", "{\"type\":\"string\",\"pattern\":\"(((a{1,100}){1,100}){1,100}){1,100}\"}");
  bounded("pattern bomb, anchored", "{\"type\":\"string\",\"pattern\":\"^(((a{1,100}){1,100}){1,100}){1,100}$\"}");
  bounded("subset bomb", "{\"type\":\"string\",\"pattern\":\"(a|b)*a(a|b){18}\"}");
}

// Conditions that make too many cases are warned of; the rest of the schema is held to.
static void test_many_cases(void) {
  static const char *const parts[][2] = {
      {"{\"if\":{\"required\":[\"a%d\"]},\"then\":{\"required\":[\"b\"]}}", "if"},
      {"{\"not\":{\"required\":[\"a%d\",\"b\"]}}", "not"},
      {"{\"oneOf\":[{\"required\":[\"a%d\"]},{\"required\":[\"b\"]}]}", "oneOf"},
      {"{\"dependentSchemas\":{\"a%d\":{\"required\":[\"b\"]}}}", "dependentSchemas"}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    char *s = repeat("{\"type\":\"object\",\"properties\":{\"b\":{\"const\":1}},\"allOf\":[", parts[i][0], i == 2 ? 7 : 24, ",", "]}");
    mtx_grammar *g = NULL;
    mtx_err err;
    double t = now_ms();
    CHECK(!compile(s, false, &g, &err), "%s: %s", parts[i][1], err.msg);
    printf("%-24s %7.1f ms %9zu bytes %zu warnings\n", parts[i][1], now_ms() - t, g ? mtx_grammar_size_bytes(g) : 0, g ? mtx_grammar_n_warnings(g) : 0);
    if (g) {
      bool named = false;
      for (size_t w = 0; w < mtx_grammar_n_warnings(g); w++) named |= !strncmp(mtx_grammar_get_warning(g, w), parts[i][1], strlen(parts[i][1]));
      CHECK(named || i == 2, "%s", s);
      CHECK(mtx_grammar_size_bytes(g) < 50u << 20);
      CHECK(!strcmp(match(g, "{\"b\":2"), "no"));
    }
    mtx_grammar_unref(g);
    free(s);
  }
}

// Conditions of an object with very many keys: it is compiled without them rather than not at all.
static void test_too_large_with_cases(void) {
  char *props = repeat("{\"type\":\"object\",\"properties\":{\"kind\":{\"type\":\"string\"}", ",\"key%d\":{\"type\":\"string\"}", 1500, "", "},\"required\":[\"kind\"],\"allOf\":[");
  char *s = repeat(props, "{\"if\":{\"properties\":{\"kind\":{\"const\":\"k%d\"}}},\"then\":{\"required\":[\"key7\"]}}", 50, ",", "]}");
  mtx_grammar *g = NULL;
  mtx_err err;
  double t = now_ms();
  CHECK(!compile(s, false, &g, &err), "%s", err.msg);
  printf("%-24s %7.1f ms %9zu bytes\n", "too large with cases", now_ms() - t, g ? mtx_grammar_size_bytes(g) : 0);
  if (g) CHECK(mtx_grammar_n_warnings(g) && !strncmp(mtx_grammar_get_warning(g, 0), "if", 2) && strstr(mtx_grammar_get_warning(g, 0), "too large"), "%s",
               mtx_grammar_n_warnings(g) ? mtx_grammar_get_warning(g, 0) : "no warning");
  if (g) CHECK(!strcmp(match(g, "{\"kind\":\"k1\",\"key3\":\"\"}"), "complete"));
  mtx_grammar_unref(g);
  free(s);
  free(props);
}

static size_t size_of(const char *schema) {
  mtx_grammar *g = NULL;
  mtx_err err;
  CHECK(!compile(schema, false, &g, &err), "%s: %s", schema, err.msg);
  size_t n = g ? mtx_grammar_size_bytes(g) : 0;
  mtx_grammar_unref(g);
  return n;
}

// Counts are counted, not written out: a thousand times as many need no byte more.
static void test_counts_are_not_unrolled(void) {
  static const char *const pairs[][2] = {
      {"{\"type\":\"string\",\"maxLength\":1000}", "{\"type\":\"string\",\"maxLength\":1000000}"},
      {"{\"type\":\"string\",\"minLength\":1000}", "{\"type\":\"string\",\"minLength\":1000000}"},
      {"{\"type\":\"array\",\"minItems\":100,\"maxItems\":1000}", "{\"type\":\"array\",\"minItems\":100000,\"maxItems\":1000000}"},
      {"{\"type\":\"string\",\"pattern\":\"^[a-z]{1,900}$\"}", "{\"type\":\"string\",\"pattern\":\"^[a-z]{1,900000}$\"}"},
      {"{\"type\":\"string\",\"pattern\":\"^[A-Z][a-z_]*$\",\"maxLength\":100}", "{\"type\":\"string\",\"pattern\":\"^[A-Z][a-z_]*$\",\"maxLength\":1000000}"},
      {"{\"type\":\"string\",\"pattern\":\"a\",\"minLength\":100}", "{\"type\":\"string\",\"pattern\":\"a\",\"minLength\":1000000}"},
      {"{\"type\":\"object\",\"maxProperties\":50}", "{\"type\":\"object\",\"maxProperties\":50000}"},
  };
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) CHECK(size_of(pairs[i][0]) == size_of(pairs[i][1]), "%s", pairs[i][1]);
}

// ---- the walker -----------------------------------------------------------------------------------

#define N_VOCAB 900
static char *pieces[N_VOCAB];
static uint32_t lens[N_VOCAB];
static uint8_t flags[N_VOCAB];
static uint64_t rng = 88172645463325252u;

static uint32_t rnd(uint32_t n) {
  rng ^= rng << 13;
  rng ^= rng >> 7;
  rng ^= rng << 17;
  return (uint32_t)((rng >> 11) % n);
}

static mtx_vocab_trie *make_trie(void) {
  static const char alphabet[] = "abcxyz{}[]\":,\\nu0123456789 -+.eE_@tf";
  for (uint32_t i = 0; i < N_VOCAB; i++) {
    lens[i] = i < 256 ? 1 : 2 + rnd(3);
    pieces[i] = malloc(8);
    for (uint32_t k = 0; k < lens[i]; k++) pieces[i][k] = i < 256 ? (char)i : alphabet[rnd(sizeof alphabet - 1)];
  }
  flags[N_VOCAB - 1] = MTX_TRIE_EOG;
  mtx_vocab_trie *t = NULL;
  mtx_err err;
  return mtx_vocab_trie_new((const char *const *)pieces, lens, flags, N_VOCAB, &t, &err) ? NULL : t;
}

// After `patience` tokens whatever ends the text soonest is preferred.
static uint32_t choose(const uint64_t *bits, int step, int patience) {
  static const char *const closing = "}]", *const digits = "0123456789----";
  uint32_t allowed[N_VOCAB], n = 0;
  for (uint32_t i = 0; i < N_VOCAB; i++)
    if (bits[i >> 6] >> (i & 63) & 1) allowed[n++] = i;
  if (!n) return UINT32_MAX;
  const uint32_t eog = N_VOCAB - 1;
  if ((bits[eog >> 6] >> (eog & 63) & 1) && (step > patience || rnd(4) == 0)) return eog;
  if (step <= patience) return allowed[rnd(n)];
  if (step % 32 == 16 && bits[1] >> ('_' & 63) & 1) return '_';
  if (step % 32 == 17 && bits[1] >> ('s' & 63) & 1) return 's';
  if (!rnd(6) && bits[1] >> ('a' & 63) & 1) return 'a';  // the required key of some tests
  if (bits[0] >> '"' & 1) return '"';
  if (step % 32 == 0 && bits[1] & 1) return '@';  // bit 64
  if (step % 32 == 8 && bits[0] >> '.' & 1) return '.';
  uint32_t digit = (uint8_t)digits[rnd(14)];  // what the patterns of the tests wait for
  if (rnd(8) && bits[0] >> digit & 1) return digit;
  for (const char *p = closing; *p; p++)
    if (bits[(uint8_t)*p >> 6] >> (*p & 63) & 1) return (uint8_t)*p;
  return allowed[rnd(n)];
}

static int walk(int n_walks, mtx_json_ws ws) {
  const mtx_schema_opts opts = {.ws = ws, .open_keys = true};
  static char line[1 << 20];
  mtx_vocab_trie *t = make_trie();
  for (int i = 0; t && fgets(line, sizeof line, stdin); i++) {
    mtx_grammar *g = NULL;
    mtx_err err;
    line[strcspn(line, "\n")] = 0;
    if (mtx_grammar_compile_json_schema(line, strlen(line), &opts, &g, &err)) {
      printf("\x1e" "%d\terror: %s\n", i, err.msg);
      continue;
    }
    for (int w = 0; w < n_walks; w++) {
      uint64_t bits[(N_VOCAB + 63) / 64];
      char text[60000];
      size_t n = 0;
      mtx_matcher *m = NULL;
      bool done = false;
      const int patience = (int)rnd(60);
      if (mtx_matcher_new(g, t, NULL, &m, &err)) return 1;
      for (int step = 0; step < 12000 && !done && n < sizeof text - 8; step++) {
        uint32_t id = mtx_matcher_mask(m, bits, &err) ? UINT32_MAX : choose(bits, step, patience);
        if (id == UINT32_MAX || mtx_matcher_accept_token(m, id, &err)) break;
        done = id == N_VOCAB - 1;
        if (!done) memcpy(text + n, pieces[id], lens[id]), n += lens[id];
      }
      printf("\x1e" "%d\t", i);
      if (done)
        fwrite(text, 1, n, stdout);
      else
        printf("error: not finished: %.*s", (int)(n < 200 ? n : 200), text);
      putchar('\n');
      mtx_matcher_free(m);
    }
    mtx_grammar_unref(g);
  }
  mtx_vocab_trie_unref(t);
  for (int i = 0; i < N_VOCAB; i++) free(pieces[i]);
  return 0;
}

static int match_lines(void) {
  static char line[1 << 20], last[1 << 20];
  mtx_grammar *g = NULL;
  mtx_err err;
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = 0;
    char *text = strchr(line, '\t');
    if (!text) return 1;
    *text++ = 0;
    if (!g || strcmp(line, last)) {
      mtx_grammar_unref(g);
      g = NULL;
      strcpy(last, line);
      const mtx_schema_opts opts = {.open_keys = true};
      if (mtx_grammar_compile_json_schema(line, strlen(line), &opts, &g, &err)) {
        printf("error: %s\n", err.msg);
        continue;
      }
    }
    puts(match(g, text));
  }
  mtx_grammar_unref(g);
  return 0;
}

int main(int argc, char **argv) {
  if (argc > 2 && !strcmp(argv[1], "walk")) return walk(atoi(argv[2]), argc > 3 ? (mtx_json_ws)atoi(argv[3]) : MTX_WS_SPACE);
  if (argc > 1 && !strcmp(argv[1], "match")) return match_lines();
  test_texts();
  test_refused();
  test_unenforced();
  test_conditions_keep_no_order();
  test_many_cases();
  test_too_large_with_cases();
  test_bounds();
  test_counts_are_not_unrolled();
  return check_report();
}
