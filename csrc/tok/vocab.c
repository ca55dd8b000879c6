// SPDX-License-Identifier: MIT
// Opens a vocabulary: GGUF metadata to tables. Everything the file says about
// tokens is checked here, once.
#include "tok/vocab.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

mtx_code mtx_tok_bad(const mtx_gguf *g, mtx_err *err, const char *key, const char *fmt, ...) {
  char msg[400];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(msg, sizeof msg, fmt, ap);
  va_end(ap);
  return mtx_fail_at(err, MTX_EFORMAT, mtx_gguf_path(g), key, 0, "%s", msg);
}

// Defaults of each `tokenizer.ggml.model` (llama.cpp's src/llama-vocab.cpp); ids
// that lie outside a small vocabulary are dropped later.
static const struct {
  const char *model;
  mtx_tok_kind kind;
  int16_t bos, eos, unk, sep, pad, mask;
  bool add_bos, add_eos, add_sep, add_space_prefix;
} models[] = {
    {"llama", MTX_KIND_SPM, 1, 2, 0, -1, -1, -1, true, false, false, true},
    {"gpt2", MTX_KIND_BPE, 11, 11, -1, -1, -1, -1, false, false, false, false},
    {"gemma4", MTX_KIND_BPE, -1, -1, -1, -1, -1, -1, false, false, false, false},
    {"hybriddna", MTX_KIND_BPE, 11, 11, -1, -1, -1, -1, false, false, false, false},
    {"whitespace", MTX_KIND_BPE, 11, 11, -1, -1, -1, -1, false, false, false, false},
    {"bert", MTX_KIND_WPM, 101, -1, 100, 102, 0, 103, true, false, true, false},
    {"t5", MTX_KIND_UGM, -1, 1, 2, -1, 0, -1, false, true, false, false},
    {"rwkv", MTX_KIND_RWKV, -1, -1, -1, -1, -1, -1, false, false, false, false},
    {"plamo2", MTX_KIND_PLAMO2, 1, 2, 0, -1, 3, -1, false, false, false, false},
};

static mtx_code load_model(mtx_tok *t, const mtx_gguf *g, mtx_err *err) {
  mtx_str model;
  mtx_code rc = mtx_gguf_get_str(g, "tokenizer.ggml.model", false, &model, err);
  if (rc == MTX_ENOTFOUND || (!rc && ((model.len == 8 && !memcmp(model.ptr, "no_vocab", 8)) || (model.len == 4 && !memcmp(model.ptr, "none", 4)))))
    return mtx_fail_at(err, MTX_ENOTFOUND, mtx_gguf_path(g), "tokenizer.ggml.model", 0, "the model carries no tokenizer (a folder has it as tokenizer.json or tokenizer.model); use token ids instead of text");
  if (rc) return rc;
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    if (strlen(models[i].model) != model.len || memcmp(models[i].model, model.ptr, model.len) != 0) continue;
    memcpy(t->model, models[i].model, model.len + 1);
    t->kind = models[i].kind;
    for (int k = 0; k < MTX_TOK_N_SPECIAL; k++) t->special[k] = -1;
    t->special[MTX_TOK_BOS] = models[i].bos, t->special[MTX_TOK_EOS] = models[i].eos, t->special[MTX_TOK_UNK] = models[i].unk;
    t->special[MTX_TOK_SEP] = models[i].sep, t->special[MTX_TOK_PAD] = models[i].pad, t->special[MTX_TOK_MASK] = models[i].mask;
    t->add_bos = models[i].add_bos, t->add_eos = models[i].add_eos, t->add_sep = models[i].add_sep;
    t->add_space_prefix = models[i].add_space_prefix;
    t->lowercase = true;  // BERT's default; only WordPiece and "whitespace" ask
    t->clean_spaces = t->kind == MTX_KIND_WPM;
    t->drop_spaces = !strcmp(t->model, "whitespace");
    t->dna = !strcmp(t->model, "hybriddna");
    return MTX_OK;
  }
  return mtx_fail_at(err, MTX_EUNSUPPORTED, mtx_gguf_path(g), "tokenizer.ggml.model", 0, "unknown tokenizer model '%.*s'",
                     (int)(model.len < 64 ? model.len : 64), model.ptr);
}

