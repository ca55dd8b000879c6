// SPDX-License-Identifier: MIT
// Unigram (T5, XLM-R): the segmentation with the highest sum of scores, by
// Viterbi over a trie, after SentencePiece's normalisation.
//
// Normalisation rules come compiled (`precompiled_charsmap`): a double array
// over UTF-8 prefixes whose leaves point into a block of replacement strings.
// Format: SentencePiece's normalizer.cc and darts-clone; every index is checked.
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "tok/unicode.h"
#include "tok/vocab.h"

static const char charsmap_key[] = "tokenizer.ggml.precompiled_charsmap";

static mtx_code load_charsmap(mtx_tok *t, const mtx_gguf *g, mtx_err *err) {
  const mtx_gguf_kv *kv = mtx_gguf_find(g, charsmap_key);
  if (!kv) return MTX_OK;
  if (kv->type != MTX_GGUF_ARRAY || (kv->item_type != MTX_GGUF_U8 && kv->item_type != MTX_GGUF_I8))
    return mtx_tok_bad(g, err, charsmap_key, "an array of bytes expected");
  if (!kv->n) return MTX_OK;
  uint32_t size;
  if (kv->n < sizeof size) return mtx_tok_bad(g, err, charsmap_key, "%llu bytes are too short for its header", (unsigned long long)kv->n);
  memcpy(&size, kv->data, sizeof size);
  if (size > kv->n - sizeof size) return mtx_tok_bad(g, err, charsmap_key, "its table of %u bytes lies outside its %llu bytes", size, (unsigned long long)kv->n);
  t->n_xcda = size / sizeof *t->xcda;
  t->xcda = malloc(t->n_xcda * sizeof *t->xcda + 1);
  if (!t->xcda) return mtx_fail(err, MTX_ENOMEM, "no memory for the charsmap");
  memcpy(t->xcda, kv->data + sizeof size, t->n_xcda * sizeof *t->xcda);
  return mtx_buf_append(&t->replacements, kv->data + sizeof size + size, (size_t)kv->n - sizeof size - size, err);
}

// Along the charsmap by byte c. Entries: bits 0-7 and 31 label, 8 leaf, 9 shift, 10-30 base.
typedef enum { NO_WAY, ON, LEAF, BROKEN } map_step;

static uint32_t map_children(uint32_t entry) { return (entry >> 10) << ((entry & 512) >> 6); }

// children: of the node that is left, then of the one that is reached; a leaf's replacement begins at entry [*children].
static map_step step_map(const mtx_tok *t, uint32_t *children, uint8_t c) {
  uint32_t node = *children ^ c;
  if (node >= t->n_xcda) return BROKEN;
  uint32_t v = t->xcda[node];
  if ((v & 0x800000FFu) != c) return NO_WAY;
  *children = node ^ map_children(v);
  if (!(v >> 8 & 1)) return ON;
  return *children < t->n_xcda ? LEAF : BROKEN;
}

static mtx_code broken_map(mtx_err *err) { return mtx_fail_at(err, MTX_EFORMAT, NULL, charsmap_key, 0, "an entry of the charsmap points outside of it"); }

// Longest prefix of p[0..n) with a rule: its length (0: none) and where its replacement starts.
static mtx_code find_rule(const mtx_tok *t, const char *p, size_t n, size_t *len, uint32_t *at, mtx_err *err) {
  *len = 0;
  if (!t->n_xcda) return MTX_OK;
  uint32_t children = map_children(t->xcda[0]);
  for (size_t i = 0; i < n && p[i]; i++) {
    map_step step = step_map(t, &children, (uint8_t)p[i]);
    if (step == BROKEN) return broken_map(err);
    if (step == NO_WAY) break;
    if (step == LEAF) {
      *len = i + 1;
      *at = t->xcda[children] & 0x7FFFFFFFu;
    }
  }
  if (*len && (*at >= t->replacements.len || !memchr(t->replacements.ptr + *at, 0, t->replacements.len - *at))) return broken_map(err);
  return MTX_OK;
}

