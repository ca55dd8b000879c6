// SPDX-License-Identifier: MIT
// Which repetitions of an expression are the inside of a string: wide text up to
// the literal that ends it.
#include "grammar/build.h"
#include "grammar/text.h"

#define WIDE_BYTES 24   // first bytes from which a repetition is worth a rule of its own
#define MAX_VISITS 500  // expressions looked at for that; they may share parts

typedef struct {
  uint64_t first[4];
  int n_visits;
} look;

static void add_first(look *l, uint32_t lo, uint32_t hi) {
  for (uint32_t c = lo; c <= hi; c++) l->first[c >> 6] |= 1ull << (c & 63);
}

static uint32_t lead_byte(uint32_t c) {
  char utf8[4];
  mtx_utf8_put(c, utf8);
  return (uint8_t)utf8[0];
}

// Adds the bytes x may begin with while `at_start`; false if it names rules or tokens
// (then it is no plain text) or is too large. *empty: it may match nothing.
static bool look_at(const mtx_gb *b, mtx_gx x, bool at_start, look *l, bool *empty) {
  const gx_node *n = b->nodes + x;
  bool kid_empty = true;
  if (++l->n_visits > MAX_VISITS) return false;
  *empty = n->kind == GX_EMPTY || n->kind == GX_OPT || n->kind == GX_STAR || n->kind == GX_CAT;
  switch (n->kind) {
    case GX_EMPTY:
    case GX_NEVER: return true;
    case GX_LIT:
      if (at_start) add_first(l, b->bytes[n->a], b->bytes[n->a]);
      return true;
    case GX_CLASS:
      for (uint32_t i = 0; i < n->n && at_start; i++) add_first(l, lead_byte(b->ranges[n->a + i].lo), lead_byte(b->ranges[n->a + i].hi));
      return true;
    case GX_ALT:
    case GX_CAT:
      for (uint32_t i = 0; i < n->n; i++) {
        if (!look_at(b, b->kids[n->a + i], at_start, l, &kid_empty)) return false;
        if (n->kind == GX_ALT) {
          *empty |= kid_empty;
        } else {
          *empty &= kid_empty;
          at_start &= kid_empty;
        }
      }
      return true;
    case GX_OPT:
    case GX_STAR:
    case GX_PLUS:
      if (!look_at(b, n->a, at_start, l, &kid_empty)) return false;
      *empty |= kid_empty;
      return true;
    default: return false;
  }
}

bool mtx_gx_is_inside(const mtx_gb *b, mtx_gx x, mtx_gx after) {
  const gx_node *n = b->nodes + x, *next = b->nodes + after;
  look l = {.n_visits = 0};
  bool empty;
  if ((n->kind != GX_STAR && n->kind != GX_PLUS) || next->kind != GX_LIT || !look_at(b, n->a, true, &l, &empty)) return false;
  int n_first = 0;
  for (int k = 0; k < 4; k++) n_first += __builtin_popcountll(l.first[k]);
  return n_first >= WIDE_BYTES && !gr_has_byte(l.first, b->bytes[next->a]);
}