static mtx_code load_pre(mtx_tok *t, const mtx_gguf *g, mtx_err *err) {
  mtx_str pre = {"default", 7};
  mtx_code rc = mtx_gguf_get_str(g, "tokenizer.ggml.pre", false, &pre, err);
  if (rc && rc != MTX_ENOTFOUND) return rc;
  if (!pre.len) pre = (mtx_str){"default", 7};
  if (!strcmp(t->model, "gemma4")) pre = (mtx_str){"gemma4", 6};
  snprintf(t->pre, sizeof t->pre, "%.*s", (int)(pre.len < sizeof t->pre ? pre.len : sizeof t->pre - 1), rc == MTX_ENOTFOUND && t->kind != MTX_KIND_BPE ? "" : pre.ptr);
  if (t->kind != MTX_KIND_BPE) return MTX_OK;
  t->pretok = mtx_pretok_find(pre.ptr, pre.len);
  if (!t->pretok)
    return mtx_fail_at(err, MTX_EUNSUPPORTED, mtx_gguf_path(g), "tokenizer.ggml.pre", 0,
                       "unknown pre-tokenizer '%s'; a newer mtx may know it", t->pre);
  unsigned f = t->pretok->flags;
  t->byte_level = !(f & MTX_PRE_RAW);
  t->escape_spaces = f & MTX_PRE_ESCAPE;
  t->gemma4 = f & MTX_PRE_GEMMA4;
  t->ignore_merges = f & MTX_PRE_IGNORE_MERGES;
  t->clean_spaces = !(f & MTX_PRE_KEEP_SPACES);
  if (f & MTX_PRE_ADD_BOS) t->add_bos = true;
  if (f & MTX_PRE_ADD_SEP) t->add_sep = true;
  if (f & MTX_PRE_NO_BOS) t->special[MTX_TOK_BOS] = -1;
  if (!strcmp(t->pretok->name, "whitespace")) t->lowercase = false;
  return MTX_OK;
}

// Keys of mtx's own, for tokenizers that were read from other files than GGUF.
static mtx_code load_own(mtx_tok *t, const mtx_gguf *g, mtx_err *err) {
  mtx_code rc = mtx_gguf_get_bool(g, "tokenizer.mtx.ignore_merges", false, &t->ignore_merges, err);
  if (rc && rc != MTX_ENOTFOUND) return rc;
  rc = mtx_gguf_get_bool(g, "tokenizer.mtx.clean_spaces", false, &t->clean_spaces, err);
  return rc == MTX_ENOTFOUND ? MTX_OK : rc;
}

static mtx_code load_texts(mtx_tok *t, const mtx_gguf *g, mtx_err *err) {
  static const char key[] = "tokenizer.ggml.tokens";
  const mtx_gguf_kv *kv = mtx_gguf_find(g, key);
  if (!kv) return mtx_tok_bad(g, err, key, "the vocabulary is missing");
  if (kv->type != MTX_GGUF_ARRAY || kv->item_type != MTX_GGUF_STRING) return mtx_tok_bad(g, err, key, "an array of strings expected");
  if (!kv->n) return mtx_tok_bad(g, err, key, "the vocabulary is empty");
  if (kv->n > 1u << 26) return mtx_tok_bad(g, err, key, "%llu tokens are too many", (unsigned long long)kv->n);
  t->n_tokens = (int32_t)kv->n;
  size_t n = (size_t)kv->n, total = 0;
  for (size_t i = 0; i < n; i++) total += mtx_gguf_item_str(kv, i).len;
  t->arena = malloc(total + 1);
  t->text = malloc(n * sizeof *t->text);
  t->attr = calloc(n, sizeof *t->attr);
  t->eog = calloc(n, 1);
  if (!t->arena || !t->text || !t->attr || !t->eog) return mtx_fail(err, MTX_ENOMEM, "no memory for a vocabulary of %zu tokens", n);
  char *at = t->arena;
  for (size_t i = 0; i < n; i++) {
    mtx_str s = mtx_gguf_item_str(kv, i);
    if (s.len) memcpy(at, s.ptr, s.len);
    t->text[i] = (mtx_str){at, s.len};
    at += s.len;
  }
  return MTX_OK;
}

static mtx_code per_token(mtx_tok *t, const mtx_gguf *g, const char *key, bool floats, const mtx_gguf_kv **out, mtx_err *err) {
  const mtx_gguf_kv *kv = *out = mtx_gguf_find(g, key);
  if (!kv) return MTX_OK;
  bool ok = kv->type == MTX_GGUF_ARRAY && kv->item_type != MTX_GGUF_STRING && kv->item_type != MTX_GGUF_BOOL &&
            (floats || (kv->item_type != MTX_GGUF_F32 && kv->item_type != MTX_GGUF_F64));
  if (!ok) return mtx_tok_bad(g, err, key, floats ? "an array of numbers expected" : "an array of integers expected");
  if (kv->n < (uint64_t)t->n_tokens)
    return mtx_tok_bad(g, err, key, "has %llu entries for %d tokens", (unsigned long long)kv->n, (int)t->n_tokens);
  return MTX_OK;
}

