// SPDX-License-Identifier: MIT
// Decimals and number automata: see decimal.h.
#include "grammar/decimal.h"

#include <string.h>

#define MAX_MODULUS 3000u

bool mtx_decimal_read(const char *p, size_t n, mtx_decimal *out) {
  memset(out, 0, sizeof *out);
  char all[4 * MTX_DECIMAL_DIGITS];
  int n_all = 0, point = 0;
  size_t i = 0;
  bool negative = n && p[0] == '-', seen_point = false;
  long exp = 0;
  if (negative) i++;
  for (; i < n && p[i] != 'e' && p[i] != 'E'; i++) {
    if (p[i] == '.') {
      seen_point = true;
      continue;
    }
    if (n_all == 0 && p[i] == '0') {  // leading zeros move only the point
      if (seen_point) point--;
      continue;
    }
    if (n_all == (int)sizeof all) return false;
    all[n_all++] = p[i];
    if (!seen_point) point++;
  }
  if (i < n) {
    bool minus = i + 1 < n && p[i + 1] == '-';
    for (i += 1 + (i + 1 < n && (p[i + 1] == '-' || p[i + 1] == '+')); i < n; i++)
      if (exp < 100000) exp = exp * 10 + (p[i] - '0');
    if (minus) exp = -exp;
  }
  while (n_all && all[n_all - 1] == '0') n_all--;
  if (!n_all) return true;
  long at = point + exp;  // digits before the point
  if (at > MTX_DECIMAL_DIGITS || n_all - at > MTX_DECIMAL_DIGITS) return false;
  out->negative = negative;
  out->n_int = at > 0 ? (int)at : 0;
  int k = 0;
  for (long d = at > 0 ? 0 : at; d < n_all || d < at; d++) out->digits[k++] = d >= 0 && d < n_all ? all[d] : '0';
  out->n_frac = k - out->n_int;
  return true;
}

static int cmp_magnitude(const mtx_decimal *x, const mtx_decimal *y) {
  if (x->n_int != y->n_int) return x->n_int < y->n_int ? -1 : 1;
  int nx = x->n_int + x->n_frac, ny = y->n_int + y->n_frac;
  int c = memcmp(x->digits, y->digits, (size_t)(nx < ny ? nx : ny));
  if (c) return c < 0 ? -1 : 1;
  return nx < ny ? -1 : nx > ny;
}

int mtx_decimal_cmp(const mtx_decimal *x, const mtx_decimal *y) {
  if (x->negative != y->negative) return x->negative ? -1 : 1;
  return x->negative ? -cmp_magnitude(x, y) : cmp_magnitude(x, y);
}

bool mtx_decimal_is_integer(const mtx_decimal *x) { return x->n_frac == 0; }

// ---- comparing digit by digit -------------------------------------------------------
// States are (part, number of digits read, how the digits read compare with
// the bound's first digits). Integer part: the comparison counts only when as
// many digits were read as the bound has.

enum { LT, EQ, GT };
enum { ACCEPT_LT = 1, ACCEPT_EQ = 2, ACCEPT_GT = 4 };

typedef struct {
  const mtx_decimal *b;
  int accept, max_int, max_frac;
  bool integer;
} magnitude;

static int compare_digit(int cmp, char d, char bound) { return cmp != EQ ? cmp : d < bound ? LT : d > bound ? GT : EQ; }

static int after_int(const magnitude *m, int n, int cmp) {
  return n < m->b->n_int ? LT : n > m->b->n_int ? GT : cmp;
}

static int at_end(const magnitude *m, int n_frac, int cmp) { return cmp == EQ && n_frac < m->b->n_frac ? LT : cmp; }

// State numbers: 0 start; int part (n, cmp) for n 0..max_int, n 0 being the
// text "0"; fraction (n, cmp) for n 0..max_frac, n 0 being just after the point.
static uint32_t int_state(int n, int cmp) { return 1 + (uint32_t)(n * 3 + cmp); }
static uint32_t frac_state(const magnitude *m, int n, int cmp) { return 1 + (uint32_t)((m->max_int + 1 + n) * 3 + cmp); }

static bool magnitude_edges(mtx_cdfa *d, const magnitude *m, int n, int cmp) {
  bool ok = true;
  if (!m->integer) ok = mtx_cdfa_edge(d, '.', '.', frac_state(m, 0, after_int(m, n, cmp)));
  if (n == 0) return ok;  // nothing follows a leading 0
  for (char c = '0'; ok && c <= '9' && n < m->max_int; c++) {
    int next = n < m->b->n_int ? compare_digit(cmp, c, m->b->digits[n]) : GT;
    ok = mtx_cdfa_edge(d, (uint32_t)c, (uint32_t)c, int_state(n + 1, next));
  }
  return ok;
}

