// SPDX-License-Identifier: MIT
// BPE by merges: byte-level (GPT-2's alphabet) and on raw text (Gemma 4).
//
// The alphabet maps every byte to a printable character, so byte-level keys are
// kept decoded: a text is cut by its pre-tokenizer and merged as the bytes it is.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tok/vocab.h"

// A key id for p[0..n), made if need be: merges may pass through strings that
// are no tokens. Room for the new key was reserved by load_merges.
static uint32_t key_id(mtx_tok *t, const char *p, size_t n) {
  int32_t have = mtx_strmap_get(&t->map, p, n);
  if (have >= 0) return (uint32_t)have;
  char *at = t->merge_bytes + t->n_merge_bytes;
  memcpy(at, p, n);
  t->n_merge_bytes += n;
  t->key[t->n_keys] = (mtx_str){at, n};
  if (n > t->max_key) t->max_key = n;
  return (uint32_t)mtx_strmap_add(&t->map, (int32_t)t->n_keys++);
}

// Splits "left right" at the first space after the first byte and brings both
// to key form in buf. False when there is none, or a part is not in the alphabet.
static bool merge_parts(const mtx_tok *t, mtx_str m, char *buf, size_t *n_left, size_t *n_right) {
  const char *space = m.len > 1 ? memchr(m.ptr + 1, ' ', m.len - 1) : NULL;
  if (!space) return false;
  mtx_str l = {m.ptr, (size_t)(space - m.ptr)}, r = {space + 1, m.len - (size_t)(space - m.ptr) - 1};
  if (!l.len || !r.len) return false;
  if (!t->byte_level) {
    memcpy(buf, l.ptr, l.len);
    memcpy(buf + l.len, r.ptr, r.len);
    *n_left = l.len, *n_right = r.len;
    return true;
  }
  *n_left = mtx_gpt2_decode(&l, buf);
  if (*n_left == SIZE_MAX) return false;
  *n_right = mtx_gpt2_decode(&r, buf + *n_left);
  return *n_right != SIZE_MAX;
}

// Merges between known keys are taken at once; the few that need new keys wait
// until the table has been grown once, for the map points into it.
static mtx_code load_merges(mtx_tok *t, const mtx_gguf_kv *kv, mtx_err *err) {
  mtx_code rc = MTX_OK;
  mtx_buf both = {0};
  mtx_ids late = {0};
  size_t n_bytes = 0, nl, nr;
  for (uint64_t i = 0; i < kv->n; i++) {
    mtx_str m = mtx_gguf_item_str(kv, i);
    if ((rc = mtx_buf_reserve(&both, m.len, err))) goto done;
    if (!merge_parts(t, m, both.ptr, &nl, &nr)) continue;
    int32_t l = mtx_strmap_get(&t->map, both.ptr, nl), r = mtx_strmap_get(&t->map, both.ptr + nl, nr);
    int32_t lr = mtx_strmap_get(&t->map, both.ptr, nl + nr);
    if (l >= 0 && r >= 0 && lr >= 0) {
      mtx_pairmap_add(&t->merges, (mtx_pair){(uint32_t)l, (uint32_t)r, (uint32_t)i, (uint32_t)lr});
    } else {
      if ((rc = mtx_ids_push(&late, (int32_t)i, err))) goto done;
      n_bytes += 2 * (nl + nr);
    }
  }
  if ((rc = mtx_tok_grow_keys(t, 3 * late.len, n_bytes, err))) goto done;
  for (size_t k = 0; k < late.len; k++) {
    merge_parts(t, mtx_gguf_item_str(kv, (uint64_t)late.ptr[k]), both.ptr, &nl, &nr);
    uint32_t l = key_id(t, both.ptr, nl), r = key_id(t, both.ptr + nl, nr);
    mtx_pairmap_add(&t->merges, (mtx_pair){l, r, (uint32_t)late.ptr[k], key_id(t, both.ptr, nl + nr)});
  }
done:
  mtx_buf_fini(&both);
  mtx_ids_fini(&late);
  return rc;
}

