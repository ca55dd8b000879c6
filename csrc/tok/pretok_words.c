// SPDX-License-Identifier: MIT
// The word expressions of GPT-2, cl100k, o200k and their kin, as one scanner.
//
// Sources: the `pre_tokenizer` entries of the models' tokenizer.json, in the
// form llama.cpp gives them (src/llama-vocab.cpp), whose ids we must equal.
// There case is only known for ASCII: any other letter counts as both.
#include "tok/pretok_rules.h"

enum { L = MTX_UNI_L, N = MTX_UNI_N, P = MTX_UNI_P, S = MTX_UNI_S, M = MTX_UNI_M, WS = MTX_UNI_WS };

static bool newline(uint32_t cp) { return cp == '\r' || cp == '\n'; }

// Length of 's 't 'm 'd 're 've 'll at i, else 0. `any_case`: through the
// simple lower-case mapping.
static size_t contraction(const mtx_pretok_view *v, size_t i, size_t end, bool any_case) {
  if (i + 1 >= end || v->cp[i] != '\'') return 0;
  uint32_t a = any_case ? mtx_uni_lower(v->cp[i + 1]) : v->cp[i + 1];
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if (i + 2 >= end) return 0;
  uint32_t b = any_case ? mtx_uni_lower(v->cp[i + 2]) : v->cp[i + 2];
  return ((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

static size_t run_of(const mtx_pretok_view *v, size_t i, size_t end, uint8_t mask) {
  while (i < end && v->cls[i] & mask) i++;
  return i;
}

// \s+ before a non-space leaves that one space to the next word; at the end it
// takes all. [i, j) is the run.
static size_t spaces(size_t i, size_t j, size_t end) { return j < end && j - i > 1 ? j - 1 : j; }

size_t mtx_match_gpt2(const mtx_pretok_view *v, size_t i, size_t begin, size_t end, const mtx_pass *p) {
  (void)begin, (void)p;
  size_t n = contraction(v, i, end, false);
  if (n) return i + n;
  size_t w = v->cp[i] == ' ' && i + 1 < end ? i + 1 : i;
  uint8_t c = v->cls[w];
  if (c & L) return run_of(v, w, end, L);
  if (c & N) return run_of(v, w, end, N);
  if (!(c & (WS | L | N))) {
    while (w < end && !(v->cls[w] & (WS | L | N))) w++;
    return w;
  }
  return spaces(i, run_of(v, i, end, WS), end);
}

// o200k's word is A = U*W+ or else B = U+W*, U = upper or caseless, W = lower or
// caseless, where only ASCII letters have case. Both return the end, or i.
static size_t case_a(const mtx_pretok_view *v, size_t i, size_t end, uint8_t mask) {
  size_t j = i, last_caseless = i;
  while (j < end && v->cls[j] & mask && !(v->cp[j] >= 'a' && v->cp[j] <= 'z')) {
    j++;
    if (!(v->cp[j - 1] >= 'A' && v->cp[j - 1] <= 'Z')) last_caseless = j;
  }
  size_t k = j;
  while (k < end && v->cls[k] & mask && !(v->cp[k] >= 'A' && v->cp[k] <= 'Z')) k++;
  return k > j ? k : last_caseless;
}

static size_t case_b(const mtx_pretok_view *v, size_t i, size_t end, uint8_t mask) {
  size_t j = i;
  while (j < end && v->cls[j] & mask && !(v->cp[j] >= 'a' && v->cp[j] <= 'z')) j++;
  if (j == i) return i;
  while (j < end && v->cls[j] & mask && !(v->cp[j] >= 'A' && v->cp[j] <= 'Z')) j++;
  return j;
}

// Tries A behind one leading character, A without, then B the same way: with
// marks in the mask the leading character itself may be part of the word.
static size_t case_word(const mtx_pretok_view *v, size_t i, size_t end, uint8_t mask, bool lead) {
  size_t j;
  if (lead && (j = case_a(v, i + 1, end, mask)) > i + 1) return j;
  if ((j = case_a(v, i, end, mask)) > i) return j;
  if (lead && (j = case_b(v, i + 1, end, mask)) > i + 1) return j;
  return case_b(v, i, end, mask);
}

// EXAONE: words joined by single spaces: L M* ( ?L M*)*
static size_t phrase_run(const mtx_pretok_view *v, size_t i, size_t end) {
  if (i >= end || !(v->cls[i] & L)) return i;
  for (i++; i < end;) {
    if (v->cls[i] & (L | M)) {
      i++;
    } else if (v->cp[i] == ' ' && i + 1 < end && v->cls[i + 1] & L) {
      i += 2;
    } else {
      break;
    }
  }
  return i;
}

// The blocks of Han ideographs that Kimi K2 keeps apart from other letters.
static bool han(uint32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2EBEF) || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

static size_t body(const mtx_pretok_view *v, size_t i, size_t end, mtx_body kind) {
  switch (kind) {
    case MTX_BODY_L: return run_of(v, i, end, L);
    case MTX_BODY_LM: return run_of(v, i, end, L | M);
    case MTX_BODY_PHRASE: return phrase_run(v, i, end);
    case MTX_BODY_KIMI:
      while (i < end && v->cls[i] & L && !han(v->cp[i])) i++;
      return i;
    default: return i;
  }
}

static size_t word(const mtx_pretok_view *v, size_t i, size_t end, const mtx_words *r) {
  bool lead = !newline(v->cp[i]) && !(v->cls[i] & r->lead_not);
  size_t j = i;
  if (r->body == MTX_BODY_CASE || r->body == MTX_BODY_CASE_M) {
    j = case_word(v, i, end, r->body == MTX_BODY_CASE ? L : L | M, lead);
  } else {
    if (lead && (j = body(v, i + 1, end, r->body)) == i + 1) j = i;
    if (j == i) j = body(v, i, end, r->body);
  }
  if (j > i && r->suffix) j += contraction(v, j, end, true);
  return j;
}

static size_t punct(const mtx_pretok_view *v, size_t i, size_t end, const mtx_words *r) {
  size_t w = v->cp[i] == ' ' && i + 1 < end ? i + 1 : i, j = w;
  if (r->symbols) {
    while (j < end && v->cls[j] & (P | S)) j++;
  } else {
    while (j < end && !(v->cls[j] & r->punct_not)) j++;
  }
  if (j == w) return i;
  bool one = r->tail == MTX_TAIL_ONE_NL_SLASH, slash = one || r->tail == MTX_TAIL_NL_SLASH;
  if (r->tail == MTX_TAIL_NONE) return j;
  while (j < end && (newline(v->cp[j]) || (slash && v->cp[j] == '/'))) {
    j++;
    if (one) break;
  }
  return j;
}

// Jais 2: the largest of 512, 256, ... 4, 2, 1 spaces that leaves one space for
// the next word. A step inside a longer run (the code point before is a space
// too) knows from the first step that no newline follows, and looks 513 ahead
// at most, so a long run stays linear.
static size_t ladder(size_t i, size_t j, size_t end) {
  size_t n = j - i;
  for (size_t m = 512; m >= 4; m /= 2)
    if (n > m || (n == m && j == end)) return i + m;
  return n > 2 || (n == 2 && j == end) ? i + 2 : i + 1;
}

static size_t ascii_glued(const mtx_pretok_view *v, size_t i, size_t end) {
  uint32_t c = v->cp[i];
  if (!(c > ' ' && c < 127) || v->cls[i] & (L | N)) return i;
  size_t j = i + 1;
  while (j < end && v->cp[j] < 128 && v->cls[j] & L) j++;
  return j > i + 1 ? j : i;
}

size_t mtx_match_words(const mtx_pretok_view *v, size_t i, size_t begin, size_t end, const mtx_pass *p) {
  const mtx_words *r = p->arg;
  size_t j;
  if (r->contraction && (j = contraction(v, i, end, true))) return i + j;
  if (r->body == MTX_BODY_KIMI && han(v->cp[i])) {
    for (j = i + 1; j < end && han(v->cp[j]);) j++;
    return j;
  }
  if (r->ascii_punct && (j = ascii_glued(v, i, end)) > i) return j;
  if ((j = word(v, i, end, r)) > i) return j;
  if (r->digits && v->cls[i] & N) {
    for (j = i + 1; j < end && j - i < r->digits && v->cls[j] & N;) j++;
    return j;
  }
  if ((j = punct(v, i, end, r)) > i) return j;
  if (!(v->cls[i] & WS)) return i;

  if (r->single_newline && newline(v->cp[i])) return i + 1;
  size_t last = i, stop = end;
  if (r->space_ladder && i > begin && v->cls[i - 1] & WS && !newline(v->cp[i - 1]) && end - i > 513) stop = i + 513;
  for (j = i; j < stop && v->cls[j] & WS; j++)
    if (newline(v->cp[j])) last = j + 1;
  if (last > i && !r->single_newline) return last;
  return r->space_ladder ? ladder(i, j, end) : spaces(i, j, end);
}
