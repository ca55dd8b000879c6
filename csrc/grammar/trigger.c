// SPDX-License-Identifier: MIT
// Triggers, by Knuth-Morris-Pratt: one failure table each.
#include "grammar/trigger.h"

#include <stdlib.h>
#include <string.h>

#include "grammar/vec.h"

struct mtx_trigger {
  uint32_t n;
  bool optional;
  mtx_trigger_state s;
  char *text[MTX_TRIGGER_MAX];
  uint16_t *fail[MTX_TRIGGER_MAX];  // [len + 1] longest proper border of each prefix
  uint16_t len[MTX_TRIGGER_MAX];
  char *opening;
  uint16_t n_opening;
  bool opens_whole;  // a token of the vocabulary is the opening text
  bool scanned;
  uint32_t n_inside;  // the first ids hold a whole trigger and more, whatever came before
  MTX_VEC(uint32_t, ids);
};

static bool set_text(mtx_trigger *t, uint32_t i, const char *p, size_t n) {
  t->text[i] = malloc(n);
  t->fail[i] = calloc(n + 1, sizeof **t->fail);
  if (!t->text[i] || !t->fail[i]) return false;
  memcpy(t->text[i], p, n);
  t->len[i] = (uint16_t)n;
  for (size_t k = 1, b = 0; k < n; k++) {
    while (b && p[k] != p[b]) b = t->fail[i][b];
    if (p[k] == p[b]) b++;
    t->fail[i][k + 1] = (uint16_t)b;
  }
  return true;
}

// The first node below `node` for byte c, or 0.
static uint32_t child(const mtx_walk_node *nodes, uint32_t node, uint8_t c) {
  uint32_t i = node + 1;
  while (i < nodes[node].end && nodes[i].byte != c) i = nodes[i].end;
  return i < nodes[node].end ? i : 0;
}

static bool has_token(const mtx_vocab_trie *v, const char *text, size_t n) {
  uint32_t node = 0;
  for (size_t k = 0; k < n && (k == 0 || node); k++) node = child(v->trie.nodes, node, (uint8_t)text[k]);
  bool found = node && mtx_walk_trie_n_words(&v->trie, node) > 0;
  for (uint32_t i = 0; i < v->n_control && !found; i++) {  // control tokens are not in the trie
    const uint32_t id = v->control[i], at = v->offsets[id];
    found = v->offsets[id + 1] - at == n && !memcmp(v->bytes + at, text, n);
  }
  return found;
}

static bool set_opening(mtx_trigger *t, const char *p, size_t n) {
  if (!(t->opening = malloc(n))) return false;
  memcpy(t->opening, p, n);
  t->n_opening = (uint16_t)n;
  return true;
}

mtx_code mtx_trigger_new(const mtx_matcher_opts *opts, const mtx_vocab_trie *v, mtx_trigger **out, mtx_err *err) {
  *out = NULL;
  if (opts->n_triggers > MTX_TRIGGER_MAX)
    return mtx_fail(err, MTX_ELIMIT, "%zu triggers are too many; at most %d", opts->n_triggers, MTX_TRIGGER_MAX);
  mtx_trigger *t = calloc(1, sizeof *t);
  if (!t) return mtx_fail(err, MTX_ENOMEM, "out of memory");
  t->n = (uint32_t)opts->n_triggers;
  t->optional = opts->trigger_optional;
  if (opts->opening_len) {
    if (opts->opening_len > MTX_TRIGGER_MAX_BYTES) {
      free(t);
      return mtx_fail(err, MTX_EINVAL, "the opening text must have at most %d bytes", MTX_TRIGGER_MAX_BYTES);
    }
    if (!set_opening(t, opts->opening, opts->opening_len)) {
      free(t);
      return mtx_fail(err, MTX_ENOMEM, "out of memory");
    }
    t->opens_whole = v && has_token(v, t->opening, t->n_opening);
    t->s.choosing = true;
  }
  for (uint32_t i = 0; i < t->n; i++) {
    size_t n = opts->trigger_lens[i];
    if (n == 0 || n > MTX_TRIGGER_MAX_BYTES) {
      mtx_trigger_free(t);
      return mtx_fail(err, MTX_EINVAL, "a trigger must have 1 to %d bytes", MTX_TRIGGER_MAX_BYTES);
    }
    if (!set_text(t, i, opts->triggers[i], n)) {
      mtx_trigger_free(t);
      return mtx_fail(err, MTX_ENOMEM, "out of memory");
    }
  }
  *out = t;
  return MTX_OK;
}

void mtx_trigger_free(mtx_trigger *t) {
  if (!t) return;
  for (uint32_t i = 0; i < t->n; i++) {
    free(t->text[i]);
    free(t->fail[i]);
  }
  free(t->opening);
  free(t->ids);
  free(t);
}

bool mtx_trigger_choosing(const mtx_trigger *t) { return t->s.choosing; }
bool mtx_trigger_waiting(const mtx_trigger *t) { return !t->s.seen && !t->s.choosing; }
bool mtx_trigger_optional(const mtx_trigger *t) { return t->optional; }
mtx_trigger_state mtx_trigger_save(const mtx_trigger *t) { return t->s; }
void mtx_trigger_restore(mtx_trigger *t, mtx_trigger_state s) { t->s = s; }

bool mtx_trigger_opens_whole(const mtx_trigger *t) { return t->opens_whole; }

void mtx_trigger_constrain(mtx_trigger *t) {
  t->s.choosing = false;
  t->s.seen = true;
}