// Unsigned number texts whose value compares with b as `accept` says.
static mtx_cdfa *magnitude_cdfa(const mtx_decimal *b, int accept, bool integer) {
  magnitude m = {b, accept, MTX_NUMBER_MAX_DIGITS, MTX_NUMBER_MAX_DIGITS, integer};
  if (b->n_int > m.max_int) m.max_int = b->n_int;
  if (b->n_frac > m.max_frac) m.max_frac = b->n_frac;
  mtx_cdfa *d = mtx_cdfa_new();
  bool ok = d && mtx_cdfa_state(d, false) != UINT32_MAX;
  for (char c = '0'; ok && c <= '9'; c++) {
    int cmp = c == '0' ? EQ : b->n_int ? compare_digit(EQ, c, b->digits[0]) : GT;
    ok = mtx_cdfa_edge(d, (uint32_t)c, (uint32_t)c, int_state(c == '0' ? 0 : 1, cmp));
  }
  for (int n = 0; ok && n <= m.max_int; n++)
    for (int cmp = LT; ok && cmp <= GT; cmp++) {
      bool yes = accept >> at_end(&m, 0, after_int(&m, n, cmp)) & 1;
      ok = mtx_cdfa_state(d, yes) != UINT32_MAX && magnitude_edges(d, &m, n, cmp);
    }
  for (int n = 0; ok && !integer && n <= m.max_frac; n++)
    for (int cmp = LT; ok && cmp <= GT; cmp++) {
      ok = mtx_cdfa_state(d, n > 0 && (accept >> at_end(&m, n, cmp) & 1)) != UINT32_MAX;
      for (char c = '0'; ok && c <= '9' && n < m.max_frac; c++) {
        int next = compare_digit(cmp, c, n < b->n_frac ? b->digits[b->n_int + n] : '0');
        ok = mtx_cdfa_edge(d, (uint32_t)c, (uint32_t)c, frac_state(&m, n + 1, next));
      }
    }
  if (!ok) {
    mtx_cdfa_free(d);
    return NULL;
  }
  mtx_cdfa *min = mtx_cdfa_minimize(d);
  mtx_cdfa_free(d);
  return min;
}

static bool copy_states(mtx_cdfa *d, const mtx_cdfa *x, uint32_t base) {
  bool ok = true;
  for (uint32_t i = 0; ok && i < x->n_states; i++) {
    ok = mtx_cdfa_state(d, x->states[i].accept) != UINT32_MAX;
    for (uint32_t k = 0; ok && k < x->states[i].n_edges; k++) {
      const cd_edge *e = x->edges + x->states[i].edge + k;
      ok = mtx_cdfa_edge(d, e->lo, e->hi, base + e->to);
    }
  }
  return ok;
}

// Texts of pos, and '-' with texts of neg; either may be NULL (none).
static mtx_cdfa *with_sign(const mtx_cdfa *pos, const mtx_cdfa *neg) {
  mtx_cdfa *d = mtx_cdfa_new();
  bool ok = d && mtx_cdfa_state(d, false) != UINT32_MAX;
  const uint32_t n_pos = pos ? pos->n_states : 0;
  if (ok && neg) ok = mtx_cdfa_edge(d, '-', '-', 1 + n_pos);
  for (uint32_t k = 0; ok && pos && k < pos->states[0].n_edges; k++)
    ok = mtx_cdfa_edge(d, pos->edges[k].lo, pos->edges[k].hi, 1 + pos->edges[k].to);
  if (ok && pos) ok = copy_states(d, pos, 1);
  if (ok && neg) ok = copy_states(d, neg, 1 + n_pos);
  if (ok) return d;
  mtx_cdfa_free(d);
  return NULL;
}

// Numbers on one side of a bound: side +1 above, -1 below.
static mtx_cdfa *one_side(const mtx_decimal *b, int side, bool open, bool integer) {
  static const mtx_decimal zero = {0};
  const int eq = open ? 0 : ACCEPT_EQ;
  mtx_decimal m = *b;
  m.negative = false;
  const bool is_zero = b->n_int + b->n_frac == 0;
  mtx_cdfa *pos = NULL, *neg = NULL;
  if (side > 0) {
    // at and above b: all the positive ones when b is negative
    pos = b->negative ? magnitude_cdfa(&zero, ACCEPT_EQ | ACCEPT_GT, integer) : magnitude_cdfa(&m, ACCEPT_GT | eq, integer);
    if (b->negative) neg = magnitude_cdfa(&m, ACCEPT_LT | eq, integer);
  } else {
    neg = b->negative ? magnitude_cdfa(&m, ACCEPT_GT | eq, integer) : magnitude_cdfa(&zero, ACCEPT_GT, integer);
    if (!b->negative) pos = magnitude_cdfa(&m, (is_zero ? 0 : ACCEPT_LT) | eq, integer);
  }
  mtx_cdfa *d = pos || neg ? with_sign(pos, neg) : NULL;
  mtx_cdfa_free(pos);
  mtx_cdfa_free(neg);
  return d;
}

