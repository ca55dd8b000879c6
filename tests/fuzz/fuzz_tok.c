// SPDX-License-Identifier: MIT
// Tokenizers: any text under a small vocabulary of each kind, and any bytes as
// a vocabulary.
//
// First byte below 128: the kind; the second: flags; the rest is text. Else the
// rest is a GGUF file whose vocabulary, if it opens, must take any text.
// Checked beside memory safety: ids in range, whole UTF-8 from the incremental
// detokenizer, which gives what the joined pieces give.
#include <stdlib.h>
#include <string.h>

#include "../c/gguf_bytes.h"
#include "tok/pretok.h"
#include "tok/tok.h"
#include "tok/unicode.h"

enum { N_PLAIN = 5, N_PRE = 16 };
static const char *const plain_models[N_PLAIN] = {"llama", "bert", "t5", "rwkv", "plamo2"};
static const char *const pres[N_PRE] = {"default",    "llama3", "qwen35", "tekken",    "gpt-4o",  "deepseek-llm", "deepseek-v3", "kimi-k2",
                                        "exaone-moe", "jais-2", "youtu",  "chameleon", "tiny_aya", "afmoe",       "superbpe",    "gemma4"};
static const char *const words[] = {"the", "th", "he", "\xE2\x96\x81the", "\xE2\x96\x81", "\xE2\x96\x81\xE2\x96\x81", "ab", "abc", "a", "b", "c",
                                    "\xE4\xBD\xA0", "\xE5\xA5\xBD", "\xE4\xBD\xA0\xE5\xA5\xBD", "12", "e", "t", "h", ("b\xE2\x96\x81" "a")};
static const char *const specials[] = {"<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>", "[MASK]"};
enum { N_WORDS = sizeof words / sizeof *words, N_SPECIAL = sizeof specials / sizeof *specials };

static mtx_tok *vocab[N_PLAIN + N_PRE];

static void array(gb *b, const char *key, uint32_t type, uint64_t n) {
  gb_str(b, key);
  gb_u32(b, 9);
  gb_u32(b, type);
  gb_u64(b, n);
}

static void byte_token(gb *b, int c, const char *model, bool raw) {
  char s[8];
  if (strcmp(model, "rwkv") == 0) {
    snprintf(s, sizeof s, "\\x%02x", (unsigned)c);
  } else if (strcmp(model, "gpt2") != 0 || raw) {
    snprintf(s, sizeof s, "<0x%02X>", (unsigned)c);
  } else {
    uint32_t cp = 0x100, self = (c >= 33 && c <= 126) || (c >= 161 && c <= 172) || c >= 174;
    for (int k = 0; k < c; k++) cp += !((k >= 33 && k <= 126) || (k >= 161 && k <= 172) || k >= 174);
    s[mtx_utf8_encode(self ? (uint32_t)c : cp, s)] = 0;
  }
  gb_str(b, s);
}

static mtx_tok *make(const char *model, const char *pre) {
  gb b = {0};
  bool bpe = pre[0], raw = strcmp(pre, "gemma4") == 0;
  uint64_t n = N_SPECIAL + 256 + N_WORDS;
  gb_head(&b, 3, 0, 8);
  gb_kv_str(&b, "tokenizer.ggml.model", model);
  gb_kv_str(&b, "tokenizer.ggml.pre", bpe ? pre : "default");
  gb_kv_u32(&b, "tokenizer.ggml.bos_token_id", 0);
  gb_kv_u32(&b, "tokenizer.ggml.unknown_token_id", 2);
  array(&b, "tokenizer.ggml.tokens", 8, n);
  for (int i = 0; i < N_SPECIAL; i++) gb_str(&b, specials[i]);
  for (int c = 0; c < 256; c++) byte_token(&b, c, model, raw);
  for (int i = 0; i < N_WORDS; i++) gb_str(&b, words[i]);
  array(&b, "tokenizer.ggml.token_type", 5, n);
  bool bytes = strcmp(model, "llama") == 0 || strcmp(model, "plamo2") == 0 || raw;
  for (uint64_t i = 0; i < n; i++) gb_u32(&b, i == 2 ? 2 : i < N_SPECIAL - 1 ? 3 : i < N_SPECIAL ? 4 : i < N_SPECIAL + 256 && bytes ? 6 : 1);
  array(&b, "tokenizer.ggml.scores", 6, n);
  for (uint64_t i = 0; i < n; i++) {
    float f = -(float)(i % 13);
    gb_raw(&b, &f, 4);
  }
  array(&b, "tokenizer.ggml.merges", 8, 4);
  gb_str(&b, "t h");
  gb_str(&b, "th e");
  gb_str(&b, "a b");
  gb_str(&b, "ab cd");  // parts that are no tokens
  mtx_gguf *g;
  mtx_tok *t = NULL;
  mtx_err err;
  if (mtx_gguf_open_mem(&g, b.p, b.n, MTX_GGUF_VOCAB_ONLY, &err)) abort();
  if (mtx_tok_open(&t, g, &err)) {
    fprintf(stderr, "%s %s: %s: %s\n", model, pre, err.key, err.msg);
    abort();
  }
  mtx_gguf_close(g);
  gb_free(&b);
  return t;
}

