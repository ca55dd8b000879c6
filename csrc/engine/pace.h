// SPDX-License-Identifier: MIT
// How many prompt rows a step may take while others decode, from measured times.
//
// A running stream feels a step's length as the gap between two of its tokens.
// So a step with prompt rows is kept to a multiple of what the decoding rows
// cost alone. Both sides are measured: a row of prompt is dearer deep in a long
// context, and decoding is dearer with more sequences, so that no constant
// would do. Prompts alone are cut too, but only so that nobody waits half a second
// for a step's end. Chunks may be cut anywhere: the bits do not depend on it.
#ifndef MTX_ENGINE_PACE_H
#define MTX_ENGINE_PACE_H

#include <stdint.h>

enum { MTX_PACE_COUNTS = 64 };  // numbers of decoding rows told apart; more count as the last

typedef struct mtx_pace {
  double ms_decode[MTX_PACE_COUNTS];  // mean time of a step of i + 1 decoding rows alone; 0 = not known
  int age[MTX_PACE_COUNTS];           // mixed steps since it was last measured
  double ms_row;                      // mean time a prompt row adds; 0 = not known
} mtx_pace;

// A step of n_decode and n_prefill rows took ms.
void mtx_pace_measure(mtx_pace *p, int n_decode, int n_prefill, double ms);
// Prompt rows, at most room, that keep a step of n_decode decoding rows near ratio
// times their own time, of which spent_ms are gone already: a step that had to wait
// for memory or for its core takes fewer. 0: the decoding rows shall go alone, to be measured or because
// most of the prompt's share is gone (not twice in a row).
int64_t mtx_pace_rows(const mtx_pace *p, int n_decode, double ratio, double spent_ms, int64_t room);

#endif