mtx_code mtx_bpe_load(mtx_tok *t, const mtx_gguf *g, mtx_err *err) {
  static const char key[] = "tokenizer.ggml.merges";
  const mtx_gguf_kv *kv = mtx_gguf_find(g, key);
  bool optional = t->pretok && strcmp(t->pretok->name, "kimi-k2") == 0;  // Kimi's files may carry none
  if (!kv && !optional) return mtx_tok_bad(g, err, key, "a BPE vocabulary needs its merges");
  if (kv && (kv->type != MTX_GGUF_ARRAY || kv->item_type != MTX_GGUF_STRING)) return mtx_tok_bad(g, err, key, "an array of strings expected");
  uint64_t n = kv ? kv->n : 0;
  if (n > 1u << 26) return mtx_tok_bad(g, err, key, "%llu merges are too many", (unsigned long long)n);
  mtx_code rc;
  if ((rc = mtx_pairmap_init(&t->merges, (size_t)n, err))) return rc;
  if (kv && (rc = load_merges(t, kv, err))) return rc;
  for (int b = 0; b < 256; b++) {
    char c = (char)b, hex[8];
    int32_t id = mtx_strmap_get(&t->map, &c, 1);
    t->byte_sym[b] = id < 0 ? UINT32_MAX : (uint32_t)id;
    snprintf(hex, sizeof hex, "<0x%02X>", (unsigned)b);
    // Byte-level: the reference looks up the character of a one-byte letter only.
    if (t->byte_level) t->byte_id[b] = b > 0x20 && b < 0x7F && id < t->n_tokens ? id : -1;
    else t->byte_id[b] = mtx_tok_find(t, hex, 6);
  }
  if (t->escape_spaces) mtx_tok_mark_glue(t);
  return MTX_OK;
}

static mtx_code view(mtx_enc *e, const char *p, size_t n, size_t *n_cp) {
  mtx_code rc;
  if ((rc = mtx_grow(&e->cp, &e->cap_cp, n, sizeof *e->cp, e->err)) || (rc = mtx_grow(&e->cls, &e->cap_cls, n, 1, e->err)) ||
      (rc = mtx_grow(&e->off, &e->cap_off, n + 1, sizeof *e->off, e->err)))
    return rc;
  size_t k = 0;
  for (size_t i = 0; i < n; k++) {
    e->off[k] = (uint32_t)i;
    if ((uint8_t)p[i] < 0x80) {
      e->cp[k] = (uint8_t)p[i++];
    } else {
      i += mtx_utf8_decode((const unsigned char *)p + i, n - i, &e->cp[k]);
    }
    e->cls[k] = mtx_uni_class(e->cp[k]);
  }
  e->off[k] = (uint32_t)n;
  *n_cp = k;
  return MTX_OK;
}

mtx_code mtx_pretok_text(const mtx_pretok *p, const char *text, size_t n, mtx_ids *ends, mtx_err *err) {
  if (n > MTX_TOK_MAX_TEXT) return mtx_fail(err, MTX_ELIMIT, "a text of %zu bytes is too long; the limit is 1 GiB", n);
  if (!mtx_utf8_valid(text, n, NULL)) return mtx_fail(err, MTX_EINVAL, "the text is not UTF-8");
  mtx_enc e = {.err = err};
  size_t n_cp;
  mtx_code rc = view(&e, text, n, &n_cp);
  mtx_pretok_view v = {e.cp, e.cls, n_cp};
  if (!rc) rc = mtx_pretok_split(p->rule, &v, &e.cuts, &e.tmp, err);
  for (size_t i = 0; !rc && i < e.cuts.len; i++) rc = mtx_ids_push(ends, (int32_t)e.off[e.cuts.ptr[i]], err);
  mtx_enc_fini(&e);
  return rc;
}

static mtx_code word(mtx_enc *e, const char *p, size_t n) {
  const mtx_tok *t = e->t;
  if (t->ignore_merges || (t->gemma4 && p[0] == '\n')) {  // Gemma 4's pieces are all newlines or none
    int32_t id = mtx_strmap_get(&t->map, p, n);
    if (id >= 0 && id < t->n_tokens) return mtx_ids_push(e->out, id, e->err);
  }
  return t->escape_spaces ? mtx_encode_words(e, p, n) : mtx_encode_word(e, p, n);
}

