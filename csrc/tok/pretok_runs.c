// SPDX-License-Identifier: MIT
// Pre-tokenizer passes that are runs of one set of characters, and the few
// odd ones: newlines, digits in threes, Chameleon's markers.
//
// Sources: as for pretok_words.c. Where the reference works on wide characters,
// every white space above U+007F was first made a vertical tab, so it belongs
// to \s and to no listed range; `member` keeps to that.
#include "tok/pretok_rules.h"

#include <string.h>

enum { L = MTX_UNI_L, N = MTX_UNI_N, WS = MTX_UNI_WS };

static bool member(const mtx_pretok_view *v, size_t i, const mtx_set *s) {
  uint32_t c = v->cp[i];
  bool in = v->cls[i] & s->mask;
  if (!in && s->ascii && c > 0 && c < 128) in = strchr(s->ascii, (int)c) != NULL;
  if (!in && !(c >= 128 && v->cls[i] & WS))
    for (size_t k = 0; k < s->n_ranges && !in; k++) in = c >= s->range[k][0] && c <= s->range[k][1];
  return in != s->negate;
}

size_t mtx_match_run(const mtx_pretok_view *v, size_t i, size_t begin, size_t end, const mtx_pass *p) {
  (void)begin;
  const mtx_run *r = p->arg;
  size_t j = i;
  if ((r->lead == MTX_LEAD_SPACE && v->cp[i] == ' ') || (r->lead == MTX_LEAD_WS && v->cls[i] & WS))
    if (i + 1 < end && member(v, i + 1, &r->set)) j = i + 1;
  size_t k = j;
  while (k < end && (!r->max || k - j < r->max) && member(v, k, &r->set)) k++;
  return k - j < (r->min ? r->min : 1) ? i : k;
}

// Youtu: runs of Hangul, of East Asian punctuation, of Bopomofo, of Han and kana.
size_t mtx_match_youtu(const mtx_pretok_view *v, size_t i, size_t begin, size_t end, const mtx_pass *p) {
  (void)begin, (void)p;
  static const uint32_t hangul[][2] = {{0xAC00, 0xD7A3}, {0x3131, 0x318E}};
  static const uint32_t marks[][2] = {{0xFF01, 0xFF01}, {0x2026, 0x2026}, {0x201C, 0x201D}, {0x2018, 0x2019},
                                      {0x2014, 0x2014}, {0xFF1A, 0xFF1B}, {0xFF0C, 0xFF0C}, {0x3001, 0x303F}, {0xFE30, 0xFE4F}};
  static const uint32_t bopomofo[][2] = {{0x3105, 0x312F}};
  static const uint32_t han_kana[][2] = {{0x4E00, 0x9FA5}, {0x3040, 0x30FF}};
  static const mtx_set sets[] = {{.range = hangul, .n_ranges = 2}, {.range = marks, .n_ranges = 9},
                                 {.range = bopomofo, .n_ranges = 1}, {.range = han_kana, .n_ranges = 2}};
  for (size_t s = 0; s < sizeof sets / sizeof *sets; s++) {
    size_t j = i;
    while (j < end && member(v, j, &sets[s])) j++;
    if (j > i) return j;
  }
  return i;
}

static size_t literal(const mtx_pretok_view *v, size_t i, size_t end, const char *s) {
  for (; *s; s++, i++)
    if (i >= end || v->cp[i] != (unsigned char)*s) return 0;
  return i;
}

// <sentinel:123> and IMGIMG with 1 to 4 letters A..I and Z.
size_t mtx_match_chameleon_mark(const mtx_pretok_view *v, size_t i, size_t begin, size_t end, const mtx_pass *p) {
  (void)begin;
  if (!p->arg) {
    size_t j = literal(v, i, end, "<sentinel:"), k = j;
    if (!j) return i;
    while (k < end && v->cp[k] >= '0' && v->cp[k] <= '9') k++;
    return k > j && k < end && v->cp[k] == '>' ? k + 1 : i;
  }
  size_t j = literal(v, i, end, "IMGIMG"), k = j;
  if (!j) return i;
  while (k < end && k - j < 4 && v->cp[k] >= 'A' && v->cp[k] <= 'I') k++;
  return k > j && k < end && v->cp[k] == 'Z' ? k + 1 : i;
}