mtx_opening mtx_trigger_open(mtx_trigger *t, const char *p, size_t n, size_t *taken) {
  size_t blanks = 0;
  while (!t->s.opened && blanks < n && memchr(" \t\r\n", p[blanks], 4)) blanks++;
  if (blanks == n) return MTX_OPENING_BLANK;
  for (size_t k = 0; k < n && !blanks; k++) {
    if (p[k] != t->opening[t->s.opened]) break;
    if (++t->s.opened == t->n_opening) {
      t->s.choosing = false;
      *taken = k + 1;
      return MTX_OPENING_WHOLE;
    }
    if (k + 1 == n) return MTX_OPENING_PART;
  }
  mtx_trigger_constrain(t);
  return MTX_OPENING_NO;
}

size_t mtx_trigger_feed(mtx_trigger *t, const char *p, size_t n) {
  for (size_t k = 0; k < n; k++)
    for (uint32_t i = 0; i < t->n; i++) {
      uint16_t at = t->s.at[i];
      while (at && t->text[i][at] != p[k]) at = t->fail[i][at];
      if (t->text[i][at] == p[k]) at++;
      t->s.at[i] = at;
      if (at == t->len[i]) {
        t->s.seen = true;
        return k + 1;
      }
    }
  return n;
}

static bool add_id(mtx_trigger *t, uint32_t id) {
  if (!MTX_VEC_GROW(t, ids, 1, 1u << 28)) return false;
  t->ids[t->n_ids++] = id;
  return true;
}

// The token whose bytes hold the byte at `at` of all pieces.
static uint32_t token_at(const mtx_vocab_trie *v, size_t at) {
  uint32_t lo = 0, hi = v->n_tokens;  // offsets[lo] <= at < offsets[hi]
  while (hi - lo > 1) {
    uint32_t mid = lo + (hi - lo) / 2;
    if (v->offsets[mid] <= at)
      lo = mid;
    else
      hi = mid;
  }
  return lo;
}

// Tokens that hold a trigger and go on after it.
static bool scan(mtx_trigger *t, const mtx_vocab_trie *v) {
  const char *const end = v->bytes + v->offsets[v->n_tokens];
  t->n_ids = 0;
  for (uint32_t i = 0; i < t->n; i++)
    for (const char *p = v->bytes; (p = memmem(p, (size_t)(end - p), t->text[i], t->len[i])); p++) {
      const uint32_t id = token_at(v, (size_t)(p - v->bytes));
      if ((size_t)(p - v->bytes) + t->len[i] < v->offsets[id + 1] && !add_id(t, id)) return false;
    }
  t->n_inside = t->n_ids;
  t->scanned = true;
  return true;
}

// Tokens that begin with text[0..n) and have more bytes.
static bool add_longer(mtx_trigger *t, const mtx_vocab_trie *v, const char *text, size_t n) {
  const mtx_walk_node *nodes = v->trie.nodes;
  uint32_t node = 0;
  for (size_t k = 0; k < n; k++)
    if (!(node = child(nodes, node, (uint8_t)text[k]))) return true;
  for (uint32_t k = nodes[node + 1].tok; k < nodes[nodes[node].end].tok; k++)
    if (!add_id(t, v->trie.order[k])) return false;
  return true;
}

mtx_code mtx_trigger_candidates(mtx_trigger *t, const mtx_vocab_trie *v, const uint32_t **ids, uint32_t *n) {
  if (!t->scanned && !scan(t, v)) return MTX_ENOMEM;
  t->n_ids = t->n_inside;
  for (uint32_t i = 0; i < t->n; i++)
    for (uint16_t at = t->s.at[i]; at; at = t->fail[i][at])
      if (!add_longer(t, v, t->text[i] + at, (size_t)(t->len[i] - at))) return MTX_ENOMEM;
  // Control tokens are not in the trie; there are few.
  for (uint32_t i = 0; i < v->n_control; i++)
    if (!add_id(t, v->control[i])) return MTX_ENOMEM;
  *ids = t->ids;
  *n = t->n_ids;
  return MTX_OK;
}

mtx_code mtx_trigger_opening_candidates(mtx_trigger *t, const mtx_vocab_trie *v, const uint32_t **ids, uint32_t *n) {
  t->n_ids = 0;
  t->scanned = false;
  const char *text = t->opening + t->s.opened;
  const size_t left = (size_t)t->n_opening - t->s.opened;
  const mtx_walk_node *nodes = v->trie.nodes;
  uint32_t node = 0;
  for (size_t k = 0; k < left && (k == 0 || node); k++) {
    node = child(nodes, node, (uint8_t)text[k]);
    if (t->opens_whole && k + 1 < left) continue;
    for (uint32_t i = node ? nodes[node].tok : 0; node && i < nodes[node + 1].tok; i++)
      if (!add_id(t, v->trie.order[i])) return MTX_ENOMEM;
  }
  if (!add_longer(t, v, text, left)) return MTX_ENOMEM;
  for (uint32_t i = 0; i < v->n_control; i++) {
    const uint32_t id = v->control[i];
    const size_t len = v->offsets[id + 1] - v->offsets[id], both = len < left ? len : left;
    if (both >= (t->opens_whole ? left : 1) && !memcmp(v->bytes + v->offsets[id], text, both) && !add_id(t, id)) return MTX_ENOMEM;
  }
  *ids = t->ids;
  *n = t->n_ids;
  return MTX_OK;
}
