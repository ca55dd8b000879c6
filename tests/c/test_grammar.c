// SPDX-License-Identifier: MIT
// Grammars without Lua: what texts a GBNF grammar takes, and that token masks
// are exact. The mask's oracle is the definition: a token is allowed if and
// only if feeding its bytes to a copy of the matcher succeeds.
#include <pthread.h>
#include <stdlib.h>

#include "check.h"
#include "grammar/grammar.h"
#include "grammar/mask.h"

static mtx_grammar *gbnf(const char *text) {
  mtx_err err = {0};
  mtx_grammar *g = NULL;
  mtx_grammar_compile_gbnf(text, strlen(text), &g, &err);
  CHECK(g, "%s: %s", text, err.msg);
  return g;
}

// 2: a whole text, 1: a prefix of one, 0: not, at *pos
static int match(mtx_grammar *g, const char *text, size_t n, size_t *pos) {
  mtx_matcher *m = NULL;
  mtx_err err;
  size_t n_ok = 0;
  CHECK(!mtx_matcher_new(g, NULL, NULL, &m, &err));
  mtx_code code = mtx_matcher_accept_bytes(m, text, n, &n_ok, &err);
  int r = code ? 0 : mtx_matcher_complete(m) ? 2 : 1;
  CHECK(!code || code == MTX_EINVAL, "%s", err.msg);
  if (pos) *pos = n_ok;
  mtx_matcher_free(m);
  return r;
}

typedef struct {
  const char *grammar, *text;
  int result;
} text_case;

