// SPDX-License-Identifier: MIT
// Prefill chunks beside decoding rows: on a simulated machine whose rows become
// dearer with depth and company, no step but the first few may take more than
// the ratio asks for, nothing starves, and nothing is held back without need.
#include "check.h"
#include "engine/pace.h"

// Milliseconds of a step: weights once, then every row, prompt rows by their depth.
static double step_ms(double dear, int n_decode, int64_t n_prefill, int64_t depth) {
  return 2 + 0.5 * n_decode + (double)n_prefill * dear * (1 + (double)depth / 2000);
}

// Feeds a prompt of n tokens beside n_decode running streams; the largest step over the decode part,
// after `settle` mixed steps. Counts mixed and pure steps.
static double feed(mtx_pace *p, double dear, int n_decode, int64_t n, double ratio, int settle, int *mixed, int *pure) {
  double worst = 0, alone = step_ms(dear, n_decode, 0, 0);
  *mixed = *pure = 0;
  for (int64_t at = 0; at < n;) {
    int64_t rows = mtx_pace_rows(p, n_decode, ratio, 0, n - at < 512 ? n - at : 512);
    double ms = step_ms(dear, n_decode, rows, at);
    mtx_pace_measure(p, n_decode, (int)rows, ms);
    at += rows;
    rows ? ++*mixed : ++*pure;
    if (rows && *mixed > settle && ms / alone > worst) worst = ms / alone;
    if (*mixed + *pure > 100000) return 1e9;
  }
  return worst;
}

static void test_alone_takes_all(void) {
  mtx_pace p = {0};
  CHECK(mtx_pace_rows(&p, 0, 3, 0, 512) == 512);
  mtx_pace_measure(&p, 0, 512, 100);
  CHECK(mtx_pace_rows(&p, 0, 3, 0, 512) == 512);
  CHECK(mtx_pace_rows(&p, 0, 3, 0, 7) == 7);
}

static void test_alone_no_step_is_endless(void) {
  mtx_pace p = {0};
  double longest = 0;
  for (int64_t at = 0; at < 32000;) {
    int64_t rows = mtx_pace_rows(&p, 0, 3, 0, 512);
    double ms = step_ms(0.5, 0, rows, at);
    CHECK(rows == 512 || rows >= 128);
    if (rows > 128 && at > 2000 && ms > longest) longest = ms;
    mtx_pace_measure(&p, 0, (int)rows, ms);
    at += rows;
  }
  CHECK(longest < 750 && longest > 250, "%.0f ms", longest);
}

static void test_unknown_decode_is_measured_alone(void) {
  mtx_pace p = {0};
  CHECK(mtx_pace_rows(&p, 3, 3, 0, 512) == 0);
  mtx_pace_measure(&p, 3, 0, 5);
  CHECK(mtx_pace_rows(&p, 3, 3, 0, 512) > 0);
  CHECK(mtx_pace_rows(&p, 4, 3, 0, 512) == 0);
  mtx_pace_measure(&p, 4, 0, 0);  // a clock that stands still counts as known
  CHECK(mtx_pace_rows(&p, 4, 3, 0, 512) > 0);
  for (int n = 1; n < 1000; n++) {  // any number of rows has a slot
    if (!mtx_pace_rows(&p, n, 3, 0, 512)) mtx_pace_measure(&p, n, 0, 5);
    CHECK(mtx_pace_rows(&p, n, 3, 0, 512) > 0);
  }
}

static void test_steps_stay_near_the_ratio(void) {
  const double dears[] = {0.01, 0.1, 0.6}, ratios[] = {2, 3, 4};
  for (int d = 0; d < 3; d++)
    for (int r = 0; r < 3; r++)
      for (int n_decode = 1; n_decode <= 8; n_decode += 7) {
        mtx_pace p = {0};
        int mixed, pure;
        mtx_pace_measure(&p, 0, 512, step_ms(dears[d], 0, 512, 0));  // what a full chunk told
        double worst = feed(&p, dears[d], n_decode, 8000, ratios[r], 2, &mixed, &pure);
        double least = step_ms(dears[d], n_decode, 2, 8000) / step_ms(dears[d], n_decode, 0, 0);  // the smallest chunk there is
        CHECK(worst <= (least > ratios[r] ? least : ratios[r]) * 1.25, "dear %.2f ratio %.0f n %d: %.2f, least %.2f", dears[d], ratios[r], n_decode, worst, least);
        CHECK(pure <= 2 + mixed / 32);
        // Not held back: the whole prompt takes no more steps than its cost at half the ratio's share.
        double cost = 0;
        for (int at = 0; at < 8000; at++) cost += dears[d] * (1 + at / 2000.0);
        CHECK(mixed <= 20 + cost / ((ratios[r] - 1) * step_ms(dears[d], n_decode, 0, 0) * 0.5));
      }
}

