// SPDX-License-Identifier: MIT
// The prefix index against a list of everything it was told: what it gives out holds
// exactly the tokens asked for, as many as the list knows, within its budget, and no
// page stays behind.
#include "check.h"

#include <stdlib.h>

#include "kv/prefix.h"
#include "plain_kv.h"

enum { MAX_KNOWN = 400, MAX_SEQS = 6, KEYS = 2 };

typedef struct { int key; int64_t len; uint32_t token[MAX_LEN]; } known;
static known list[MAX_KNOWN];
static int n_known;
static const char *const keys[KEYS] = {"a", "b"};

static int64_t common(const uint32_t *a, int64_t n, const uint32_t *b, int64_t m) {
  int64_t k = 0;
  while (k < n && k < m && a[k] == b[k]) k++;
  return k;
}

static int64_t longest(int key, const uint32_t *tokens, int64_t n) {
  int64_t best = 0;
  for (int i = 0; i < n_known; i++) {
    int64_t k = list[i].key == key ? common(list[i].token, list[i].len, tokens, n) : 0;
    if (k > best) best = k;
  }
  return best;
}

static bool clean(const mtx_kv *kv, const mtx_prefix *p) { return mtx_kv_check(kv) && mtx_prefix_check(p); }

static void remember(mtx_prefix *p, int key, int seq, const plain *s) {
  mtx_prefix_put(p, keys[key], seq, (const int32_t *)s->token);
  if (n_known == MAX_KNOWN) return;
  list[n_known].key = key;
  list[n_known].len = s->len;
  memcpy(list[n_known++].token, s->token, (size_t)s->len * sizeof *s->token);
}

// A prompt: some of an earlier one, then tokens of its own.
static int64_t make_prompt(uint32_t *tokens) {
  int64_t n = 0;
  if (n_known && rnd(5)) {
    const known *k = &list[rnd((uint32_t)n_known)];
    n = rnd(3) ? (int64_t)rnd((uint32_t)k->len + 1) : k->len;
    memcpy(tokens, k->token, (size_t)n * sizeof *tokens);
  }
  int64_t more = 1 + rnd(rnd(2) ? 8 : 400);
  for (int64_t i = 0; i < more && n < MAX_LEN - 100; i++) tokens[n++] = rnd(rnd(4) ? 1u << 20 : 3);
  return n;
}

// Appends tokens[at, n) in steps that end on snapshot borders; remembers some lengths.
static bool evaluate(mtx_kv *kv, mtx_prefix *p, int key, int seq, plain *s, const uint32_t *tokens, int64_t n) {
  while (s->len < n) {
    int64_t step = 1 + rnd(300), border = MTX_SNAPSHOT_TOKENS - s->len % MTX_SNAPSHOT_TOKENS;
    if (step > border) step = border;
    if (step > n - s->len) step = n - s->len;
    while (append_tokens(kv, seq, s, tokens + s->len, step) == MTX_ELIMIT)
      if (!mtx_prefix_evict(p)) return false;
    if (rnd(4) == 0) remember(p, key, seq, s);
  }
  return true;
}

static void random_run(const mtx_kv_layout *l, uint64_t seed, int64_t kv_tokens, uint64_t budget, int n_ops) {
  static uint32_t tokens[MAX_LEN];
  static plain s;
  rng_state = seed;
  n_known = 0;
  mtx_kv *kv;
  mtx_prefix *p;
  CHECK(mtx_kv_open(&kv, l, kv_tokens, MAX_SEQS + 40, NULL) == MTX_OK && mtx_prefix_open(&p, kv, budget, NULL) == MTX_OK);
  bool all = budget > (UINT64_C(1) << 40) && kv_tokens >= (1 << 20), exact = !mtx_prefix_wants_checkpoints(p);
  int64_t n_kept = 0;
  for (int op = 0; op < n_ops; op++) {
    int key = (int)rnd(KEYS), seq;
    int64_t n = make_prompt(tokens), kept, want = longest(key, tokens, n - 1);
    mtx_code rc = mtx_prefix_take(p, keys[key], (const int32_t *)tokens, n - 1, &seq, &kept, NULL);
    CHECK(rc == MTX_OK);
    if (rc) break;
    memcpy(s.token, tokens, (size_t)kept * sizeof *tokens);
    s.len = kept;
    n_kept += kept;
    bool ok = kept <= want && same(kv, seq, &s) && (!all || !exact || kept == want);
    ok &= evaluate(kv, p, key, seq, &s, tokens, n) && same(kv, seq, &s);
    if (rnd(8)) remember(p, key, seq, &s);
    ok &= same(kv, seq, &s);
    mtx_kv_seq_free(kv, seq);
    if (rnd(30) == 0) {
      mtx_prefix_forget(p, keys[key], (const int32_t *)tokens, n);
      if (all) break;  // the list does not forget
    }
    CHECK(ok && clean(kv, p), "seed %llu op %d: %lld of %lld tokens, %lld known", (unsigned long long)seed, op, (long long)kept, (long long)n, (long long)want);
    if (!ok) break;
  }
  CHECK(n_kept > 0, "nothing was ever reused");
  while (mtx_prefix_evict(p)) {}
  mtx_prefix_stats st = mtx_prefix_get_stats(p);
  CHECK(clean(kv, p) && st.n_nodes == 0 && st.n_checkpoints == 0 && st.bytes == 0);
  CHECK(mtx_kv_get_stats(kv).n_free == mtx_kv_get_stats(kv).n_total && mtx_kv_n_holds(kv) == 0 && mtx_kv_n_seqs(kv) == 0);
  mtx_prefix_close(p);
  mtx_kv_close(kv);
}