static void test_gbnf_texts(void) {
  static const text_case cases[] = {
      {"root ::= \"ab\" | \"cd\"", "ab", 2},
      {"root ::= \"ab\" | \"cd\"", "c", 1},
      {"root ::= \"ab\" | \"cd\"", "ac", 0},
      {"root ::= \"\"", "", 2},
      {"root ::= \"\"", "x", 0},
      {"root ::= [a-c]+ # comment\n", "abcabc", 2},
      {"root ::= [^a-c]", "d", 2},
      {"root ::= [^a-c]", "b", 0},
      {"root ::= [^a-c]", "\xc3\xa9", 2},
      {"root ::= [^a-c]", "\xc3", 1},
      {"root ::= [^a-c]", "\xff", 0},
      {"root ::= .", "\xf0\x9f\x98\x80", 2},
      {"root ::= .", "\xed\xa0\x80", 0},  // a surrogate is no code point
      {"root ::= .", "\n", 2},
      {"root ::= [\\x41-\\x43\\u00e9\\U0001F600]", "\xf0\x9f\x98\x80", 2},
      {"root ::= [ぁ-ゟ]+", "ひらがな", 2},
      {"root ::= \"a\\\"\\\\\\n\\t\"", "a\"\\\n\t", 2},
      {"root ::= [a\\]\\-]+", "a]-", 2},
      {"root ::= [a-]+", "-a-", 2},
      {"root ::= \"x\"{3}", "xxx", 2},
      {"root ::= \"x\"{3}", "xxxx", 0},
      {"root ::= \"x\"{2,}", "x", 1},
      {"root ::= \"x\"{2,}", "xxxxx", 2},
      {"root ::= \"x\"{1,200}", "", 1},
      {"root ::= (\"ab\" | \"c\"){2,100} \"d\"", "abcd", 2},
      {"root ::= (\"ab\" | \"c\"){2,100} \"d\"", "cd", 0},
      {"root ::= ( \"a\"?){3,90} \"b\"", "b", 2},
      {"root ::= ( \"a\"?){3,90} \"b\"", "aab", 2},
      {"root ::= (\"a\" | \"aa\"){100,200} \"b\"", "aab", 0},
      {"root ::= \"a\" (\n \"b\" # inside\n | \"c\"\n)\n", "ac", 2},
      {"root ::= \"a\" |\n \"b\"\nx ::= \"unused\"", "b", 2},
      {"root ::= item item*\nitem ::= \"- \" [^\\n]+ \"\\n\"", "- one\n- two\n", 2},
      {"root ::= list\nlist ::= \"[\" (list (\",\" list)*)? \"]\"", "[[],[[]]]", 2},
      {"root ::= list\nlist ::= \"[\" (list (\",\" list)*)? \"]\"", "[[],", 1},
      {"root ::= list\nlist ::= \"[\" (list (\",\" list)*)? \"]\"", "[]]", 0},
      {"root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"\"", "aaaaaaaaaaaaaaaaaaaabcbcbcbcbcbcbcbcbcbc", 2},
      {"root ::= UPPER-Case_1\nUPPER-Case_1 ::= \"k\"", "k", 2},
      {"root ::= (a+)* \"!\"\na ::= \"a\"", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!", 2},
      {"root ::= e\ne ::= t (\"+\" t)*\nt ::= [0-9]+ | \"(\" e \")\"", "1+(2+3)+45", 2},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    mtx_grammar *g = gbnf(cases[i].grammar);
    if (!g) continue;
    int r = match(g, cases[i].text, strlen(cases[i].text), NULL);
    CHECK(r == cases[i].result, "%s on %s: %d", cases[i].grammar, cases[i].text, r);
    mtx_grammar_unref(g);
  }
}

static void test_gbnf_refused(void) {
  static const struct {
    const char *text, *part;
  } cases[] = {
      {"", "no rule named root"},
      {"x ::= \"a\"", "no rule named root"},
      {"root ::= nothere", "nothere is used but not defined"},
      {"root ::= \"a", "no closing quote"},
      {"root ::= [a", "no closing bracket"},
      {"root ::= (\"a\"", "no closing parenthesis"},
      {"root ::= *", "nothing before"},
      {"root ::= \"a\" | +", "nothing before"},
      {"root ::= \"a\"{3,1}", "below its minimum"},
      {"root ::= \"a\"{x}", "{m}, {m,}"},
      {"root ::= \"a\"{99999999999}", "too large"},
      {"root ::= [z-a]", "backwards"},
      {"root ::= \"\\q\"", "unknown escape"},
      {"root ::= \"\\x4\"", "hexadecimal"},
      {"root ::= \"a\" )", "unexpected character"},
      {"root = \"a\"", "::="},
      {"::= \"a\"", "name"},
      {"root ::= root \"a\" | \"b\"", "left-recursive"},
      {"root ::= a\na ::= \"x\"? b\nb ::= a \"y\" | \"z\"", "left-recursive"},
      {"root ::= \"a\" root", "nothing can match"},
      {"root ::= \"a\"\nroot ::= \"b\"", "defined twice"},
      {"root ::= <[12]", "<[123]>"},
      {"root ::= !\"a\"", "'!'"},
      {"root ::= \"\xff\"", "UTF-8"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    mtx_err err = {0};
    mtx_grammar *g = NULL;
    mtx_code code = mtx_grammar_compile_gbnf(cases[i].text, strlen(cases[i].text), &g, &err);
    CHECK(code && !g && strstr(err.msg, cases[i].part), "%s: %d %s", cases[i].text, code, err.msg);
    mtx_grammar_unref(g);
  }
}

// ---- masks against their definition --------------------------------------------------

static uint64_t rng = 88172645463325252u;
static uint32_t rnd(uint32_t n) {
  rng ^= rng << 13;
  rng ^= rng >> 7;
  rng ^= rng << 17;
  return (uint32_t)((rng >> 11) % n);
}

#define N_VOCAB 1500
static char *pieces[N_VOCAB];
static uint32_t lens[N_VOCAB];
static uint8_t flags[N_VOCAB];
enum { TOK_EOG = 256, TOK_THINK, TOK_END_THINK };

static mtx_vocab_trie *make_trie(void) {
  static const char *const seeds[] = {
      "{\"", "\":", "\", \"", "\"}", "},", "\",", "[[", "]]", "],[", "aaaa", "aab", "ab", "abc", "\"a", "\"abc\":",
      "true", "false", "null", "- ", "\n- ", "one\n", "12", "345", "6+7", ")+(", "((", "))", "\xc3\xa9", "\xc3",
      "\xa9x", "\xe3\x81\xb2", "\xe3\x81", "\xb2\xe3", "\\n", "\\u00", "x\\", "nn", "  ", "name", "value\"", "end</think>",
      "</think>{", "</thi", "nk>", "nk>\n{\"", "think", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
  uint32_t n = 0;
  for (; n < 256; n++) {
    pieces[n] = malloc(1);
    pieces[n][0] = (char)n;
    lens[n] = 1;
  }
  static const char *const control[] = {"<eos>", "<think>", "</think>"};
  for (int i = 0; i < 3; i++, n++) {
    pieces[n] = strdup(control[i]);
    lens[n] = (uint32_t)strlen(control[i]);
    flags[n] = i == 0 ? MTX_TRIE_EOG : MTX_TRIE_CONTROL;
  }
  for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++, n++) {
    pieces[n] = strdup(seeds[i]);
    lens[n] = (uint32_t)strlen(seeds[i]);
  }
  static const char alphabet[] = "abcx{}[]\":,\\n0123 -+()\n";
  for (; n < N_VOCAB; n++) {
    lens[n] = 2 + rnd(4);
    pieces[n] = malloc(lens[n]);
    for (uint32_t k = 0; k < lens[n]; k++) pieces[n][k] = alphabet[rnd(sizeof alphabet - 1)];
  }
  mtx_vocab_trie *t = NULL;
  mtx_err err;
  CHECK(!mtx_vocab_trie_new((const char *const *)pieces, lens, flags, N_VOCAB, &t, &err));
  return t;
}

// A matcher that has taken the n tokens.
static mtx_matcher *replay(mtx_grammar *g, mtx_vocab_trie *t, const mtx_matcher_opts *opts, const uint32_t *taken, int n) {
  mtx_matcher *m = NULL;
  mtx_err err;
  bool ok = !mtx_matcher_new(g, t, opts, &m, &err);
  for (int i = 0; i < n && ok; i++) ok = !mtx_matcher_accept_token(m, taken[i], &err);
  if (!ok) CHECK(false, "%s", err.msg);
  return m;
}

// Random walks; at each step the whole mask is compared with the definition.
static void walk(mtx_grammar *g, mtx_vocab_trie *t, const mtx_matcher_opts *opts, int n_walks, int n_steps,
                 const char *name) {
  uint64_t bits[(N_VOCAB + 63) / 64];
  uint32_t taken[64];
  for (int w = 0; w < n_walks; w++) {
    mtx_matcher *m = replay(g, t, opts, NULL, 0), *trial = replay(g, t, opts, NULL, 0);
    mtx_err err;
    if (!m || !trial) return;
    for (int s = 0; s < n_steps; s++) {
      CHECK(!mtx_matcher_mask(m, bits, &err), "%s: %s", name, err.msg);
      uint32_t allowed[N_VOCAB], n = 0, n_wrong = 0, wrong = 0;
      for (uint32_t i = 0; i < N_VOCAB; i++) {
        bool in_mask = bits[i >> 6] >> (i & 63) & 1;
        bool accepted = !mtx_matcher_accept_token(trial, i, &err);  // a refused one leaves it as it was
        if (accepted) mtx_matcher_free(trial), trial = replay(g, t, opts, taken, s);
        if (in_mask != accepted) n_wrong++, wrong = i;
        if (in_mask) allowed[n++] = i;
      }
      CHECK(!n_wrong, "%s: %u tokens wrong, one is %u (%.*s)", name, n_wrong, wrong, (int)lens[wrong], pieces[wrong]);
      CHECK(n > 0, "%s: dead end", name);
      if (!n || n_wrong) break;
      uint32_t id = allowed[rnd(n)];
      // long tokens reach more states than single letters
      for (int k = 0; k < 3 && lens[id] < 2; k++) id = allowed[rnd(n)];
      CHECK(!mtx_matcher_accept_token(m, id, &err));
      CHECK(!mtx_matcher_accept_token(trial, id, &err));
      taken[s] = id;
      if (id == TOK_EOG) break;
    }
    mtx_matcher_free(trial);
    mtx_matcher_free(m);
  }
}

static void test_masks(mtx_vocab_trie *t) {
  static const char *const grammars[] = {
      "root ::= [a-c]+",
      "root ::= \"\\\"\" ([^\"\\\\] | \"\\\\\" [n\"])* \"\\\"\"",
      "root ::= \"\\\"\" ([^\"\\\\] | \"\\\\\" [n\"]){3,60} \"\\\"\" [,}]",
      "root ::= ([a-c] | \"\\\\\" [n\"]){0,5000} \"x\"",
      "root ::= list\nlist ::= \"[\" (list (\",\" list)*)? \"]\"",
      "root ::= e\ne ::= t (\"+\" t)*\nt ::= [0-9]+ | \"(\" e \")\"",
      "root ::= v\nv ::= o | a | s | n\no ::= \"{\" (s \":\" v (\",\" s \":\" v)*)? \"}\"\na ::= \"[\" (v (\",\" v){0,70})? \"]\"\n"
      "s ::= \"\\\"\" [^\"\\\\\\x00-\\x1f]* \"\\\"\"\nn ::= [0-9]{1,90}",
      "root ::= (\"a\" | \"ab\" | \"abc\" | \"bc\"){2,80} \"x\"",
      "root ::= ([a-c]{1,70} \",\"){1,100} \"x\"",
      "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"\"",
      "root ::= <think> !</think>{0,5} </think> \"{\" .* | !<[97]> \"x\"",
      "root ::= [^a]* \"\xc3\xa9\" [ぁ-ゟ]*",
      "root ::= .{0,60}",
  };
  for (size_t i = 0; i < sizeof grammars / sizeof *grammars; i++) {
    mtx_grammar *g = gbnf(grammars[i]);
    if (g) walk(g, t, NULL, 6, 14, grammars[i]);
    mtx_grammar_unref(g);
  }
}

// Leaves, "any key but these", counted and patterned strings; twice, since the
// second grammar of a vocabulary finds what the first has left.
static void test_schema_masks(mtx_vocab_trie *t) {
  static const char *const schemas[] = {
      "true",
      "{\"type\":\"object\",\"properties\":{\"abc\":{\"type\":\"string\"},\"ab\":{\"type\":\"string\",\"maxLength\":7}},\"required\":[\"ab\"]}",
      "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"propertyNames\":{\"maxLength\":5},\"additionalProperties\":{\"type\":\"number\"}}",
      "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":3,\"maxLength\":40},\"minItems\":2,\"maxItems\":30}",
      "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"a[bc]{2}0\"}}",
      "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^[a-c0-9_-]{1,64}$\"}}",
      "{\"anyOf\":[{\"type\":\"string\",\"pattern\":\"^ab\"},{\"type\":\"integer\"},{\"enum\":[\"abc\",\"aaaa\"]}]}",
      "{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[\"b\",\"c\"]},\"b\":{\"type\":\"string\"}},\"required\":[\"a\"],\"additionalProperties\":false,"
      "\"if\":{\"properties\":{\"a\":{\"const\":\"b\"}}},\"then\":{\"required\":[\"b\"]},\"else\":{\"not\":{\"required\":[\"b\"]}}}",
      "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2},\"c\":{\"const\":3},\"ab\":{\"const\":4}},\"maxProperties\":3,\"additionalProperties\":false,"
      "\"dependentRequired\":{\"a\":[\"b\"],\"b\":[\"c\"],\"ab\":[\"a\"]}}",
      "{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"ab\",\"abc\",\"b\"]},\"uniqueItems\":true,\"minItems\":2,\"maxItems\":3}",
      "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"not\":{\"enum\":[\"ab\",\"abc\"]}},\"contains\":{\"const\":\"a\"},\"minContains\":2,\"maxItems\":4}",
      "{\"type\":\"string\",\"format\":\"hostname\"}",
      // texts that are counted while they are written, in a loop and beside others
      "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^(?:[ab]+(?:c[ab]+)*)?$\",\"maxLength\":20},\"minItems\":2,\"maxItems\":30}",
      "{\"type\":\"string\",\"pattern\":\"^[^a]a\",\"minLength\":7,\"maxLength\":11}",
      "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"not\":{\"pattern\":\"ab|\\u00e9b\"},\"minLength\":20}}",
      "{\"anyOf\":[{\"type\":\"string\",\"pattern\":\"^(?:ab)+$\",\"maxLength\":40},{\"type\":\"string\",\"pattern\":\"\\n\",\"minLength\":9,\"maxLength\":15}]}",
  };
  for (size_t i = 0; i < 2 * (sizeof schemas / sizeof *schemas); i++) {
    const char *schema = schemas[i / 2];
    mtx_grammar *g = NULL;
    mtx_err err;
    CHECK(!mtx_grammar_compile_json_schema(schema, strlen(schema), NULL, &g, &err), "%s: %s", schema, err.msg);
    if (g) walk(g, t, NULL, 6, 16, schema);
    mtx_grammar_unref(g);
  }
}

// Strings as plain text up to a tag.
static void test_text_masks(mtx_vocab_trie *t) {
  static const char *const schemas[] = {"{\"type\":\"string\",\"maxLength\":12}", "{\"minLength\":9}", "{\"pattern\":\"^a*[bc]\"}", "{\"type\":\"string\"}",
                                        "{\"pattern\":\"b\",\"maxLength\":14}", "{\"not\":{\"enum\":[\"\",\"ab\",\"a\"]},\"maxLength\":3}"};
  for (size_t i = 0; i < 2 * (sizeof schemas / sizeof *schemas); i++) {
    const char *schema = schemas[i / 2], *root = i & 1 ? "root ::= (text \"aca\"){1,3}" : "root ::= \"a\" text \"\\\"\"";
    const mtx_schema_rule rule = {.name = "text", .name_len = 4, .text = schema, .len = strlen(schema), .as_text = true, .stop = "aca", .stop_len = i & 1 ? 3 : 0};
    mtx_grammar *g = NULL;
    mtx_err err;
    CHECK(!mtx_grammar_compile_mixed(root, strlen(root), &rule, 1, NULL, &g, &err), "%s: %s", schema, err.msg);
    if (g) walk(g, t, NULL, 6, 16, schema);
    mtx_grammar_unref(g);
  }
}

static bool has(const uint64_t *bits, uint32_t id) { return bits[id >> 6] >> (id & 63) & 1; }

static void test_triggers(mtx_vocab_trie *t) {
  mtx_grammar *g = gbnf("root ::= \"{\\\"\" [a-c]+ \"\\\"}\"");
  const char *triggers[] = {"</think>", "ab"};
  size_t trigger_lens[] = {8, 2};
  mtx_matcher_opts opts = {.triggers = triggers, .trigger_lens = trigger_lens, .n_triggers = 1};
  walk(g, t, &opts, 4, 20, "</think>");
  opts.n_triggers = 2;
  opts.skip_ws = opts.trigger_optional = true;
  walk(g, t, &opts, 10, 20, "</think> or ab");

  opts.n_triggers = 1;
  opts.trigger_optional = false;
  mtx_matcher *m = NULL;
  mtx_err err;
  size_t n_ok;
  uint64_t bits[(N_VOCAB + 63) / 64];
  CHECK(!mtx_matcher_new(g, t, &opts, &m, &err));
  CHECK(mtx_matcher_waiting(m) && !mtx_matcher_complete(m));
  CHECK(!mtx_matcher_accept_bytes(m, "some thought </thi", 18, NULL, &err) && mtx_matcher_waiting(m));
  CHECK(mtx_matcher_accept_token(m, TOK_EOG, &err) == MTX_EINVAL);
  CHECK(!mtx_matcher_accept_bytes(m, "nk", 2, NULL, &err));
  CHECK(!mtx_matcher_mask(m, bits, &err) && bits['z' / 64] >> ('z' % 64) & 1);
  CHECK(!mtx_matcher_accept_bytes(m, ">\n\n{\"a", 6, NULL, &err) && !mtx_matcher_waiting(m));
  CHECK(!mtx_matcher_mask(m, bits, &err) && !(bits['z' / 64] >> ('z' % 64) & 1) && bits['b' / 64] >> ('b' % 64) & 1);
  CHECK(mtx_matcher_accept_bytes(m, "bz", 2, &n_ok, &err) == MTX_EINVAL && n_ok == 1);
  CHECK(!mtx_matcher_accept_bytes(m, "\"}", 2, NULL, &err) && mtx_matcher_complete(m));
  CHECK(!mtx_matcher_accept_token(m, TOK_EOG, &err));
  CHECK(mtx_matcher_accept_token(m, 'a', &err) == MTX_EINVAL);
  mtx_matcher_free(m);

  // With an opening text the free text is entered by it alone.
  opts.opening = "<ab>";
  opts.opening_len = 4;
  walk(g, t, &opts, 10, 20, "<ab> or the grammar");
  CHECK(!mtx_matcher_new(g, t, &opts, &m, &err));
  CHECK(!mtx_matcher_waiting(m) && !mtx_matcher_mask(m, bits, &err));
  CHECK(has(bits, '<') && has(bits, '{') && !has(bits, 'z'));
  CHECK(mtx_matcher_accept_token(m, 'z', &err) == MTX_EINVAL);
  CHECK(!mtx_matcher_accept_token(m, '{', &err) && !mtx_matcher_mask(m, bits, &err) && !has(bits, '<'));
  CHECK(!mtx_matcher_accept_bytes(m, "\"a\"}", 4, NULL, &err) && mtx_matcher_complete(m));
  mtx_matcher_free(m);
  CHECK(!mtx_matcher_new(g, t, &opts, &m, &err));
  CHECK(!mtx_matcher_accept_bytes(m, "\n", 1, NULL, &err) && !mtx_matcher_accept_bytes(m, "<a", 2, NULL, &err));
  CHECK(!mtx_matcher_waiting(m) && !mtx_matcher_complete(m));
  // a refused byte rules nothing out, however the text is cut
  CHECK(mtx_matcher_accept_bytes(m, "s", 1, &n_ok, &err) == MTX_EINVAL && n_ok == 0);
  CHECK(mtx_matcher_accept_bytes(m, "bs", 2, &n_ok, &err) == MTX_EINVAL && n_ok == 1);
  CHECK(!mtx_matcher_accept_bytes(m, ">z{", 3, NULL, &err) && mtx_matcher_waiting(m));
  CHECK(!mtx_matcher_accept_bytes(m, "</think>{\"b\"}", 13, NULL, &err) && mtx_matcher_complete(m));
  mtx_matcher_free(m);
  // where a token is the opening text, its letters are not
  opts.opening = "<think>";
  opts.opening_len = 7;
  walk(g, t, &opts, 10, 20, "<think> or the grammar");
  CHECK(!mtx_matcher_new(g, t, &opts, &m, &err));
  CHECK(!mtx_matcher_mask(m, bits, &err) && !has(bits, '<') && has(bits, TOK_THINK) && has(bits, '{'));
  CHECK(mtx_matcher_accept_token(m, '<', &err) == MTX_EINVAL);
  CHECK(!mtx_matcher_accept_token(m, TOK_THINK, &err) && mtx_matcher_waiting(m));
  mtx_matcher_free(m);
  opts.opening_len = 0;

  // a control token may be the trigger itself
  CHECK(!mtx_matcher_new(g, t, &opts, &m, &err));
  CHECK(!mtx_matcher_accept_token(m, TOK_END_THINK, &err) && !mtx_matcher_waiting(m));
  CHECK(mtx_matcher_accept_token(m, TOK_END_THINK, &err) == MTX_EINVAL);
  mtx_matcher_free(m);
  mtx_grammar_unref(g);
}

static void test_token_names(mtx_vocab_trie *t) {
  mtx_err err;
  mtx_matcher *m = NULL;
  mtx_grammar *g = gbnf("root ::= <nosuchtoken>");
  CHECK(mtx_matcher_new(g, t, NULL, &m, &err) == MTX_ENOTFOUND && strstr(err.msg, "nosuchtoken"));
  mtx_grammar_unref(g);
  g = gbnf("root ::= <[99999]>");
  CHECK(mtx_matcher_new(g, t, NULL, &m, &err) == MTX_ENOTFOUND);
  mtx_grammar_unref(g);
}

// More masks than a grammar may keep: it begins anew, and they are the same again.
static void test_cache_is_bounded(void) {
  enum { N = 120000, N_LOOPS = 130, N_BITS = (N + 63) / 64 };
  static char text[N][5];
  static const char *many[N];
  static uint32_t many_lens[N];
  mtx_vocab_trie *t = NULL;
  mtx_err err;
  for (uint32_t i = 0; i < N; i++) {
    for (uint32_t k = 0, x = i; k < 4; k++, x /= 26) text[i][k] = (char)('a' + x % 26);
    many[i] = text[i];
    many_lens[i] = 4;
  }
  CHECK(!mtx_vocab_trie_new(many, many_lens, NULL, N, &t, &err));
  char *grammar = malloc(N_LOOPS * 100);
  size_t n = (size_t)sprintf(grammar, "root ::= \"\"");
  for (int i = 0; i < N_LOOPS; i++) n += (size_t)sprintf(grammar + n, " | \"%d:\" [a-z%s%s%s%s%s%s%s%s]{0,%d} \"!\"", i, i & 1 ? "A" : "", i & 2 ? "B" : "",
                                                         i & 4 ? "C" : "", i & 8 ? "D" : "", i & 16 ? "E" : "", i & 32 ? "F" : "", i & 64 ? "G" : "",
                                                         i & 128 ? "H" : "", i + 50);
  mtx_grammar *g = gbnf(grammar);
  mask_cache *c = NULL;
  CHECK(g && !mtx_mask_cache_get(g, t, &c, &err));
  static uint64_t bits[2][N_LOOPS][N_BITS];
  size_t most = 0;
  bool shrank = false;
  for (int i = 0; i < 2 * N_LOOPS; i++) {
    mtx_matcher *m = NULL;
    char head[16];
    sprintf(head, "%d:", i % N_LOOPS);
    CHECK(!mtx_matcher_new(g, t, NULL, &m, &err) && !mtx_matcher_accept_bytes(m, head, strlen(head), NULL, &err));
    CHECK(!mtx_matcher_mask(m, bits[i / N_LOOPS][i % N_LOOPS], &err));
    mtx_matcher_free(m);
    shrank |= c->bytes < most;
    if (c->bytes > most) most = c->bytes;
  }
  CHECK(shrank && most > 16u << 20 && most <= 32u << 20, "%zu bytes", most);
  CHECK(!memcmp(bits[0], bits[1], sizeof bits[0]) && bits[0][0][0] == UINT64_MAX);
  mtx_mask_cache_unref(c);
  mtx_grammar_unref(g);
  mtx_vocab_trie_unref(t);
  free(grammar);
}

// Deep texts need memory in proportion, and no C stack: this runs on a small one.
static void *test_depth(void *unused) {
  mtx_grammar *g = gbnf("root ::= \"[\" root? \"]\"");
  mtx_matcher *m = NULL;
  mtx_err err;
  enum { N = 200000 };
  char *text = malloc(N);
  memset(text, '[', N);
  CHECK(!mtx_matcher_new(g, NULL, NULL, &m, &err));
  CHECK(!mtx_matcher_accept_bytes(m, text, N, NULL, &err), "%s", err.msg);
  memset(text, ']', N);
  CHECK(!mtx_matcher_accept_bytes(m, text, N - 1, NULL, &err) && !mtx_matcher_complete(m));
  CHECK(!mtx_matcher_accept_bytes(m, text, 1, NULL, &err) && mtx_matcher_complete(m));
  mtx_matcher_free(m);

  // without an end: refused with a limit, not by the system's memory
  CHECK(!mtx_matcher_new(g, NULL, NULL, &m, &err));
  memset(text, '[', N);
  mtx_code code = MTX_OK;
  for (int i = 0; i < 20 && !code; i++) code = mtx_matcher_accept_bytes(m, text, N, NULL, &err);
  CHECK(code == MTX_ELIMIT);
  mtx_matcher_free(m);
  mtx_grammar_unref(g);

  // a right-recursive list runs in constant memory
  g = gbnf("root ::= \"a\" root | \"b\"");
  CHECK(!mtx_matcher_new(g, NULL, NULL, &m, &err));
  memset(text, 'a', N);
  for (int i = 0; i < 20; i++) CHECK(!mtx_matcher_accept_bytes(m, text, N, NULL, &err));
  mtx_matcher_free(m);
  mtx_grammar_unref(g);

  // texts of grammars that nest as deep as they like
  static const char *const parts[][3] = {{"root ::= ", "(", ""}, {"root ::= ", "(\"a\" ", ""}, {"", "(", ""}, {"", "[", ""}, {"", "{\"items\":", "1"}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    size_t n = (size_t)sprintf(text, "%s", parts[i][0]), len = strlen(parts[i][1]);
    for (; n + len + 2 < N; n += len) memcpy(text + n, parts[i][1], len);
    n += (size_t)sprintf(text + n, "%s", parts[i][2]);
    CHECK(mtx_grammar_compile_gbnf(text, n, &g, &err) && mtx_grammar_compile_regex(text, n, &g, &err) &&
          mtx_grammar_compile_json_schema(text, n, NULL, &g, &err));
  }
  free(text);
  return NULL;
}

static void test_depth_on_a_small_stack(void) {
  pthread_attr_t a;
  pthread_t t;
  pthread_attr_init(&a);
  pthread_attr_setstacksize(&a, 512 << 10);
  CHECK(!pthread_create(&t, &a, test_depth, NULL) && !pthread_join(t, NULL));
  pthread_attr_destroy(&a);
}


static void test_bombs(void) {
  static const char *const bombs[] = {
      "root ::= ((((((((([a-z]{1,100}){1,100}){1,100}){1,100}){1,100}){1,100}){1,100}){1,100}){1,100}){1,100}",
      "root ::= ([a-z]* [a-z]* [a-z]* [a-z]* [a-z]*)* \"!\"",
      "root ::= (\"a\" | \"b\")* \"a\" (\"a\" | \"b\"){12}",
      "root ::= (\"a\" | \"b\")* \"a\" (\"a\" | \"b\"){1000}",
      "root ::= a a a a a a\na ::= b b b b b b\nb ::= c c c c c c\nc ::= d? d? d? d?\nd ::= \"x\"",
  };
  for (size_t i = 0; i < sizeof bombs / sizeof *bombs; i++) {
    mtx_err err = {0};
    mtx_grammar *g = NULL;
    mtx_code code = mtx_grammar_compile_gbnf(bombs[i], strlen(bombs[i]), &g, &err);
    CHECK(!code || code == MTX_ELIMIT, "%s", err.msg);
    if (!g) continue;
    CHECK(mtx_grammar_size_bytes(g) < 50u << 20);
    mtx_matcher *m = NULL;
    CHECK(!mtx_matcher_new(g, NULL, NULL, &m, &err));
    for (int k = 0; k < 3000; k++) {
      code = mtx_matcher_accept_bytes(m, k % 3 ? "a" : "b", 1, NULL, &err);
      if (code) break;
    }
    CHECK(!code || code == MTX_ELIMIT || code == MTX_EINVAL);
    mtx_matcher_free(m);
    mtx_grammar_unref(g);
  }
}

static void test_choice(void) {
  const char *list[] = {"red", "green", "greenish", "red"};
  size_t n[] = {3, 5, 8, 3};
  mtx_grammar *g = NULL;
  mtx_err err;
  CHECK(!mtx_grammar_compile_choice(list, n, 4, &g, &err));
  CHECK(match(g, "red", 3, NULL) == 2);
  CHECK(match(g, "green", 5, NULL) == 2);
  CHECK(match(g, "greeni", 6, NULL) == 1);
  CHECK(match(g, "blue", 4, NULL) == 0);
  mtx_grammar_unref(g);
  CHECK(mtx_grammar_compile_choice(list, n, 0, &g, &err) == MTX_EINVAL);
}

int main(void) {
  test_gbnf_texts();
  test_gbnf_refused();
  mtx_vocab_trie *t = make_trie();
  test_masks(t);
  CHECK(!mtx_vocab_trie_warm(t, &(mtx_err){0}));
  test_schema_masks(t);
  test_text_masks(t);
  test_triggers(t);
  test_token_names(t);
  test_depth_on_a_small_stack();
  test_bombs();
  test_cache_is_bounded();
  test_choice();
  mtx_vocab_trie_unref(t);
  for (int i = 0; i < N_VOCAB; i++) free(pieces[i]);
  return check_report();
}
