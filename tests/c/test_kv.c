// SPDX-License-Identifier: MIT
// KV pages and recurrent state against a plain model: every sequence is also an
// array of its tokens, and what a row could see must be exactly these tokens.
#include "check.h"

#include <stdlib.h>

#include "kv/pages.h"
#include "plain_kv.h"

enum { MAX_SEQS = 12 };

static int pick(const plain *s) {
  int i = (int)rnd(MAX_SEQS);
  for (int k = 0; k < MAX_SEQS; k++)
    if (s[(i + k) % MAX_SEQS].used) return (i + k) % MAX_SEQS;
  return -1;
}

static void random_run(const mtx_kv_layout *l, uint64_t seed, int n_ops) {
  static plain s[MAX_SEQS];
  memset(s, 0, sizeof s);
  rng_state = seed;
  mtx_kv *kv;
  mtx_err err;
  CHECK(mtx_kv_open(&kv, l, 1000, MAX_SEQS, &err) == MTX_OK);
  int64_t n_pages = mtx_kv_get_stats(kv).n_total;
  int bad = 0, n_full = 0;
  for (int op = 0; op < n_ops && !bad; op++) {
    int what = (int)rnd(10), id, i = pick(s);
    if (i < 0 || what == 0) {
      mtx_code rc = mtx_kv_seq_new(kv, &id, &err);
      if (rc == MTX_OK) s[id].used = true, s[id].len = 0;
      else bad += err.code != MTX_ELIMIT || mtx_kv_n_seqs(kv) != MAX_SEQS;
    } else if (what == 1) {
      mtx_kv_seq_free(kv, i);
      s[i].used = false;
    } else if (what == 2) {
      int64_t want = rnd((uint32_t)s[i].len + 40), kept;
      mtx_code rc = mtx_kv_seq_fork(kv, i, want, &id, &kept, &err);
      if (rc == MTX_OK) {
        bad += kept > want || kept > s[i].len;
        if (!l->state_bytes && l->n_groups == 1) bad += kept != (want < s[i].len ? want : s[i].len);
        s[id] = s[i];
        s[id].len = kept;
        bad += !same(kv, id, &s[id]);
      }
    } else if (what == 3) {
      int64_t want = rnd((uint32_t)s[i].len + 40), len = s[i].len;
      int64_t kept = mtx_kv_seq_truncate(kv, i, want);
      bad += kept > want || kept > len || (want >= len && kept != len);
      if (!l->state_bytes && l->n_groups == 1) bad += kept != (want < len ? want : len);
      s[i].len = kept;
    } else {
      int64_t n = rnd(4) ? 1 + rnd(9) : 1 + rnd(200);
      if (s[i].len + n > MAX_LEN) continue;
      if (l->state_bytes) {  // a step ends on snapshot borders
        int64_t border = MTX_SNAPSHOT_TOKENS - s[i].len % MTX_SNAPSHOT_TOKENS;
        if (n > border) n = border;
      }
      int64_t need = mtx_kv_seq_pages_needed(kv, i, n), n_free = mtx_kv_get_stats(kv).n_free;
      mtx_code rc = append(kv, i, &s[i], n);
      if (rc == MTX_OK) bad += need > n_free;
      else n_full++, bad += rc != MTX_ELIMIT || (l->n_groups == 1 && need <= n_free);
    }
    for (int k = 0; k < MAX_SEQS; k++) bad += s[k].used && !same(kv, k, &s[k]);
    bad += !mtx_kv_check(kv);
    CHECK(!bad, "seed %llu op %d kind %d", (unsigned long long)seed, op, what);
  }
  CHECK(!l->n_groups || n_full > 0 || n_ops < 500, "the pool was never full");
  for (int k = 0; k < MAX_SEQS; k++) mtx_kv_seq_free(kv, k);
  CHECK(mtx_kv_check(kv) && mtx_kv_get_stats(kv).n_free == n_pages && mtx_kv_n_seqs(kv) == 0);
  mtx_kv_close(kv);
}

