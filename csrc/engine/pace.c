// SPDX-License-Identifier: MIT
// Sizes of prefill chunks: see pace.h.
#include "engine/pace.h"

enum {
  FIRST_ROWS = 16,   // before a prompt row has been measured
  LEAST_ROWS = 2,    // prompts go on however dear their rows are
  LONE_ROWS = 128,   // a step of prompts alone takes so many rows at least: fewer would waste the weights' way through the caches
  LONE_MS = 500,     // and otherwise ends after about this long: newcomers and cancels wait for its end
  HELD_MS = 1,       // what always passes between two steps is no wait
  MAX_AGE = 64,      // mixed steps after which decoding is measured again
};

static int slot(int n_decode) { return n_decode < MTX_PACE_COUNTS ? n_decode - 1 : MTX_PACE_COUNTS - 1; }

static void follow(double *mean, double ms, double weight) {
  *mean += (ms - *mean) * (*mean > 0 ? weight : 1);
  if (*mean < 1e-6) *mean = 1e-6;  // a clock may stand still; known it is all the same
}

void mtx_pace_measure(mtx_pace *p, int n_decode, int n_prefill, double ms) {
  if (!n_prefill) {
    if (n_decode) {
      double *alone = &p->ms_decode[slot(n_decode)];
      follow(alone, ms, ms > *alone ? 0.02 : 0.3);  // what other programs took away is not its cost
      p->age[slot(n_decode)] = 0;
    }
    return;
  }
  double own = ms;
  if (n_decode) {
    p->age[slot(n_decode)]++;
    own -= p->ms_decode[slot(n_decode)];
  }
  // A prompt's rows become dearer as it gets deeper, and a step that others have held up is followed by a small one; but
  // neither may last: at two rows a step most of the time goes to streaming weights and the KV cache once more.
  double row = own / n_prefill;
  if (row > 0) follow(&p->ms_row, row, row > p->ms_row ? 0.5 : 0.3);
}

int64_t mtx_pace_rows(const mtx_pace *p, int n_decode, double ratio, double spent_ms, int64_t room) {
  if (!n_decode) {
    double fit = p->ms_row > 0 ? LONE_MS / p->ms_row : (double)room;
    if (fit < LONE_ROWS) fit = LONE_ROWS;
    return fit < (double)room ? (int64_t)fit / LEAST_ROWS * LEAST_ROWS : room;
  }
  double alone = p->ms_decode[slot(n_decode)];
  if (alone <= 0 || p->age[slot(n_decode)] >= MAX_AGE) return 0;
  double share = (ratio - 1) * alone, left = share - spent_ms, fit = p->ms_row > 0 ? left / p->ms_row : left > 0 ? FIRST_ROWS : 0;
  if (spent_ms > HELD_MS && left < share / 2 && p->age[slot(n_decode)] > 0) return 0;
  if (fit >= (double)room) return room;
  int64_t n = fit > 0 ? (int64_t)fit / LEAST_ROWS * LEAST_ROWS : 0;
  if (n < LEAST_ROWS) n = LEAST_ROWS;
  return n < room ? n : room;
}
