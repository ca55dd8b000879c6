// SPDX-License-Identifier: MIT
// What matchers of one grammar share: found once, bounded, and the same on any number of threads.
#include <pthread.h>

#include "grammar/matcher.h"
#include "grammar_vocab.h"

enum { LETTERS = 26, N_POINTED = LETTERS * LETTERS * LETTERS + 256 };

// All bytes, and all of a point with three letters.
static mtx_vocab_trie *pointed_words(void) {
  static char text[N_POINTED][5];
  static const char *many[N_POINTED];
  static uint32_t many_lens[N_POINTED];
  mtx_vocab_trie *t = NULL;
  mtx_err err;
  for (uint32_t i = 0; i < N_POINTED; i++) {
    many[i] = text[i];
    many_lens[i] = i < 256 ? 1 : 4;
    text[i][0] = i < 256 ? (char)i : '.';
    for (uint32_t k = 1, x = i - 256; k < many_lens[i]; k++, x /= LETTERS) text[i][k] = (char)('a' + x % LETTERS);
  }
  CHECK(!mtx_vocab_trie_new(many, many_lens, NULL, N_POINTED, &t, &err));
  return t;
}

static mtx_grammar *schema(const char *text) {
  mtx_grammar *g = NULL;
  mtx_err err;
  CHECK(!mtx_grammar_compile_json_schema(text, strlen(text), NULL, &g, &err), "%s", err.msg);
  return g;
}

// What follows the end of a frame is found once for all matchers of a grammar, too: a label of
// a host name may end anywhere, and every token that begins with a point may come then.
static void test_ends_are_shared(void) {
  static uint64_t bits[2][(N_POINTED + 63) / 64];
  mtx_vocab_trie *t = pointed_words();
  mtx_grammar *g = schema("{\"type\":\"array\",\"items\":{\"type\":\"string\",\"format\":\"hostname\"}}");
  mtx_err err;
  for (int i = 0; i < 2; i++) {
    mtx_matcher *m = NULL;
    CHECK(!mtx_matcher_new(g, t, NULL, &m, &err) && !mtx_matcher_accept_bytes(m, "[\"www", 5, NULL, &err));
    CHECK(!mtx_matcher_mask(m, bits[i], &err) && bits[i][4] == UINT64_MAX && !(bits[i][0] >> '!' & 1));
    CHECK(i == 0 || MATCHER_STEP_FUEL - m->stacks.fuel < 100, "%lld steps", MATCHER_STEP_FUEL - (long long)m->stacks.fuel);
    mtx_matcher_free(m);
  }
  CHECK(!memcmp(bits[0], bits[1], sizeof bits[0]));
  mtx_grammar_unref(g);
  mtx_vocab_trie_unref(t);
}