// ---- by hand ------------------------------------------------------------------------------

static mtx_kv *kv;
static mtx_prefix *p;

static void open_index(const mtx_kv_layout *l, uint64_t budget) {
  CHECK(mtx_kv_open(&kv, l, 100000, 40, NULL) == MTX_OK && mtx_prefix_open(&p, kv, budget, NULL) == MTX_OK);
}

static void close_index(void) {
  CHECK(clean(kv, p));
  mtx_prefix_close(p);
  CHECK(mtx_kv_n_holds(kv) == 0 && mtx_kv_get_stats(kv).n_free == mtx_kv_get_stats(kv).n_total);
  mtx_kv_close(kv);
}

// Tokens 0..n of a sequence `id`; the first n_same are those of sequence 0.
static const int32_t *numbers(uint32_t id, int64_t n_same, int64_t n) {
  static int32_t t[MAX_LEN];
  for (int64_t i = 0; i < n; i++) t[i] = (int32_t)(i < n_same ? (uint32_t)i : id << 16 | (uint32_t)i);
  return t;
}

static void put(const char *key, uint32_t id, int64_t n_same, int64_t n) {
  static plain s;
  int seq;
  const int32_t *t = numbers(id, n_same, n);
  CHECK(mtx_kv_seq_new(kv, &seq, NULL) == MTX_OK);
  for (s.len = 0; s.len < n;) {
    int64_t step = MTX_SNAPSHOT_TOKENS - s.len % MTX_SNAPSHOT_TOKENS;
    if (step > n - s.len) step = n - s.len;
    CHECK(append_tokens(kv, seq, &s, (const uint32_t *)t + s.len, step) == MTX_OK);
  }
  mtx_prefix_put(p, key, seq, t);
  mtx_kv_seq_free(kv, seq);
}

static int64_t take(const char *key, uint32_t id, int64_t n_same, int64_t n) {
  int64_t kept;
  int seq;
  static plain s;
  const int32_t *t = numbers(id, n_same, n);
  if (mtx_prefix_take(p, key, t, n, &seq, &kept, NULL)) return -1;
  memcpy(s.token, t, (size_t)kept * sizeof *t);
  s.len = kept;
  CHECK(same(kv, seq, &s));
  mtx_kv_seq_free(kv, seq);
  return kept;
}

static int64_t pages_held(void) { return mtx_kv_get_stats(kv).n_total - mtx_kv_get_stats(kv).n_free; }

static void test_sharing(void) {
  mtx_kv_layout l = layout_make(1, 0, 0);
  open_index(&l, UINT64_MAX);
  put("a", 0, 0, 320);
  CHECK(pages_held() == 10 && take("a", 0, 0, 320) == 320 && take("a", 0, 0, 400) == 320 && take("a", 0, 0, 77) == 77);
  put("a", 0, 0, 320);
  CHECK(pages_held() == 10 && mtx_prefix_get_stats(p).n_nodes == 1, "the same twice costs nothing");
  put("a", 0, 0, 400);
  CHECK(pages_held() == 13 && mtx_prefix_get_stats(p).n_nodes == 1, "a longer one adds its end");
  put("a", 1, 96, 128);
  CHECK(pages_held() == 14 && mtx_prefix_get_stats(p).n_nodes == 3, "a fork on a page's border adds what is new: %d pages", (int)pages_held());
  put("a", 2, 100, 128);
  CHECK(pages_held() == 15 && mtx_prefix_get_stats(p).n_nodes == 5, "a fork inside a page adds a copy of it: %d pages", (int)pages_held());
  CHECK(take("a", 1, 96, 128) == 128 && take("a", 2, 100, 128) == 128 && take("a", 3, 99, 128) == 99 && take("a", 0, 0, 400) == 400);
  CHECK(take("b", 0, 0, 400) == 0 && take("", 0, 0, 400) == 0, "another key sees nothing");
  put("b", 0, 0, 40);
  CHECK(take("b", 0, 0, 400) == 40 && take("a", 0, 0, 400) == 400);
  CHECK(mtx_prefix_forget(p, "a", numbers(1, 96, 128), 128) == 128 && take("a", 1, 96, 128) == 96 && take("a", 2, 100, 128) == 128);
  CHECK(mtx_prefix_forget(p, "c", numbers(1, 96, 128), 128) == 0);
  close_index();
}