mtx_cdfa *mtx_number_range_cdfa(const mtx_number_range *r) {
  static const mtx_decimal zero = {0};
  mtx_cdfa *lo, *hi;
  if (r->has_lo) {
    lo = one_side(&r->lo, 1, r->lo_open, r->integer);
  } else {
    mtx_cdfa *pos = magnitude_cdfa(&zero, ACCEPT_EQ | ACCEPT_GT, r->integer);
    mtx_cdfa *neg = magnitude_cdfa(&zero, ACCEPT_GT, r->integer);
    lo = pos && neg ? with_sign(pos, neg) : NULL;
    mtx_cdfa_free(pos);
    mtx_cdfa_free(neg);
  }
  if (!r->has_hi || !lo) return lo;
  hi = one_side(&r->hi, -1, r->hi_open, r->integer);
  mtx_cdfa *d = hi ? mtx_cdfa_and(lo, hi) : NULL;
  mtx_cdfa_free(lo);
  mtx_cdfa_free(hi);
  return d;
}

// ---- multiples ---------------------------------------------------------------------------

static uint32_t gcd(uint32_t a, uint32_t b) {
  while (b) {
    uint32_t t = a % b;
    a = b;
    b = t;
  }
  return a;
}

// m as modulus / 10^scale; 0 if over the limit.
static uint32_t modulus_of(const mtx_decimal *m, int *scale) {
  uint64_t k = 0;
  for (int i = 0; i < m->n_int + m->n_frac; i++) {
    k = k * 10 + (uint64_t)(m->digits[i] - '0');
    if (k > 100000000) return 0;
  }
  *scale = m->n_frac;
  return (uint32_t)k;
}

mtx_cdfa *mtx_number_multiple_cdfa(const mtx_decimal *m, bool integer) {
  int scale;
  uint32_t k = modulus_of(m, &scale);
  if (!k) return NULL;
  if (integer) {
    for (; scale > 0; scale--) k /= gcd(k, 10);
  }
  if ((uint64_t)k * (uint64_t)(scale + 2) > MAX_MODULUS) return NULL;
  // State 0 start, 1 after '-', then (digits after the point, remainder): the
  // integer part, then n = 1..scale; one more row for "just after the point".
  mtx_cdfa *d = mtx_cdfa_new();
  bool ok = d != NULL;
  const uint32_t point = 2 + k * (uint32_t)(scale + 1);
  for (uint32_t s = 0; ok && s < 2; s++) {
    ok = mtx_cdfa_state(d, false) != UINT32_MAX;
    if (ok && s == 0) ok = mtx_cdfa_edge(d, '-', '-', 1);
    for (uint32_t c = 0; ok && c < 10; c++) ok = mtx_cdfa_edge(d, '0' + c, '0' + c, 2 + c % k);
  }
  for (int n = 0; ok && n <= scale; n++)
    for (uint32_t r = 0; ok && r < k; r++) {
      uint64_t left = r;
      for (int i = n; i < scale; i++) left = left * 10 % k;
      ok = mtx_cdfa_state(d, left == 0) != UINT32_MAX;
      if (ok && n == 0 && scale) ok = mtx_cdfa_edge(d, '.', '.', point + r);
      const uint32_t row = n == 0 ? 0 : (uint32_t)n + 1;
      for (uint32_t c = 0; ok && c < 10 && row <= (uint32_t)scale; c++)
        ok = mtx_cdfa_edge(d, '0' + c, '0' + c, 2 + row * k + (r * 10 + c) % k);
    }
  for (uint32_t r = 0; ok && scale && r < k; r++) {
    ok = mtx_cdfa_state(d, false) != UINT32_MAX;
    for (uint32_t c = 0; ok && c < 10; c++) ok = mtx_cdfa_edge(d, '0' + c, '0' + c, 2 + k + (r * 10 + c) % k);
  }
  if (ok) return d;
  mtx_cdfa_free(d);
  return NULL;
}

bool mtx_decimal_is_multiple(const mtx_decimal *x, const mtx_decimal *m) {
  int scale;
  uint32_t k = modulus_of(m, &scale);
  if (!k) return false;
  uint64_t r = 0;
  for (int i = 0; i < x->n_int; i++) r = (r * 10 + (uint64_t)(x->digits[i] - '0')) % k;
  for (int i = 0; i < scale || i < x->n_frac; i++) {
    int d = i < x->n_frac ? x->digits[x->n_int + i] - '0' : 0;
    if (i >= scale) {
      if (d) return false;
      continue;
    }
    r = (r * 10 + (uint64_t)d) % k;
  }
  return r == 0;
}