static void test_share_and_copy(void) {
  static plain a, b;
  memset(&a, 0, sizeof a);
  mtx_kv_layout l = layout_make(1, 0, 0);
  mtx_kv *kv;
  CHECK(mtx_kv_open(&kv, &l, 10 * P, 4, NULL) == MTX_OK);
  int sa, sb;
  int64_t kept;
  CHECK(mtx_kv_seq_new(kv, &sa, NULL) == MTX_OK && append(kv, sa, &a, 3 * P + 5) == MTX_OK);
  CHECK(mtx_kv_get_stats(kv).n_free == 6);
  CHECK(mtx_kv_seq_fork(kv, sa, 1 << 30, &sb, &kept, NULL) == MTX_OK && kept == 3 * P + 5);
  b = a;
  CHECK(mtx_kv_get_stats(kv).n_free == 6 && mtx_kv_get_stats(kv).n_shared == 4);
  CHECK(mtx_kv_seq_pages_needed(kv, sb, 1) == 1, "the shared last page is copied");
  CHECK(append(kv, sb, &b, 1) == MTX_OK && mtx_kv_get_stats(kv).n_free == 5 && mtx_kv_get_stats(kv).n_shared == 3);
  CHECK(mtx_kv_seq_pages_needed(kv, sa, 1) == 0, "the other owner has it alone now");
  CHECK(same(kv, sa, &a) && same(kv, sb, &b) && mtx_kv_check(kv));

  CHECK(append(kv, sa, &a, 6 * P) == MTX_ELIMIT && mtx_kv_seq_len(kv, sa) == 3 * P + 5 && mtx_kv_get_stats(kv).n_free == 5);
  mtx_err err;
  CHECK(mtx_kv_seq_reserve(kv, sa, 6 * P, &err) == MTX_ELIMIT && strstr(err.msg, "6 pages") && strstr(err.msg, "5 of 10"));
  CHECK(mtx_kv_seq_truncate(kv, sb, 2 * P) == 2 * P && mtx_kv_get_stats(kv).n_free == 6);
  CHECK(mtx_kv_seq_fork(kv, 99, 1, &sb, &kept, &err) == MTX_EINVAL && err.code == MTX_EINVAL);
  mtx_kv_close(kv);
}

// Memory is touched ahead of its use: no more than was asked for, piece by piece, and never what is in use.
static void test_warm(void) {
  enum { PAGE = 700 << 10, N = 40, HUGE = 2 << 20 };
  mtx_pool p;
  mtx_table t = {0};
  CHECK(mtx_pool_init(&p, PAGE, N, NULL) == MTX_OK && p.warm == 0 && !mtx_pool_warm(&p, 0), "nothing is touched unasked");
  for (size_t before = 0; mtx_pool_warm(&p, 2); before = p.warm) CHECK(p.warm > before && p.warm - before <= HUGE, "one huge page at most");
  CHECK(p.warm >= 2 * PAGE && p.warm < 2 * PAGE + HUGE);

  size_t warm = p.warm;
  CHECK(mtx_table_reserve(&t, &p, 0, 2 * P, NULL) == MTX_OK && p.warm == warm, "two pages were ready");
  memset(t.page[0], 7, PAGE);
  memset(t.page[1], 7, PAGE);
  while (mtx_pool_warm(&p, 3)) {}
  CHECK(p.warm >= 5 * PAGE && t.page[1][0] == 7 && t.page[1][PAGE - 1] == 7);
  CHECK(mtx_table_reserve(&t, &p, 2 * P, 18 * P, NULL) == MTX_OK && p.warm == 20 * PAGE, "what is handed out is touched");

  mtx_table_cut(&t, &p, 15 * P);
  CHECK(!mtx_pool_warm(&p, 5) && p.warm == 20 * PAGE, "five pages that came back are ready");
  CHECK(mtx_pool_warm(&p, 6));
  while (mtx_pool_warm(&p, 1000)) {}
  CHECK(p.warm == (size_t)N * PAGE, "and no further than to the end");
  CHECK(mtx_table_reserve(&t, &p, 15 * P, 25 * P, NULL) == MTX_OK && p.n_free == 0 && !mtx_pool_warm(&p, 5));
  int dirty = 0;
  for (int i = 15; i < N; i++)
    for (int k = 0; k < PAGE; k += 64) dirty += t.page[i][k] != 0;
  CHECK(!dirty && t.page[0][PAGE / 2] == 7);
  mtx_table_fini(&t, &p);
  mtx_pool_fini(&p);

  mtx_kv_layout l = layout_make(2, 40, 0);
  mtx_kv *kv;
  CHECK(mtx_kv_open(&kv, &l, 1000, 3, NULL) == MTX_OK && mtx_kv_warm(kv, 1) && mtx_kv_warm(kv, 1) && !mtx_kv_warm(kv, 1), "every group");
  mtx_kv_close(kv);
  l = layout_make(0, 0, 64);
  CHECK(mtx_kv_open(&kv, &l, 1000, 3, NULL) == MTX_OK && !mtx_kv_warm(kv, 1), "a model without attention");
  mtx_kv_close(kv);
}

