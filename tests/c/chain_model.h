// SPDX-License-Identifier: MIT
// A tiny llama-architecture model that follows a script: greedy decoding walks
// a fixed chain of tokens, so tests choose every text a model says.
//
// One block whose attention and feed-forward are zero; token_embd is the unit
// matrix; output.weight gives token succ(i) a large logit after token i. Token
// texts are any bytes (written in the GPT-2 alphabet). Token 0 ends a generation.
//
// tests/lua/chain_model.lua is its like for Lua. There are two because what scripts differ in
// (there whole answers and a template; here single bytes, split characters, near ties) is most
// of each, and the C tests run without Lua (sanitizers, other CPUs).
#ifndef MTX_TESTS_CHAIN_MODEL_H
#define MTX_TESTS_CHAIN_MODEL_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gguf/write.h"
#include "temp.h"

enum { CHAIN_DIM = 128 };  // tokens at most, and width of the model

typedef struct {
  int n;                             // tokens; 0 is the end, 1 is "<|ctl|>" (control)
  char text[CHAIN_DIM][16];          // bytes of a token
  int len[CHAIN_DIM];
  int succ[CHAIN_DIM];               // greedy successor
  float gap;                         // logit of the successor over the others
} chain;

static inline int chain_add(chain *c, const char *text, int len) {
  memcpy(c->text[c->n], text, (size_t)len);
  c->len[c->n] = len;
  c->succ[c->n] = 0;
  return c->n++;
}

static inline void chain_init(chain *c) {
  memset(c, 0, sizeof *c);
  c->gap = 20;
  chain_add(c, "<|end|>", 7);
  chain_add(c, "<|ctl|>", 7);
}

// Adds tokens that say `text` in pieces of `piece` bytes, each followed by the
// next, the last by the end. Returns the first one's id.
static inline int chain_say(chain *c, const char *text, int piece) {
  int first = c->n, len = (int)strlen(text);
  for (int at = 0; at < len; at += piece) {
    int id = chain_add(c, text + at, len - at < piece ? len - at : piece);
    c->succ[id] = at + piece < len ? id + 1 : 0;
  }
  return first;
}

static inline int chain_gpt2_text(const chain *c, int id, char *dst) {
  int n = 0;
  for (int i = 0; i < c->len[id]; i++) {
    unsigned b = (unsigned char)c->text[id][i], u = b, extra = 0;
    bool plain = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    if (!plain) {  // the n-th byte that has no printable form of its own is U+0100 + n
      for (unsigned k = 0; k < b; k++) extra += !((k >= 33 && k <= 126) || (k >= 161 && k <= 172) || k >= 174);
      u = 256 + extra;
    }
    if (u < 0x80) dst[n++] = (char)u;
    else dst[n++] = (char)(0xc0 | u >> 6), dst[n++] = (char)(0x80 | (u & 63));
  }
  return n;
}

// Writes the model to a new file. False with a message on stderr.
static inline bool chain_write(const chain *c, char path[TEMP_PATH]) {
  enum { D = CHAIN_DIM };
  static float unit[D * D], out[D * D], zero[D * D], ones[D];
  static char texts[D][64];
  mtx_str toks[D];
  int32_t types[D];
  memset(unit, 0, sizeof unit);
  memset(out, 0, sizeof out);
  float scale = c->gap / sqrtf(D);  // a unit vector leaves the norm as sqrt(D)
  for (int i = 0; i < D; i++) {
    unit[i * D + i] = 1;
    ones[i] = 1;
    if (i < c->n) out[c->succ[i] * D + i] = scale;
    if (i < c->n) {
      toks[i] = (mtx_str){texts[i], (size_t)chain_gpt2_text(c, i, texts[i])};
    } else {
      toks[i] = (mtx_str){texts[i], (size_t)snprintf(texts[i], sizeof texts[i], "unused%d", i)};
    }
    types[i] = i < 2 ? 3 : 1;
  }
  mtx_gguf_writer *w = NULL;
  mtx_err err = {0};
  mtx_str arch = {"llama", 5}, model = {"gpt2", 4}, pre = {"gpt-2", 5}, merge = {"u n", 3};
  const uint64_t square[2] = {D, D}, row[1] = {D};
  static const char *const squares[] = {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight", "blk.0.attn_output.weight",
                                        "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight"};
  static const char *const rows[] = {"blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"};
  bool ok = !mtx_gguf_writer_new(&w, &err) && !mtx_gguf_put_str(w, "general.architecture", arch, &err) &&
            !mtx_gguf_put_u32(w, "llama.block_count", 1, &err) && !mtx_gguf_put_u32(w, "llama.context_length", 2048, &err) &&
            !mtx_gguf_put_u32(w, "llama.embedding_length", D, &err) && !mtx_gguf_put_u32(w, "llama.feed_forward_length", D, &err) &&
            !mtx_gguf_put_u32(w, "llama.attention.head_count", 4, &err) && !mtx_gguf_put_u32(w, "llama.attention.head_count_kv", 4, &err) &&
            !mtx_gguf_put_u32(w, "llama.rope.dimension_count", D / 4, &err) &&
            !mtx_gguf_put_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-6f, &err) &&
            !mtx_gguf_put_str(w, "tokenizer.ggml.model", model, &err) && !mtx_gguf_put_str(w, "tokenizer.ggml.pre", pre, &err) &&
            !mtx_gguf_put_strs(w, "tokenizer.ggml.tokens", toks, D, &err) && !mtx_gguf_put_strs(w, "tokenizer.ggml.merges", &merge, 1, &err) &&
            !mtx_gguf_put_array(w, "tokenizer.ggml.token_type", MTX_GGUF_I32, types, D, &err) &&
            !mtx_gguf_put_u32(w, "tokenizer.ggml.eos_token_id", 0, &err) && !mtx_gguf_put_bool(w, "tokenizer.ggml.add_bos_token", false, &err);
  for (int i = 0; ok && i < 7; i++) ok = !mtx_gguf_add(w, (mtx_str){squares[i], strlen(squares[i])}, 0, 2, square, zero, sizeof zero, &err);
  for (int i = 0; ok && i < 3; i++) ok = !mtx_gguf_add(w, (mtx_str){rows[i], strlen(rows[i])}, 0, 1, row, ones, sizeof ones, &err);
  ok = ok && !mtx_gguf_add(w, (mtx_str){"token_embd.weight", 17}, 0, 2, square, unit, sizeof unit, &err) &&
       !mtx_gguf_add(w, (mtx_str){"output.weight", 13}, 0, 2, square, out, sizeof out, &err);
  temp_path(path);
  ok = ok && !mtx_gguf_write(w, path, &err);
  if (!ok) fprintf(stderr, "chain model: %s %s\n", err.key, err.msg);
  mtx_gguf_writer_free(w);
  return ok;
}

#endif