static mtx_code load_attributes(mtx_tok *t, const mtx_gguf *g, mtx_err *err) {
  // llama_token_type of the format: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
  static const uint16_t attr_of[] = {0, MTX_TOK_ATTR_NORMAL, MTX_TOK_ATTR_UNKNOWN, MTX_TOK_ATTR_CONTROL, MTX_TOK_ATTR_USER, MTX_TOK_ATTR_UNUSED, MTX_TOK_ATTR_BYTE};
  const mtx_gguf_kv *kv;
  mtx_code rc = per_token(t, g, "tokenizer.ggml.token_type", false, &kv, err);
  if (rc) return rc;
  for (int32_t i = 0; i < t->n_tokens; i++) {
    int64_t type = kv ? mtx_gguf_item_i64(kv, (uint64_t)i) : 1;
    t->attr[i] = type >= 0 && type < (int64_t)(sizeof attr_of / sizeof *attr_of) ? attr_of[type] : 0;
  }
  if ((rc = per_token(t, g, "tokenizer.ggml.scores", true, &kv, err)) || !kv) return rc;
  t->score = malloc((size_t)t->n_tokens * sizeof *t->score);
  if (!t->score) return mtx_fail(err, MTX_ENOMEM, "no memory for the vocabulary's scores");
  for (int32_t i = 0; i < t->n_tokens; i++) t->score[i] = (float)mtx_gguf_item_f64(kv, (uint64_t)i);
  return MTX_OK;
}

// Keys are the texts, or in byte-level vocabularies the bytes that they stand
// for. Texts outside the alphabet ("<｜User｜>") get a key that starts with 0xFF,
// which no text to be encoded contains: they can be found, but not merged to.
static mtx_code load_keys(mtx_tok *t, mtx_err *err) {
  size_t n = (size_t)t->n_tokens, total = 0;
  t->n_keys = n;
  t->key = t->text;
  if (t->byte_level) {
    for (size_t i = 0; i < n; i++) total += t->text[i].len + 1;
    t->key = malloc(n * sizeof *t->key);
    t->key_bytes = malloc(total + 1);
    if (!t->key || !t->key_bytes) return mtx_fail(err, MTX_ENOMEM, "no memory for the vocabulary");
  }
  char *at = t->key_bytes;
  for (size_t i = 0; t->byte_level && i < n; i++) {
    size_t len = mtx_gpt2_decode(&t->text[i], at);
    if (len == SIZE_MAX) {
      *at = (char)0xFF;
      memcpy(at + 1, t->text[i].ptr, t->text[i].len);
      len = t->text[i].len + 1;
    }
    t->key[i] = (mtx_str){at, len};
    at += len;
  }
  mtx_code rc = mtx_strmap_init(&t->map, n, t->key, err);
  if (rc) return rc;
  for (size_t i = 0; i < n; i++) {
    if (!t->key[i].len) continue;
    mtx_strmap_add(&t->map, (int32_t)i);
    if (t->key[i].len > t->max_key) t->max_key = t->key[i].len;
  }
  return MTX_OK;
}

mtx_code mtx_tok_grow_keys(mtx_tok *t, size_t n, size_t n_bytes, mtx_err *err) {
  if (!n) return MTX_OK;
  mtx_str *key = malloc((t->n_keys + n) * sizeof *key);
  t->merge_bytes = malloc(n_bytes + 1);
  if (!key || !t->merge_bytes) {
    free(key);
    return mtx_fail(err, MTX_ENOMEM, "no memory for the vocabulary's merges");
  }
  memcpy(key, t->key, t->n_keys * sizeof *key);
  if (t->key != t->text) free(t->key);
  t->key = key;
  mtx_strmap_fini(&t->map);
  mtx_code rc = mtx_strmap_init(&t->map, t->n_keys + n, t->key, err);
  if (rc) return rc;
  for (size_t i = 0; i < t->n_keys; i++)
    if (key[i].len) mtx_strmap_add(&t->map, (int32_t)i);
  return MTX_OK;
}

static void strip_dna_marks(mtx_tok *t) {
  int32_t oov = mtx_tok_find(t, "<oov>", 5);
  for (int32_t i = oov + 1; oov >= 0 && i < t->n_tokens; i++) {
    mtx_str *s = &t->text[i];
    if (s->len > 3 && memcmp(s->ptr + s->len - 3, "\xEE\x80\x80", 3) == 0) s->len -= 3;
  }
}

static mtx_code load_kind(mtx_tok *t, const mtx_gguf *g, mtx_err *err) {
  switch (t->kind) {
    case MTX_KIND_BPE: return mtx_bpe_load(t, g, err);
    case MTX_KIND_SPM: return mtx_spm_load(t, err);
    case MTX_KIND_UGM: return mtx_ugm_load(t, g, err);
    default: return mtx_trie_kinds_load(t, err);
  }
}