// One step of normalisation at p[0..n): what is put out, how much is consumed.
static mtx_code normal_step(const mtx_tok *t, const char *p, size_t n, mtx_str *put, size_t *used, mtx_err *err) {
  uint32_t at = 0, cp;
  if (mtx_trie_longest(&t->user_trie, p, n, used) >= 0) {
    *put = (mtx_str){p, *used};
    return MTX_OK;
  }
  mtx_code rc = find_rule(t, p, n, used, &at, err);
  if (rc) return rc;
  if (*used) {
    *put = (mtx_str){t->replacements.ptr + at, strlen(t->replacements.ptr + at)};
    return MTX_OK;
  }
  *used = mtx_utf8_decode((const unsigned char *)p, n, &cp);
  *put = *used == 1 && cp == 0xFFFD ? (mtx_str){"\xEF\xBF\xBD", 3} : (mtx_str){p, *used};
  return MTX_OK;
}

// Most text is ASCII that no rule touches: which bytes those are is asked once. A charsmap that is broken on the way
// says so when a text needs it.
static void find_plain(mtx_tok *t) {
  for (int c = 1; c < 128; c++) {
    bool plain = !mtx_trie_step(&t->user_trie, 0, (uint8_t)c);
    uint32_t children = t->n_xcda ? map_children(t->xcda[0]) : 0;
    map_step first = t->n_xcda ? step_map(t, &children, (uint8_t)c) : NO_WAY;
    for (int next = 1; next < 128 && first == ON && plain; next++) {
      uint32_t further = children;
      plain = step_map(t, &further, (uint8_t)next) == NO_WAY;
    }
    t->plain[c] = plain && (first == NO_WAY || first == ON);
  }
}

mtx_code mtx_ugm_load(mtx_tok *t, const mtx_gguf *g, mtx_err *err) {
  mtx_code rc = load_charsmap(t, g, err);
  if (rc) return rc;
  int32_t *ids = malloc(((size_t)t->n_tokens + 1) * sizeof *ids);
  if (!ids) return mtx_fail(err, MTX_ENOMEM, "no memory for the vocabulary");
  float least = FLT_MAX;
  size_t n = 0, n_user = 0;
  for (int32_t i = 0; i < t->n_tokens; i++) {
    if (t->attr[i] & MTX_TOK_ATTR_NORMAL && t->score && t->score[i] < least) least = t->score[i];
    if (t->attr[i] & (MTX_TOK_ATTR_NORMAL | MTX_TOK_ATTR_USER | MTX_TOK_ATTR_UNUSED)) ids[n++] = i;
  }
  t->unk_score = (least == FLT_MAX ? 0 : least) - 10.0f;  // SentencePiece's penalty
  rc = mtx_trie_build(&t->trie, t->text, ids, n, err);
  for (int32_t i = 0; i < t->n_tokens; i++)
    if (t->attr[i] & MTX_TOK_ATTR_USER) ids[n_user++] = i;
  if (!rc) rc = mtx_trie_build(&t->user_trie, t->text, ids, n_user, err);
  free(ids);
  if (rc) return rc;
  find_plain(t);
  mtx_tok_mark_glue(t);
  size_t len;
  t->spaces_begin_words = mtx_trie_longest(&t->trie, MTX_ESCAPED_SPACE, 3, &len) >= 0;
  return MTX_OK;
}

// How many bytes at p[0..n) normalisation leaves as they are.
static size_t plain_run(const mtx_tok *t, const char *p, size_t n) {
  size_t i = 0;
  for (uint8_t c; i < n && (c = (uint8_t)p[i]) < 128 && t->plain[c]; i++)
    if (i + 1 < n && (uint8_t)p[i + 1] >= 128) break;
  return i;
}

