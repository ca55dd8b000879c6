// SPDX-License-Identifier: MIT
// Token masks are exact. The oracle is the definition: a token is allowed if and
// only if feeding its bytes to a copy of the matcher succeeds.
#include "grammar_vocab.h"

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

int main(void) {
  mtx_vocab_trie *t = make_trie();
  test_masks(t);
  CHECK(!mtx_vocab_trie_warm(t, &(mtx_err){0}));
  test_schema_masks(t);
  test_text_masks(t);
  test_triggers(t);
  test_token_names(t);
  mtx_vocab_trie_unref(t);
  free_pieces();
  return check_report();
}