static mtx_code plain(mtx_enc *e, const char *p, size_t n) {
  size_t n_cp;
  mtx_code rc = view(e, p, n, &n_cp);
  if (rc) return rc;
  mtx_pretok_view v = {e->cp, e->cls, n_cp};
  if ((rc = mtx_pretok_split(e->t->pretok->rule, &v, &e->cuts, &e->tmp, e->err))) return rc;
  size_t begin = 0;
  for (size_t i = 0; i < e->cuts.len; i++) {
    size_t end = e->off[e->cuts.ptr[i]];
    if ((rc = word(e, p + begin, end - begin))) return rc;
    begin = end;
  }
  return MTX_OK;
}

// The "whitespace" model: spaces separate and are dropped, letters may be lowered.
static mtx_code spaceless(mtx_enc *e, const char *p, size_t n) {
  e->norm.len = 0;
  for (size_t i = 0;;) {
    uint32_t cp = ' ';
    if (i < n) i += mtx_utf8_decode((const unsigned char *)p + i, n - i, &cp);
    else i++;
    if (mtx_uni_class(cp) & MTX_UNI_WS) {
      mtx_code rc = e->norm.len ? plain(e, e->norm.ptr, e->norm.len) : MTX_OK;
      if (rc) return rc;
      e->norm.len = 0;
      if (i > n) return MTX_OK;
    } else {
      char c[4];
      mtx_code rc = mtx_buf_append(&e->norm, c, mtx_utf8_encode(e->t->lowercase ? mtx_uni_lower(cp) : cp, c), e->err);
      if (rc) return rc;
    }
  }
}

// Six-letter words of bases between <dna> and </dna>: keys that end in U+E000.
static mtx_code bases(mtx_enc *e, const char *p, size_t n, int32_t oov) {
  for (size_t i = 0; i < n; i += 6) {
    char k[9] = "AAAAAA\xEE\x80\x80";
    for (size_t j = 0; j < 6 && i + j < n; j++) k[j] = p[i + j] >= 'a' && p[i + j] <= 'z' ? (char)(p[i + j] - 32) : p[i + j];
    int32_t id = mtx_tok_find(e->t, k, 9);
    mtx_code rc = mtx_ids_push(e->out, id < 0 ? oov : id, e->err);
    if (rc) return rc;
  }
  return MTX_OK;
}

static mtx_code dna(mtx_enc *e, const char *p, size_t n) {
  int32_t open = mtx_tok_find(e->t, "<dna>", 5), close = mtx_tok_find(e->t, "</dna>", 6), oov = mtx_tok_find(e->t, "<oov>", 5);
  if (open < 0 || close < 0 || oov < 0) return plain(e, p, n);
  mtx_code rc;
  for (const char *end = p + n; p < end;) {
    const char *tag = memmem(p, (size_t)(end - p), "<dna>", 5);
    if ((!tag || tag > p) && (rc = plain(e, p, (size_t)((tag ? tag : end) - p)))) return rc;
    if (!tag) return MTX_OK;
    if ((rc = mtx_ids_push(e->out, open, e->err))) return rc;
    p = tag + 5;
    tag = memmem(p, (size_t)(end - p), "</dna>", 6);
    if ((rc = bases(e, p, (size_t)((tag ? tag : end) - p), oov))) return rc;
    if (!tag) return MTX_OK;
    if ((rc = mtx_ids_push(e->out, close, e->err))) return rc;
    p = tag + 6;
  }
  return MTX_OK;
}

mtx_code mtx_bpe_encode(mtx_enc *e, const char *p, size_t n) {
  mtx_code rc;
  if (!mtx_utf8_valid(p, n, NULL)) {
    e->text.len = 0;
    if ((rc = mtx_clean_utf8(&e->text, p, n, e->err))) return rc;
    p = e->text.ptr, n = e->text.len;
  }
  mtx_cache_start(e, n);
  if (e->t->drop_spaces) return spaceless(e, p, n);
  if (e->t->dna) return dna(e, p, n);
  if (!e->t->escape_spaces) return plain(e, p, n);
  e->norm.len = 0;
  if ((rc = mtx_escape_spaces(&e->norm, p, n, e->err))) return rc;
  return plain(e, e->norm.ptr, e->norm.len);
}