// The masks inside names are found once for all grammars of a vocabulary: of another grammar,
// and at another place in a name, every large one has been there before.
static void test_formats_are_shared(void) {
  enum { LARGE = N_POINTED / 8 };
  static uint64_t bits[(N_POINTED + 63) / 64];
  static const char *const schemas[] = {"{\"type\":\"array\",\"items\":{\"type\":\"string\",\"format\":\"email\"}}",
                                        "{\"type\":\"string\",\"format\":\"email\"}"};
  static const char *const texts[][2] = {{"[\"someone", "@www.example.org"}, {"\"a", "@mail.example-company.co.uk"}};
  mtx_vocab_trie *t = pointed_words();
  mtx_grammar *g[2];
  mask_cache *c[2] = {0};
  mtx_err err;
  for (int i = 0; i < 2; i++) {
    mtx_matcher *m = NULL;
    g[i] = schema(schemas[i]);
    CHECK(!mtx_mask_cache_get(g[i], t, c + i, &err) && !mtx_matcher_new(g[i], t, NULL, &m, &err));
    for (int k = 0; k < 2; k++)
      CHECK(!mtx_matcher_accept_bytes(m, texts[i][k], strlen(texts[i][k]), NULL, &err) && !mtx_matcher_mask(m, bits, &err));
    CHECK(bits[4] == UINT64_MAX);
    mtx_matcher_free(m);
  }
  int n_large = 0, n_new = 0;
  for (uint32_t i = 0; i < c[1]->n_table; i++) {
    const mask_entry *e = c[1]->table[i].entry;
    bool known = false;
    for (uint32_t k = 0; k < c[0]->n_table && e; k++) known |= c[0]->table[k].entry == e;
    n_large += e && e->bytes > LARGE;
    n_new += e && e->bytes > LARGE && !known;
  }
  CHECK(n_large && !n_new, "%d of %d", n_new, n_large);
  for (int i = 0; i < 2; i++) mtx_mask_cache_unref(c[i]), mtx_grammar_unref(g[i]);
  mtx_vocab_trie_unref(t);
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

// ---- one grammar, several threads -----------------------------------------------------

enum { N_SHARED_STEPS = 24, N_SHARING = 4 };

typedef struct {
  mtx_grammar *g;
  mtx_vocab_trie *t;
  const uint32_t *taken;
  int n_taken;
  uint64_t (*want)[(N_VOCAB + 63) / 64];
  int n_wrong;
} sharer;

static void *follow(void *p) {
  sharer *s = p;
  uint64_t bits[(N_VOCAB + 63) / 64];
  mtx_matcher *m = NULL;
  mtx_err err;
  for (int round = 0; round < 3; round++) {
    if (mtx_matcher_new(s->g, s->t, NULL, &m, &err)) s->n_wrong++;
    for (int i = 0; i <= s->n_taken && !s->n_wrong; i++) {
      s->n_wrong += mtx_matcher_mask(m, bits, &err) || memcmp(bits, s->want[i], sizeof bits);
      s->n_wrong += i < s->n_taken && mtx_matcher_accept_token(m, s->taken[i], &err);
    }
    mtx_matcher_free(m);
  }
  return NULL;
}

// Threads that fill a grammar's cache and the vocabulary's at the same time see the masks of
// the definition: those of a random walk, of which each is compared with it.
static void test_threads_share(void) {
  static const struct {
    const char *text;
    bool schema;
  } cases[] = {
      {"{\"type\":\"array\",\"items\":{\"type\":\"string\",\"format\":\"email\"}}", true},
      {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"format\":\"hostname\"},\"ab\":{\"$ref\":\"#\"}},\"additionalProperties\":{\"type\":\"integer\"}}", true},
      {"{\"type\":\"array\",\"items\":{\"type\":\"array\",\"items\":{\"type\":\"number\"},\"maxItems\":9},\"maxItems\":9}", true},
      {"true", true},
      {"root ::= v\nv ::= \"[\" v (\",\" v)* \"]\" | n \nn ::= w (\".\" w){0,9}\nw ::= [a-c0-9]{1,5} | \"\\\"\" [^\\\"]* \"\\\"\"", false},
  };
  static uint64_t want[N_SHARED_STEPS + 1][(N_VOCAB + 63) / 64];
  for (size_t k = 0; k < 4 * (sizeof cases / sizeof *cases); k++) {
    const char *text = cases[k / 4].text;
    mtx_grammar *g[2] = {0};
    mtx_vocab_trie *t[2] = {0};
    mtx_err err;
    for (int i = 0; i < 2; i++) {
      CHECK(!mtx_vocab_trie_new((const char *const *)pieces, lens, flags, N_VOCAB, t + i, &err));
      CHECK(!(cases[k / 4].schema ? mtx_grammar_compile_json_schema(text, strlen(text), NULL, g + i, &err) : mtx_grammar_compile_gbnf(text, strlen(text), g + i, &err)), "%s", err.msg);
    }
    uint32_t taken[N_SHARED_STEPS];
    int n = 0;
    mtx_matcher *m = replay(g[0], t[0], NULL, NULL, 0);
    for (;; n++) {
      CHECK(!mtx_matcher_mask(m, want[n], &err));
      uint32_t allowed[N_VOCAB], n_allowed = 0, n_wrong = 0;
      for (uint32_t i = 0; i < N_VOCAB; i++) {
        mtx_matcher *trial = replay(g[0], NULL, NULL, NULL, 0);
        bool ok = i != TOK_EOG && !flags[i];
        for (int j = 0; j < n; j++) mtx_matcher_accept_bytes(trial, pieces[taken[j]], lens[taken[j]], NULL, &err);
        ok = i == TOK_EOG ? mtx_matcher_complete(trial) : ok && !mtx_matcher_accept_bytes(trial, pieces[i], lens[i], NULL, &err);
        mtx_matcher_free(trial);
        n_wrong += ok != (want[n][i >> 6] >> (i & 63) & 1);
        if (ok && i != TOK_EOG) allowed[n_allowed++] = i;
      }
      CHECK(!n_wrong, "%s: %u tokens wrong", text, n_wrong);
      if (n == N_SHARED_STEPS || !n_allowed) break;
      taken[n] = allowed[rnd(n_allowed)];
      CHECK(!mtx_matcher_accept_token(m, taken[n], &err));
    }
    mtx_matcher_free(m);
    sharer s[N_SHARING];
    pthread_t threads[N_SHARING];
    for (int i = 0; i < N_SHARING; i++) {
      s[i] = (sharer){g[1], t[1], taken, n, want, 0};
      CHECK(!pthread_create(threads + i, NULL, follow, s + i));
    }
    for (int i = 0; i < N_SHARING; i++) CHECK(!pthread_join(threads[i], NULL) && !s[i].n_wrong, "%s", text);
    for (int i = 0; i < 2; i++) mtx_grammar_unref(g[i]), mtx_vocab_trie_unref(t[i]);
  }
}

int main(void) {
  mtx_vocab_trie_unref(make_trie());
  test_ends_are_shared();
  test_formats_are_shared();
  test_cache_is_bounded();
  test_threads_share();
  free_pieces();
  return check_report();
}