// A tab, a newline, four spaces, two spaces.
size_t mtx_match_chameleon_space(const mtx_pretok_view *v, size_t i, size_t begin, size_t end, const mtx_pass *p) {
  (void)begin, (void)p;
  if (v->cp[i] == '\t' || v->cp[i] == '\n') return i + 1;
  size_t j = literal(v, i, end, "    ");
  if (!j) j = literal(v, i, end, "  ");
  return j ? j : i;
}

// \s+$
mtx_code mtx_cut_trailing_space(const mtx_pretok_view *v, size_t begin, size_t end, mtx_cuts *out, mtx_err *err) {
  size_t j = end;
  while (j > begin && v->cls[j - 1] & WS) j--;
  if (j > begin && j < end) {
    mtx_code rc = mtx_cuts_push(out, j, err);
    if (rc) return rc;
  }
  return mtx_cuts_push(out, end, err);
}

// [^\n]+|[\n]+
mtx_code mtx_cut_newlines(const mtx_pretok_view *v, size_t begin, size_t end, mtx_cuts *out, mtx_err *err) {
  for (size_t i = begin + 1; i < end; i++)
    if ((v->cp[i] == '\n') != (v->cp[i - 1] == '\n')) {
      mtx_code rc = mtx_cuts_push(out, i, err);
      if (rc) return rc;
    }
  return mtx_cuts_push(out, end, err);
}

static bool ascii_digit(uint32_t c) { return c >= '0' && c <= '9'; }

// Cuts before every digit from which a multiple of three is left in its run.
mtx_code mtx_cut_digit_thirds(const mtx_pretok_view *v, size_t begin, size_t end, mtx_cuts *out, mtx_err *err) {
  for (size_t i = begin; i < end;) {
    size_t j = i;
    while (j < end && ascii_digit(v->cp[j])) j++;
    for (size_t k = i; k < j; k++)
      if ((j - k) % 3 == 0 && k > begin) {
        mtx_code rc = mtx_cuts_push(out, k, err);
        if (rc) return rc;
      }
    i = j > i ? j : i + 1;
  }
  return mtx_cuts_push(out, end, err);
}

// Numbers in threes from the right; what stands between them stays whole.
mtx_code mtx_cut_afmoe_digits(const mtx_pretok_view *v, size_t begin, size_t end, mtx_cuts *out, mtx_err *err) {
  mtx_code rc;
  size_t from = begin;
  for (size_t i = begin; i < end;) {
    if (!(v->cls[i] & N)) {
      i++;
      continue;
    }
    size_t j = i;
    while (j < end && v->cls[j] & N) j++;
    size_t head = (j - i) % 3;
    // As the reference does, text before the number goes with its first group.
    for (size_t k = i + (head ? head : 3); k <= j; k += 3) {
      if ((rc = mtx_cuts_push(out, k, err))) return rc;
      from = k;
    }
    i = j;
  }
  return from < end ? mtx_cuts_push(out, end, err) : MTX_OK;
}

static bool ascii_word(uint32_t c) {
  return ascii_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// \d{1,3}(?=(?:\d{3})*\b): groups of three from the right, if a word ends there.
mtx_code mtx_cut_aya_digits(const mtx_pretok_view *v, size_t begin, size_t end, mtx_cuts *out, mtx_err *err) {
  mtx_code rc;
  size_t from = begin;
  for (size_t i = begin; i < end;) {
    size_t j = i;
    while (j < end && ascii_digit(v->cp[j])) j++;
    if (j == i) {
      i++;
      continue;
    }
    if (j == end || !ascii_word(v->cp[j])) {
      if (i > from && (rc = mtx_cuts_push(out, i, err))) return rc;
      size_t head = (j - i) % 3;
      for (size_t k = i + (head ? head : 3); k <= j; k += 3)
        if ((rc = mtx_cuts_push(out, k, err))) return rc;
      from = j;
    }
    i = j;
  }
  return from < end ? mtx_cuts_push(out, end, err) : MTX_OK;
}