static void test_budget(void) {
  mtx_kv_layout l = layout_make(1, 0, 0);
  open_index(&l, UINT64_MAX);
  put("a", 1, 0, 320);
  uint64_t one = mtx_prefix_get_stats(p).bytes;
  close_index();
  open_index(&l, 4 * one + one / 2);
  for (uint32_t id = 1; id <= 4; id++) put("a", id, 0, 320);
  CHECK(take("a", 1, 0, 320) == 320);
  put("a", 5, 0, 320);
  CHECK(take("a", 2, 0, 320) == 0 && take("a", 1, 0, 320) == 320 && take("a", 5, 0, 320) == 320, "the one used longest ago went");
  // A copy is no use: 3 stays the one that goes next. 3, 4, 1, 5 were used in this order.
  int seq;
  int64_t kept;
  CHECK(mtx_prefix_copy(p, "a", numbers(3, 0, 320), 320, &seq, &kept, NULL) == MTX_OK && kept == 320 && mtx_kv_seq_len(kv, seq) == 320);
  mtx_kv_seq_free(kv, seq);
  CHECK(mtx_prefix_known(p, "a", numbers(3, 0, 320), 320) == 320);
  put("a", 8, 0, 320);
  CHECK(mtx_prefix_known(p, "a", numbers(3, 0, 320), 320) == 0 && mtx_prefix_known(p, "a", numbers(4, 0, 320), 320) == 320);
  put("a", 6, 0, 4000);
  CHECK(take("a", 6, 0, 4000) == 0 && take("a", 1, 0, 320) == 320 && take("a", 5, 0, 320) == 320, "what can never fit drives nobody out");
  CHECK(clean(kv, p));
  put("b", 7, 0, 320);
  CHECK(take("b", 7, 0, 320) == 320 && clean(kv, p));
  // Many short ones: the tree itself counts too.
  for (uint32_t id = 100; id < 5000; id++) put(id % 2 ? "a" : "b", id, 0, 1);
  CHECK(clean(kv, p) && mtx_prefix_get_stats(p).bytes <= 4 * one + one / 2 && mtx_prefix_get_stats(p).n_nodes > 4);
  close_index();
  open_index(&l, 0);
  put("a", 1, 0, 320);
  CHECK(take("a", 1, 0, 320) == 0 && pages_held() == 0, "no budget, no cache");
  close_index();
}

// The second turn of a chat whose window went on, an edit of its last turn, and a second edit.
static void test_window(void) {
  mtx_kv_layout l = layout_make(2, 40, 0);
  open_index(&l, UINT64_MAX);
  put("a", 0, 0, 2000);
  CHECK(take("a", 0, 0, 2300) == 2000 && take("a", 1, 1900, 2300) == 1900, "%d", (int)take("a", 1, 1900, 2300));
  put("a", 1, 1900, 2300);
  CHECK(take("a", 2, 1900, 2300) == 1900, "the border of two branches: %d", (int)take("a", 2, 1900, 2300));
  CHECK(take("a", 0, 0, 2300) == 2000 && take("a", 1, 1900, 2300) == 2300);
  CHECK(take("a", 3, 900, 2000) == 0, "nobody came by there");
  close_index();
}

static void test_recurrent(void) {
  mtx_kv_layout l = layout_make(1, 0, 8);
  open_index(&l, UINT64_MAX);
  put("a", 0, 0, 1990);
  CHECK(take("a", 0, 0, 2300) == 1990, "the end of a turn: %d", (int)take("a", 0, 0, 2300));
  CHECK(take("a", 1, 1980, 2300) == 1792, "the last multiple of 256 before a fork: %d", (int)take("a", 1, 1980, 2300));
  put("a", 1, 1980, 2300);
  CHECK(take("a", 0, 0, 2300) == 1990 && take("a", 1, 1980, 2300) == 2300);
  int64_t n = mtx_prefix_get_stats(p).n_checkpoints;
  while (mtx_prefix_get_stats(p).n_checkpoints > 1) CHECK(mtx_prefix_evict(p) && clean(kv, p));
  CHECK(n > 8 && take("a", 1, 1980, 2300) == 2300, "the newest checkpoint stays longest");
  close_index();
}

int main(void) {
  test_sharing();
  test_budget();
  test_window();
  test_recurrent();
  mtx_kv_layout plain_l = layout_make(1, 0, 0), window_l = layout_make(2, 70, 0), hybrid_l = layout_make(1, 0, 8), all_l = layout_make(2, 33, 8);
  mtx_kv_layout pure = {.type = MTX_KV_F16, .state_bytes = 8};
  const mtx_kv_layout *layouts[] = {&plain_l, &window_l, &hybrid_l, &all_l, &pure};
  for (uint64_t seed = 1; seed <= 4; seed++)
    for (int i = 0; i < 5; i++) {
      random_run(layouts[i], seed, 1 << 20, UINT64_MAX, 150);
      random_run(layouts[i], seed + 100, 1 << 20, 40000, 150);  // a small budget
      random_run(layouts[i], seed + 200, 6000, UINT64_MAX, 150);   // few pages
    }
  return check_report();
}
