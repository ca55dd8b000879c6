// SPDX-License-Identifier: MIT
// Which tokens are special: ids from metadata, and the many that files forget to
// mark, recognised by their text.
//
// The lists of texts are llama.cpp's (src/llama-vocab.cpp), since files are made
// for it. Where several texts of a list are present the first listed is taken.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tok/vocab.h"

static const struct { const char *name, *key, *old_key; } keys[MTX_TOK_N_SPECIAL] = {
    [MTX_TOK_BOS] = {"bos", "bos_token_id", NULL},
    [MTX_TOK_EOS] = {"eos", "eos_token_id", NULL},
    [MTX_TOK_EOT] = {"eot", "eot_token_id", NULL},
    [MTX_TOK_EOM] = {"eom", "eom_token_id", NULL},
    [MTX_TOK_UNK] = {"unk", "unknown_token_id", NULL},
    [MTX_TOK_SEP] = {"sep", "seperator_token_id", NULL},  // spelt so in the format
    [MTX_TOK_PAD] = {"pad", "padding_token_id", NULL},
    [MTX_TOK_MASK] = {"mask", "mask_token_id", NULL},
    [MTX_TOK_FIM_PRE] = {"fim_pre", "fim_pre_token_id", "prefix_token_id"},
    [MTX_TOK_FIM_SUF] = {"fim_suf", "fim_suf_token_id", "suffix_token_id"},
    [MTX_TOK_FIM_MID] = {"fim_mid", "fim_mid_token_id", "middle_token_id"},
    [MTX_TOK_FIM_PAD] = {"fim_pad", "fim_pad_token_id", NULL},
    [MTX_TOK_FIM_REP] = {"fim_rep", "fim_rep_token_id", NULL},
    [MTX_TOK_FIM_SEP] = {"fim_sep", "fim_sep_token_id", NULL},
    [MTX_TOK_NL] = {"nl", NULL, NULL},
};

const char *mtx_tok_special_name(mtx_tok_special which) { return (unsigned)which < MTX_TOK_N_SPECIAL ? keys[which].name : NULL; }

static const char *const eot_texts[] = {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>",
                                        "<EOT>", "_<EOT>", "[EOT]", "<｜end▁of▁sentence｜>", "<end_of_utterance>", NULL};
static const char *const eom_texts[] = {"<|eom_id|>", NULL};
static const char *const fim_pre_texts[] = {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>",
                                            "<|code_prefix|>", "<|prefix|>", NULL};
static const char *const fim_suf_texts[] = {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>",
                                            "<|code_suffix|>", "<|suffix|>", NULL};
static const char *const fim_mid_texts[] = {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>",
                                            "<|code_middle|>", "<|middle|>", NULL};