static void test_window(void) {
  static plain a;
  memset(&a, 0, sizeof a);
  mtx_kv_layout l = layout_make(2, 40, 0);
  mtx_kv *kv;
  CHECK(mtx_kv_open(&kv, &l, MAX_LEN, 2, NULL) == MTX_OK);
  int s, f;
  int64_t kept;
  CHECK(mtx_kv_seq_new(kv, &s, NULL) == MTX_OK);
  for (int i = 0; i < 100; i++) append(kv, s, &a, 20);
  int held = 0;
  for (int64_t i = 0; i < 2000 / P; i++) held += mtx_kv_seq_pages(kv, s, 1)[i] != NULL;
  CHECK(held >= 40 / P && held <= (40 + MTX_SNAPSHOT_TOKENS) / P + 2, "window pages held: %d", held);
  CHECK(mtx_kv_seq_pages(kv, s, 1)[0] == NULL && mtx_kv_seq_pages(kv, s, 0)[0] != NULL);
  CHECK(mtx_kv_seq_fork(kv, s, 1990, &f, &kept, NULL) == MTX_OK && kept == 1990, "a short rewind keeps its tokens");
  mtx_kv_seq_free(kv, f);
  CHECK(mtx_kv_seq_fork(kv, s, 500, &f, &kept, NULL) == MTX_OK && kept == 0, "what the window gave back is read again");
  CHECK(mtx_kv_check(kv));
  mtx_kv_close(kv);
}

static void test_snapshots(void) {
  static plain a;
  memset(&a, 0, sizeof a);
  mtx_kv_layout l = layout_make(1, 0, sizeof(uint64_t));
  mtx_kv *kv;
  CHECK(mtx_kv_open(&kv, &l, MAX_LEN, 4, NULL) == MTX_OK);
  int s, f;
  int64_t kept;
  CHECK(mtx_kv_seq_new(kv, &s, NULL) == MTX_OK);
  for (int i = 0; i < 3800 / 8; i++) append(kv, s, &a, 8);
  CHECK(mtx_kv_seq_fork(kv, s, 3800, &f, &kept, NULL) == MTX_OK && kept == 3800);
  mtx_kv_seq_free(kv, f);
  for (int64_t n = 3799; n >= 3000; n -= 50) {
    CHECK(mtx_kv_seq_fork(kv, s, n, &f, &kept, NULL) == MTX_OK && kept <= n && kept > n - 3 * MTX_SNAPSHOT_TOKENS,
          "%d -> %d", (int)n, (int)kept);
    plain b = a;
    b.len = kept;
    CHECK(same(kv, f, &b));
    mtx_kv_seq_free(kv, f);
  }
  CHECK(mtx_kv_seq_truncate(kv, s, 100) == 0 && *(uint64_t *)mtx_kv_seq_state(kv, s) == 0);
  CHECK(mtx_kv_check(kv));
  mtx_kv_close(kv);
}