static mtx_code normalise(mtx_enc *e, const char *p, size_t n) {
  const mtx_tok *t = e->t;
  bool space_put = false, in_word = false;
  mtx_code rc;
  e->norm.len = 0;
  for (size_t i = 0, used; i < n; i += used) {
    mtx_str put = {p + i, used = plain_run(t, p + i, n - i)};
    if (!used && (rc = normal_step(t, p + i, n - i, &put, &used, e->err))) return rc;
    for (size_t k = 0, len; k < put.len; k += len) {
      const char *space = memchr(put.ptr + k, ' ', put.len - k);
      if (space == put.ptr + k) {
        len = 1;
        in_word = false;
        if (!t->merge_spaces && (rc = mtx_buf_append(&e->norm, MTX_ESCAPED_SPACE, 3, e->err))) return rc;
        continue;
      }
      len = (space ? (size_t)(space - put.ptr) : put.len) - k;
      if (!in_word && ((t->add_space_prefix && !space_put) || t->merge_spaces)) {
        if ((rc = mtx_buf_append(&e->norm, MTX_ESCAPED_SPACE, 3, e->err))) return rc;
        space_put = true;
      }
      in_word = true;
      if ((rc = mtx_buf_append(&e->norm, put.ptr + k, len, e->err))) return rc;
    }
  }
  return MTX_OK;
}

mtx_code mtx_ugm_word(mtx_enc *e, const char *p, size_t n) {
  const mtx_tok *t = e->t;
  int32_t unk = t->special[MTX_TOK_UNK];
  mtx_code rc = mtx_grow(&e->path, &e->cap_path, n + 1, sizeof *e->path, e->err);
  if (rc) return rc;
  mtx_path *b = e->path;
  for (size_t i = 0; i <= n; i++) b[i] = (mtx_path){i ? -DBL_MAX : 0, 0, unk};
  for (size_t i = 0, len; i < n; i += len) {
    len = mtx_utf8_len((unsigned char)p[i]);
    if (len > n - i) len = n - i;
    bool whole = false;
    uint32_t node = 0;
    for (size_t j = i; j < n && (node = mtx_trie_step(&t->trie, node, (uint8_t)p[j]));) {
      int32_t id = t->trie.value[node];
      j++;
      if (id < 0) continue;
      if (j - i == len) whole = true;
      double s = b[i].score + (t->attr[id] & MTX_TOK_ATTR_USER || !t->score ? 0.0 : t->score[id]);
      if (s > b[j].score) b[j] = (mtx_path){s, (uint32_t)i, id};
    }
    if (!whole && b[i].score + t->unk_score > b[i + len].score) b[i + len] = (mtx_path){b[i].score + t->unk_score, (uint32_t)i, unk};
  }
  // Backwards, a run of unknown tokens as one; then the order is turned.
  size_t from = e->out->len;
  bool was_unk = false;
  for (size_t i = n; i; i = b[i].from) {
    bool is_unk = b[i].id == unk;
    if (is_unk && unk < 0) return mtx_fail(e->err, MTX_EFORMAT, "the text has a character that the vocabulary lacks, and there is no unknown token");
    rc = is_unk && was_unk ? MTX_OK : mtx_ids_push(e->out, b[i].id, e->err);
    if (rc) return rc;
    was_unk = is_unk;
  }
  for (size_t i = from, j = e->out->len; i + 1 < j; i++) {
    int32_t x = e->out->ptr[--j];
    e->out->ptr[j] = e->out->ptr[i];
    e->out->ptr[i] = x;
  }
  return MTX_OK;
}

mtx_code mtx_ugm_encode(mtx_enc *e, const char *p, size_t n) {
  mtx_code rc = normalise(e, p, n);
  if (rc || !e->norm.len) return rc;
  if (e->norm.len >= UINT32_MAX) return mtx_fail(e->err, MTX_ELIMIT, "the normalised text exceeds 4 GiB");
  // A run of unknown characters becomes one token, which a cut must not part.
  if (!e->t->spaces_begin_words) return mtx_ugm_word(e, e->norm.ptr, e->norm.len);
  mtx_cache_start(e, n);
  return mtx_encode_words(e, e->norm.ptr, e->norm.len);
}