static mtx_code find_newline(mtx_tok *t, mtx_err *err) {
  if (t->kind == MTX_KIND_WPM) {
    t->special[MTX_TOK_NL] = t->special[MTX_TOK_PAD];
    return MTX_OK;
  }
  if (t->kind == MTX_KIND_SPM) {
    t->special[MTX_TOK_NL] = t->byte_id['\n'];
    return MTX_OK;
  }
  mtx_ids ids = {0};
  mtx_code rc = mtx_tok_encode(t, "\n", 1, 0, NULL, 0, &ids, err);
  if (rc == MTX_EFORMAT) rc = MTX_OK;  // a vocabulary that cannot write a newline
  if (ids.len) t->special[MTX_TOK_NL] = ids.ptr[0];
  else t->special[MTX_TOK_NL] = t->special[MTX_TOK_PAD];
  mtx_ids_fini(&ids);
  return rc;
}

mtx_code mtx_tok_open(mtx_tok **out, const mtx_gguf *g, mtx_err *err) {
  *out = NULL;
  mtx_tok *t = calloc(1, sizeof *t);
  if (!t) return mtx_fail(err, MTX_ENOMEM, "no memory for a tokenizer");
  mtx_code rc;
  if ((rc = load_model(t, g, err)) || (rc = load_pre(t, g, err)) || (rc = load_own(t, g, err))) goto fail;
  rc = mtx_gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", false, &t->add_space_prefix, err);
  if (rc && rc != MTX_ENOTFOUND) goto fail;
  rc = mtx_gguf_get_bool(g, "tokenizer.ggml.remove_extra_whitespaces", false, &t->merge_spaces, err);
  if (rc && rc != MTX_ENOTFOUND) goto fail;
  if ((rc = load_texts(t, g, err)) || (rc = load_attributes(t, g, err)) || (rc = load_keys(t, err))) goto fail;
  if (t->dna) strip_dna_marks(t);
  if ((rc = mtx_tok_load_specials(t, g, err)) || (rc = load_kind(t, g, err)) || (rc = mtx_tok_build_pieces(t, err)) ||
      (rc = find_newline(t, err)))
    goto fail;
  *out = t;
  return MTX_OK;
fail:
  mtx_tok_close(t);
  return rc;
}

void mtx_tok_close(mtx_tok *t) {
  if (!t) return;
  if (t->key != t->text) free(t->key);
  free(t->arena);
  free(t->text);
  free(t->attr);
  free(t->score);
  free(t->eog);
  free(t->piece_off);
  free(t->key_bytes);
  free(t->merge_bytes);
  free(t->rwkv_text);
  free(t->rwkv_bytes);
  free(t->xcda);
  mtx_buf_fini(&t->pieces);
  mtx_buf_fini(&t->replacements);
  mtx_strmap_fini(&t->map);
  mtx_pairmap_fini(&t->merges);
  mtx_trie_fini(&t->trie);
  mtx_trie_fini(&t->user_trie);
  mtx_trie_fini(&t->special_trie);
  free(t);
}

int32_t mtx_tok_n_tokens(const mtx_tok *t) { return t->n_tokens; }
const char *mtx_tok_model(const mtx_tok *t) { return t->model; }
const char *mtx_tok_pre(const mtx_tok *t) { return t->pre; }
bool mtx_tok_add_bos(const mtx_tok *t) { return t->add_bos; }
bool mtx_tok_add_eos(const mtx_tok *t) { return t->add_eos; }
bool mtx_tok_add_sep(const mtx_tok *t) { return t->add_sep; }

static bool in_range(const mtx_tok *t, int32_t id) { return id >= 0 && id < t->n_tokens; }

int32_t mtx_tok_special_id(const mtx_tok *t, mtx_tok_special which) { return (unsigned)which < MTX_TOK_N_SPECIAL ? t->special[which] : -1; }
bool mtx_tok_is_eog(const mtx_tok *t, int32_t id) { return in_range(t, id) && t->eog[id]; }
unsigned mtx_tok_attr(const mtx_tok *t, int32_t id) { return in_range(t, id) ? t->attr[id] : 0; }

int32_t mtx_tok_find(const mtx_tok *t, const char *text, size_t n) {
  if (!n || n > UINT16_MAX) return -1;
  int32_t id;
  if (t->byte_level) {
    char small[256], *key = n < sizeof small ? small : malloc(n + 1);
    if (!key) return -1;
    mtx_str s = {text, n};
    size_t len = mtx_gpt2_decode(&s, key);
    if (len == SIZE_MAX) {
      key[0] = (char)0xFF;
      memcpy(key + 1, text, n);
      len = n + 1;
    }
    id = mtx_strmap_get(&t->map, key, len);
    if (key != small) free(key);
  } else {
    id = mtx_strmap_get(&t->map, text, n);
  }
  return id < t->n_tokens ? id : -1;
}
