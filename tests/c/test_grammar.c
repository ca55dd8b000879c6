// SPDX-License-Identifier: MIT
// Grammars without Lua: what texts a GBNF grammar takes, what is refused, depth, limits.
#include <pthread.h>

#include "grammar_vocab.h"

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
  test_depth_on_a_small_stack();
  test_bombs();
  test_choice();
  return check_report();
}
