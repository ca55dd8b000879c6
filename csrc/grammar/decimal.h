// SPDX-License-Identifier: MIT
// Exact decimal numbers and the automata of numbers within bounds.
//
// Bounds of a schema are decimals; comparing them as doubles would let
// 9007199254740993 pass for 9007199254740992. A decimal is kept as plain
// digits before and after the point, and "between lo and hi" becomes an
// automaton over those digits.
#ifndef MTX_GRAMMAR_DECIMAL_H
#define MTX_GRAMMAR_DECIMAL_H

#include <stdbool.h>
#include <stddef.h>

#include "grammar/cdfa.h"

#define MTX_DECIMAL_DIGITS 64

typedef struct {
  bool negative;  // never with value 0
  int n_int, n_frac;
  char digits[2 * MTX_DECIMAL_DIGITS];  // n_int digits (none leading 0; n_int 0 for 0.x), then n_frac (none trailing 0)
} mtx_decimal;

// JSON number text; false if it needs more than MTX_DECIMAL_DIGITS on a side.
bool mtx_decimal_read(const char *text, size_t n, mtx_decimal *out);
int mtx_decimal_cmp(const mtx_decimal *x, const mtx_decimal *y);
bool mtx_decimal_is_integer(const mtx_decimal *x);

// Digits allowed on each side of the point where no bound limits them: keeps
// a model from writing digits for ever, holds every 64-bit integer and double.
#define MTX_NUMBER_MAX_DIGITS 24

typedef struct {
  bool integer;                // no fraction
  bool has_lo, has_hi, lo_open, hi_open;  // open: the bound itself is excluded
  mtx_decimal lo, hi;
} mtx_number_range;

// Number texts without exponent in the range. NULL: out of memory.
mtx_cdfa *mtx_number_range_cdfa(const mtx_number_range *r);
// Number texts that are multiples of m (> 0), any sign. NULL: m is not
// decidable within the limits (or out of memory).
mtx_cdfa *mtx_number_multiple_cdfa(const mtx_decimal *m, bool integer);
// x is a multiple of m; false if not decidable.
bool mtx_decimal_is_multiple(const mtx_decimal *x, const mtx_decimal *m);

#endif