// What one sequence left behind is in no page and no state that another gets.
static void test_nothing_is_left_for_the_next(void) {
  mtx_kv_layout l = layout_make(2, 70, 64);
  mtx_kv *kv;
  CHECK(mtx_kv_open(&kv, &l, 8 * P, 1, NULL) == MTX_OK);
  int64_t n_bytes = 0, n_left = 0;
  for (int round = 0; round < 3; round++) {
    int s;
    CHECK(mtx_kv_seq_new(kv, &s, NULL) == MTX_OK && mtx_kv_seq_reserve(kv, s, 8 * P, NULL) == MTX_OK);
    for (int g = 0; g < l.n_groups; g++) {
      for (int64_t i = 0; i < 8; i++) {
        uint8_t *page = mtx_kv_seq_pages(kv, s, g)[i];
        size_t n = mtx_kv_get_layout(kv)->page_bytes[g];
        for (size_t k = 0; k < n; k++) n_bytes++, n_left += page[k] != 0;
        memset(page, 0xEE, n);
      }
    }
    uint8_t *state = mtx_kv_seq_state(kv, s);
    for (size_t k = 0; k < l.state_bytes; k++) n_bytes++, n_left += state[k] != 0;
    memset(state, 0xEE, l.state_bytes);
    if (round == 1) mtx_kv_seq_truncate(kv, s, 0);
    mtx_kv_seq_free(kv, s);
  }
  CHECK(n_bytes > 3 * 16 * P && n_left == 0, "%lld of %lld bytes were left", (long long)n_left, (long long)n_bytes);
  mtx_kv_close(kv);
}

static void test_layout(void) {
  mtx_kv_layout l = layout_make(1, 0, 0);
  for (int t = 0; t < MTX_KV_N_TYPES; t++) {
    l.type = (mtx_kv_type)t;
    mtx_kv *kv;
    CHECK(mtx_kv_open(&kv, &l, 100, 1, NULL) == MTX_OK);
    const mtx_kv_layout *f = mtx_kv_get_layout(kv);
    size_t end = 0;
    for (int i = 0; i < f->n_layers; i++) {
      const mtx_kv_layer *y = &f->layer[i];
      size_t item = t == MTX_KV_F32 ? 4 : t == MTX_KV_Q8_0 ? 1 : 2, scale = t == MTX_KV_Q8_0 ? 4 * P : 0;
      CHECK(y->k_off == end && y->k_off % 64 == 0 && y->v_off % 64 == 0 && y->k_head_bytes % 64 == 0);
      CHECK(y->k_head_bytes >= 4 * P * item + scale && y->v_head_bytes >= 3 * P * item + scale);
      CHECK(y->v_off == y->k_off + 2 * y->k_head_bytes);
      end = y->v_off + 2 * y->v_head_bytes;
    }
    CHECK(f->page_bytes[0] == end);
    mtx_kv_type back;
    CHECK(mtx_kv_type_parse(mtx_kv_type_name((mtx_kv_type)t), &back) && (int)back == t);
    mtx_kv_close(kv);
  }
  mtx_kv_type ty;
  CHECK(mtx_kv_type_parse("F16", &ty) && ty == MTX_KV_F16 && !mtx_kv_type_parse("f1", &ty) && !mtx_kv_type_parse("", &ty));

  mtx_kv *kv;
  mtx_err err;
  CHECK(mtx_kv_open(&kv, &l, 0, 1, &err) == MTX_EINVAL && kv == NULL);
  l.layer[0].n_head_kv = l.layer[0].dk = INT32_MAX;
  CHECK(mtx_kv_open(&kv, &l, INT64_C(1) << 40, 1, &err) != MTX_OK && kv == NULL && err.msg[0]);
  l.layer[0].group = 3;
  CHECK(mtx_kv_open(&kv, &l, 100, 1, &err) == MTX_EINVAL && kv == NULL);
}

int main(void) {
  test_layout();
  test_share_and_copy();
  test_warm();
  test_window();
  test_snapshots();
  test_nothing_is_left_for_the_next();
  mtx_kv_layout plain_l = layout_make(1, 0, 0), window_l = layout_make(2, 70, 0), hybrid_l = layout_make(1, 0, 8),
                all_l = layout_make(2, 33, 8);
  mtx_kv_layout pure = {.type = MTX_KV_F16, .state_bytes = 8};
  for (uint64_t seed = 1; seed <= 8; seed++) {
    random_run(&plain_l, seed, 1000);
    random_run(&window_l, seed, 1000);
    random_run(&hybrid_l, seed, 1000);
    random_run(&all_l, seed, 1000);
    random_run(&pure, seed, 300);
  }
  return check_report();
}