static const char *const fim_pad_texts[] = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", NULL};
static const char *const fim_rep_texts[] = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", NULL};
static const char *const fim_sep_texts[] = {"<|file_sep|>", NULL};
static const char *const eog_texts[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>", "<|endoftext|>", "</s>",
    "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    "<｜end▁of▁sentence｜>", "[e~[", "<|end_of_msg|>", NULL};

static int32_t find(const mtx_tok *t, const char *text) { return mtx_tok_find(t, text, strlen(text)); }

static void by_text(mtx_tok *t, mtx_tok_special which, const char *const *texts) {
  for (; t->special[which] < 0 && *texts; texts++) {
    int32_t id = find(t, *texts);
    if (id < 0) continue;
    t->special[which] = id;
    t->attr[id] |= MTX_TOK_ATTR_CONTROL;
  }
}

// A required id out of range is an error; any other is as if absent.
static mtx_code read_id(mtx_tok *t, const mtx_gguf *g, mtx_tok_special which, const char *name, mtx_err *err) {
  char key[64];
  uint64_t id;
  snprintf(key, sizeof key, "tokenizer.ggml.%s", name);
  mtx_code rc = mtx_gguf_get_u64(g, key, false, &id, err);
  if (rc == MTX_ENOTFOUND) return MTX_OK;
  if (rc) return rc;
  if (id < (uint64_t)t->n_tokens) {
    t->special[which] = (int32_t)id;
  } else if (which == MTX_TOK_BOS || which == MTX_TOK_EOS || which == MTX_TOK_EOT) {
    return mtx_tok_bad(g, err, key, "token id %llu is out of range: the vocabulary has %d tokens", (unsigned long long)id, (int)t->n_tokens);
  }
  return MTX_OK;
}

static mtx_code read_flag(const mtx_gguf *g, const char *key, bool *flag, mtx_err *err) {
  mtx_code rc = mtx_gguf_get_bool(g, key, false, flag, err);
  return rc == MTX_ENOTFOUND ? MTX_OK : rc;
}

static mtx_code need(mtx_tok *t, const mtx_gguf *g, bool wanted, mtx_tok_special which, const char *flag, mtx_err *err) {
  if (!wanted || t->special[which] >= 0) return MTX_OK;
  return mtx_tok_bad(g, err, flag, "is set, but tokenizer.ggml.%s is not", keys[which].key);
}

static void set_eog(mtx_tok *t, int32_t id) {
  if (id >= 0) t->eog[id] = 1;
}

static bool eog_has(const mtx_tok *t, const char *text) {
  int32_t id = find(t, text);
  return id >= 0 && t->eog[id];
}

static void collect_eog(mtx_tok *t) {
  set_eog(t, t->special[MTX_TOK_FIM_PAD]);
  set_eog(t, t->special[MTX_TOK_FIM_REP]);
  set_eog(t, t->special[MTX_TOK_FIM_SEP]);
  for (const char *const *s = eog_texts; *s; s++) {
    int32_t id = find(t, *s);
    set_eog(t, id);
    if (id >= 0) t->attr[id] |= MTX_TOK_ATTR_CONTROL;
  }
  // gpt-oss: these frame channels and must reach the parser of the output.
  static const char *const frames[] = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"};
  for (size_t i = 0; i < sizeof frames / sizeof *frames; i++) {
    int32_t id = find(t, frames[i]);
    if (id >= 0) t->attr[id] = MTX_TOK_ATTR_USER;
  }
  set_eog(t, t->special[MTX_TOK_EOS]);
  set_eog(t, t->special[MTX_TOK_EOT]);
  set_eog(t, t->special[MTX_TOK_EOM]);
  // gpt-oss and Solar Open end a message with <|end|>, not the answer.
  bool call = eog_has(t, "<|call|>") || eog_has(t, "<|calls|>");
  if (eog_has(t, "<|end|>") && call && (eog_has(t, "<|return|>") || eog_has(t, "<|flush|>"))) {
    int32_t id = find(t, "<|end|>");
    t->eog[id] = 0;
    t->attr[id] = MTX_TOK_ATTR_USER;
  }
  // Gemma 4 and PaddleOCR use </s> as text.
  if (eog_has(t, "<|tool_response>") && eog_has(t, "</s>")) {
    int32_t id = find(t, "</s>");
    t->eog[id] = 0;
    t->attr[id] = MTX_TOK_ATTR_NORMAL;
  }
}

// Model folders list all ends of generation (generation_config.json).
static void add_listed_eog(mtx_tok *t, const mtx_gguf *g) {
  const mtx_gguf_kv *kv = mtx_gguf_find(g, "tokenizer.mtx.eog_token_ids");
  for (uint64_t i = 0; kv && i < kv->n; i++) {
    int64_t id = mtx_gguf_item_i64(kv, i);
    if (id >= 0 && id < t->n_tokens) set_eog(t, (int32_t)id);
  }
}

static bool contains(mtx_str s, const char *what) {
  size_t n = strlen(what);
  for (size_t i = 0; i + n <= s.len; i++)
    if (strncasecmp(s.ptr + i, what, n) == 0) return true;
  return false;
}

// White space that a special token swallows: GGUF has no field for it, so it
// goes by the model's name, as in llama.cpp.
static void set_strip(mtx_tok *t, const mtx_gguf *g) {
  mtx_str name = {"", 0}, arch = {"", 0};
  mtx_gguf_get_str(g, "general.name", false, &name, NULL);
  mtx_gguf_get_str(g, "general.architecture", false, &arch, NULL);
  mtx_str pre = {t->pre, strlen(t->pre)};
  const char *mask = contains(pre, "jina-v2-de") || contains(pre, "jina-v2-es") || contains(pre, "jina-v2-code") ||
                             contains(arch, "nomic-bert-moe") || contains(arch, "jina-bert-v3") ? "<mask>" : NULL;
  if (!mask && (contains(name, "phi-3") || contains(name, "phi3"))) {
    for (int32_t i = 0; i < t->n_tokens; i++)
      if (t->attr[i] & (MTX_TOK_ATTR_CONTROL | MTX_TOK_ATTR_USER | MTX_TOK_ATTR_UNKNOWN)) t->attr[i] |= MTX_TOK_ATTR_RSTRIP;
    static const char *const keep[] = {"<unk>", "<s>", "<|endoftext|>"};
    for (size_t i = 0; i < sizeof keep / sizeof *keep; i++) {
      int32_t id = find(t, keep[i]);
      if (id >= 0) t->attr[id] &= (uint16_t)~MTX_TOK_ATTR_RSTRIP;
    }
    int32_t id = find(t, "</s>");
    if (id >= 0) t->attr[id] |= MTX_TOK_ATTR_RSTRIP;
    return;
  }
  if (!mask && contains(name, "modern-bert")) mask = "[MASK]";
  int32_t id = mask ? find(t, mask) : -1;
  if (id >= 0) t->attr[id] |= MTX_TOK_ATTR_LSTRIP;
}

static mtx_code build_trie(mtx_tok *t, mtx_err *err) {
  int32_t *ids = malloc(((size_t)t->n_tokens + 1) * sizeof *ids);
  if (!ids) return mtx_fail(err, MTX_ENOMEM, "no memory for the vocabulary");
  size_t n = 0;
  for (int32_t i = 0; i < t->n_tokens; i++)
    if (t->attr[i] & (MTX_TOK_ATTR_CONTROL | MTX_TOK_ATTR_USER | MTX_TOK_ATTR_UNKNOWN)) ids[n++] = i;
  mtx_code rc = mtx_trie_build(&t->special_trie, t->text, ids, n, err);
  free(ids);
  return rc;
}

mtx_code mtx_tok_load_specials(mtx_tok *t, const mtx_gguf *g, mtx_err *err) {
  mtx_code rc;
  for (int i = 0; i < MTX_TOK_N_SPECIAL; i++) {
    if (t->special[i] >= t->n_tokens) t->special[i] = -1;  // the kind's default id, too small a vocabulary
    if (keys[i].old_key && (rc = read_id(t, g, (mtx_tok_special)i, keys[i].old_key, err))) return rc;
    if (keys[i].key && (rc = read_id(t, g, (mtx_tok_special)i, keys[i].key, err))) return rc;
  }
  if ((rc = read_flag(g, "tokenizer.ggml.add_bos_token", &t->add_bos, err)) || (rc = read_flag(g, "tokenizer.ggml.add_eos_token", &t->add_eos, err)) ||
      (rc = read_flag(g, "tokenizer.ggml.add_sep_token", &t->add_sep, err)) ||
      (rc = read_flag(g, "tokenizer.ggml.normalizer.lowercase", &t->lowercase, err)))
    return rc;
  t->strip_accents = t->lowercase;
  if ((rc = read_flag(g, "tokenizer.ggml.normalizer.strip_accents", &t->strip_accents, err))) return rc;
  if (t->gemma4) t->add_bos = true;
  if ((rc = need(t, g, t->add_bos, MTX_TOK_BOS, "tokenizer.ggml.add_bos_token", err)) ||
      (rc = need(t, g, t->add_eos, MTX_TOK_EOS, "tokenizer.ggml.add_eos_token", err)) ||
      (rc = need(t, g, t->add_sep, MTX_TOK_SEP, "tokenizer.ggml.add_sep_token", err)))
    return rc;
  by_text(t, MTX_TOK_EOT, eot_texts);
  by_text(t, MTX_TOK_EOM, eom_texts);
  by_text(t, MTX_TOK_FIM_PRE, fim_pre_texts);
  by_text(t, MTX_TOK_FIM_SUF, fim_suf_texts);
  by_text(t, MTX_TOK_FIM_MID, fim_mid_texts);
  by_text(t, MTX_TOK_FIM_PAD, fim_pad_texts);
  by_text(t, MTX_TOK_FIM_REP, fim_rep_texts);
  by_text(t, MTX_TOK_FIM_SEP, fim_sep_texts);
  for (int32_t i = 0; i < t->n_tokens; i++)
    if (t->attr[i] & MTX_TOK_ATTR_CONTROL && memmem(t->text[i].ptr, t->text[i].len, "unused", 6)) t->attr[i] |= MTX_TOK_ATTR_UNUSED;
  collect_eog(t);
  add_listed_eog(t, g);
  set_strip(t, g);
  return build_trie(t, err);
}