static void test_a_short_prompt_after_a_deep_one_grows_again(void) {
  mtx_pace p = {0};
  int mixed, pure;
  feed(&p, 0.5, 4, 8000, 3, 1, &mixed, &pure);
  int64_t before = mtx_pace_rows(&p, 4, 3, 0, 512);
  feed(&p, 0.5, 4, 500, 3, 1, &mixed, &pure);
  CHECK(mtx_pace_rows(&p, 4, 3, 0, 512) > before);
}

// A measurement that other programs disturbed lets no chunk grow much, though the next one is 64 mixed steps away.
static void test_a_hiccup_is_no_cost_of_decoding(void) {
  mtx_pace p = {0};
  mtx_pace_measure(&p, 0, 512, 256);
  for (int i = 0; i < 20; i++) mtx_pace_measure(&p, 4, 0, 4);
  int64_t before = mtx_pace_rows(&p, 4, 2.5, 0, 512);
  mtx_pace_measure(&p, 4, 0, 40);
  CHECK(before == 12 && mtx_pace_rows(&p, 4, 2.5, 0, 512) <= 14, "%lld, then %lld", (long long)before, (long long)mtx_pace_rows(&p, 4, 2.5, 0, 512));
  for (int i = 0; i < 100; i++) mtx_pace_measure(&p, 4, 0, 8);  // what lasts is believed
  CHECK(mtx_pace_rows(&p, 4, 2.5, 0, 512) >= 20);
}

// What a step has waited for before its rows were chosen is taken off the prompt's share, and no more than that.
static void test_a_step_that_has_waited_takes_fewer(void) {
  mtx_pace p = {0};
  CHECK(mtx_pace_rows(&p, 0, 2.5, 1000, 512) == 512, "prompts alone wait for nothing");
  mtx_pace_measure(&p, 4, 0, 4);
  CHECK(mtx_pace_rows(&p, 4, 2.5, 0, 512) == 16 && mtx_pace_rows(&p, 4, 2.5, 7, 512) == 2, "before a row has been measured");
  mtx_pace_measure(&p, 0, 512, 256);
  CHECK(mtx_pace_rows(&p, 4, 2.5, 0, 512) == 12 && mtx_pace_rows(&p, 4, 2.5, 2, 512) == 8 && mtx_pace_rows(&p, 4, 2.5, 5.5, 512) == 2);
  CHECK(mtx_pace_rows(&p, 4, 2.5, 6, 512) == 2 && mtx_pace_rows(&p, 4, 2.5, 1000, 512) == 2 && mtx_pace_rows(&p, 4, 2.5, 1000, 1) == 1, "it goes on");
}

// A step whose share is mostly gone takes no prompt rows at all, but the next one does.
static void test_a_step_that_has_waited_long_takes_none(void) {
  mtx_pace p = {0};
  mtx_pace_measure(&p, 4, 0, 4);
  mtx_pace_measure(&p, 4, 12, 10);
  CHECK(mtx_pace_rows(&p, 4, 2.5, 0, 512) == 12 && mtx_pace_rows(&p, 4, 2.5, 2.9, 512) == 6);
  CHECK(mtx_pace_rows(&p, 4, 2.5, 3.1, 512) == 0 && mtx_pace_rows(&p, 4, 2.5, 1000, 512) == 0);
  mtx_pace_measure(&p, 4, 0, 4);
  CHECK(mtx_pace_rows(&p, 4, 2.5, 3.1, 512) == 4 && mtx_pace_rows(&p, 4, 2.5, 1000, 512) == 2, "not twice in a row");
  mtx_pace_measure(&p, 4, 2, 5);
  CHECK(mtx_pace_rows(&p, 4, 1, 0.5, 512) == 2, "what always passes between two steps holds no prompt back");
}

// A step that others held up makes the next chunk small; a few later it is nearly what it was.
static void test_a_hiccup_is_no_cost_of_a_prompt(void) {
  mtx_pace p = {0};
  mtx_pace_measure(&p, 4, 0, 4);
  for (int i = 0; i < 20; i++) mtx_pace_measure(&p, 4, 12, 10);
  mtx_pace_measure(&p, 4, 12, 30);
  CHECK(mtx_pace_rows(&p, 4, 2.5, 0, 512) < 6);
  for (int i = 0; i < 5; i++) mtx_pace_measure(&p, 4, 4, 6);
  CHECK(mtx_pace_rows(&p, 4, 2.5, 0, 512) >= 8, "%lld", (long long)mtx_pace_rows(&p, 4, 2.5, 0, 512));
}

int main(void) {
  test_a_step_that_has_waited_long_takes_none();
  test_a_hiccup_is_no_cost_of_a_prompt();
  test_alone_takes_all();
  test_alone_no_step_is_endless();
  test_unknown_decode_is_measured_alone();
  test_steps_stay_near_the_ratio();
  test_a_short_prompt_after_a_deep_one_grows_again();
  test_a_hiccup_is_no_cost_of_decoding();
  test_a_step_that_has_waited_takes_fewer();
  return check_report();
}