static void check_stream(const mtx_tok *t, const mtx_ids *ids) {
  mtx_detok d;
  mtx_buf out = {0}, joined = {0}, whole = {0};
  mtx_detok_init(&d, t, true, false);
  for (size_t i = 0; i < ids->len; i++) {
    size_t from = out.len;
    if (mtx_detok_feed(&d, ids->ptr[i], &out, NULL)) goto done;
    if (out.len > from && !mtx_utf8_valid(out.ptr + from, out.len - from, NULL)) abort();
  }
  if (mtx_detok_flush(&d, &out, NULL) || mtx_tok_decode(t, ids->ptr, ids->len, MTX_TOK_UNPARSE_SPECIAL | MTX_TOK_RAW, &joined, NULL) ||
      mtx_utf8_repair(joined.ptr ? joined.ptr : "", joined.len, &whole, NULL))
    goto done;
  if (out.len != whole.len || (out.len && memcmp(out.ptr, whole.ptr, out.len) != 0)) abort();
done:
  mtx_buf_fini(&out);
  mtx_buf_fini(&joined);
  mtx_buf_fini(&whole);
}

static void use(const mtx_tok *t, const char *text, size_t n, unsigned flags) {
  mtx_ids ids = {0};
  mtx_err err;
  mtx_span spans[2] = {{n / 8, n / 3}, {n / 2, n}};
  mtx_code rc = mtx_tok_encode(t, text, n, flags & 15, spans, flags & 16 ? 2 : 0, &ids, &err);
  if (rc && ids.len) abort();
  for (size_t i = 0; i < ids.len; i++)
    if (ids.ptr[i] < 0 || ids.ptr[i] >= mtx_tok_n_tokens(t)) abort();
  if (!rc) {
    mtx_buf out = {0};
    if (mtx_tok_decode(t, ids.ptr, ids.len, flags >> 5, &out, &err)) abort();
    mtx_buf_fini(&out);
    check_stream(t, &ids);
  }
  mtx_ids_fini(&ids);
}

static void any_vocabulary(const uint8_t *p, size_t n) {
  static const char text[] = " the <s>ab\xFF\xE2\x96\x81 \0x</s> 12345 \xF0\x9F\x98\x80\xE4\xBD\xA0\xE5\xA5\xBD it's\r\n\n  <0x41>caf\xC3\xA9 <dna>acgtacgtN</dna>";
  mtx_gguf *g;
  mtx_tok *t;
  if (mtx_gguf_open_mem(&g, p, n, MTX_GGUF_VOCAB_ONLY, NULL)) return;
  if (!mtx_tok_open(&t, g, NULL)) {
    use(t, text, sizeof text - 1, MTX_TOK_ADD_SPECIAL | MTX_TOK_PARSE_SPECIAL);
    use(t, text, sizeof text - 1, 0xB0 | MTX_TOK_PARSE_SPECIAL);
    for (int32_t i = -1; i <= mtx_tok_n_tokens(t); i++) {
      const char *s;
      size_t len;
      if (mtx_tok_piece(t, i, true, &s, &len) && mtx_tok_find(t, s, len) >= mtx_tok_n_tokens(t)) abort();
    }
    mtx_tok_close(t);
  }
  mtx_gguf_close(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  if (!vocab[0]) {
    for (int i = 0; i < N_PLAIN; i++) vocab[i] = make(plain_models[i], "");
    for (int i = 0; i < N_PRE; i++) vocab[N_PLAIN + i] = make(strcmp(pres[i], "gemma4") == 0 ? "gemma4" : "gpt2", pres[i]);
  }
  if (n < 2) return 0;
  if (data[0] >= 128) any_vocabulary(data + 1, n - 1);
  else use(vocab[data[0] % (N_PLAIN + N_PRE)], (const char *)data + 2, n - 2, data[1]);
  return 0;
}
