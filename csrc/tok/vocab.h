// SPDX-License-Identifier: MIT
// Inside of csrc/tok: the vocabulary, and what the kinds of tokenizer share.
#ifndef MTX_TOK_VOCAB_H
#define MTX_TOK_VOCAB_H

#include "base/buf.h"
#include "tok/map.h"
#include "tok/pretok.h"
#include "tok/tok.h"
#include "tok/trie.h"

typedef enum { MTX_KIND_SPM, MTX_KIND_BPE, MTX_KIND_WPM, MTX_KIND_UGM, MTX_KIND_RWKV, MTX_KIND_PLAMO2 } mtx_tok_kind;

enum { MTX_TOK_MAX_TEXT = 1 << 30 };  // bytes of one call; positions are 32-bit

#define MTX_ESCAPED_SPACE "\xE2\x96\x81"  // U+2581

struct mtx_tok {
  char model[16], pre[64];
  mtx_tok_kind kind;
  const mtx_pretok *pretok;  // BPE only
  bool byte_level;           // token texts are in the GPT-2 byte alphabet
  bool escape_spaces;        // ' ' is U+2581 in token texts
  bool ignore_merges, gemma4, drop_spaces, dna;
  bool add_bos, add_eos, add_sep, add_space_prefix, clean_spaces, merge_spaces;
  bool lowercase, strip_accents;
  int32_t special[MTX_TOK_N_SPECIAL];

  int32_t n_tokens;
  char *arena;            // token texts
  mtx_str *text;          // [n_tokens], as the file has them
  uint16_t *attr;         // [n_tokens]
  float *score;           // [n_tokens] or NULL
  uint8_t *eog;           // [n_tokens]
  mtx_buf pieces;         // bytes of all pieces
  uint32_t *piece_off;    // [n_tokens+1]

  // Encoding works on keys: raw bytes for byte-level BPE, else the texts.
  // Strings that only merges mention are keys too, with ids from n_tokens on.
  char *key_bytes;        // of the tokens' keys, where they differ from the texts
  char *merge_bytes;      // of the other keys
  size_t n_merge_bytes;
  mtx_str *key;           // [n_keys]
  size_t n_keys;
  mtx_strmap map;         // key -> id
  size_t max_key;         // longest key, bytes
  mtx_pairmap merges;     // BPE
  uint32_t byte_sym[256]; // byte-level: key id of one byte; UINT32_MAX: none
  int32_t byte_id[256];   // token that stands for a byte where nothing else does; -1: none
  uint32_t glue[8];       // set of bytes that stand before U+2581 inside a key: there a text may not be cut

  mtx_trie trie;          // WPM, UGM, RWKV, PLaMo-2: the texts that encoding may use
  mtx_trie user_trie;     // UGM: user-defined tokens
  mtx_str *rwkv_text;     // [n_tokens] RWKV: unescaped texts, in rwkv_bytes
  char *rwkv_bytes;
  uint32_t *xcda;         // UGM: the normaliser's double array
  size_t n_xcda;
  mtx_buf replacements;   // UGM: zero-terminated strings
  bool plain[128];        // UGM: bytes that normalisation leaves alone unless a byte from 0x80 on follows
  bool spaces_begin_words;  // UGM: U+2581 is a token, so no unknown character's token reaches across it
  float unk_score;
  mtx_trie special_trie;  // control, unknown and user-defined tokens
};

// Scratch of one encode call; every buffer grows as needed and is reused.
typedef struct { uint32_t pos, len, id, prev, next; } mtx_sym;  // id UINT32_MAX: no key
typedef struct { uint32_t key, left, right, size, id; } mtx_cand;
typedef struct { double score; uint32_t from; int32_t id; } mtx_path;
typedef struct mtx_word_cache mtx_word_cache;
typedef struct {
  const mtx_tok *t;
  mtx_ids *out;
  mtx_err *err;
  mtx_buf text, norm;
  uint32_t *cp;
  uint8_t *cls;
  uint32_t *off;
  size_t cap_cp, cap_cls, cap_off;
  mtx_cuts cuts, tmp;
  mtx_sym *sym;
  size_t cap_sym;
  mtx_cand *heap;
  size_t n_heap, cap_heap;
  mtx_path *path;       // UGM: the best way to every byte of a word
  size_t cap_path;
  mtx_word_cache *cache;
} mtx_enc;

// vocab.c
mtx_code mtx_tok_bad(const mtx_gguf *g, mtx_err *err, const char *key, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
int32_t mtx_tok_byte_of(const mtx_str *text);  // value of "<0xHH>", else -1
// Room for n more keys of n_bytes in all; the map is rebuilt over the moved table.
mtx_code mtx_tok_grow_keys(mtx_tok *t, size_t n, size_t n_bytes, mtx_err *err);
// specials.c: special ids, attributes by name, end-of-generation set, the trie of specials.
mtx_code mtx_tok_load_specials(mtx_tok *t, const mtx_gguf *g, mtx_err *err);
// pieces.c
mtx_code mtx_tok_build_pieces(mtx_tok *t, mtx_err *err);
size_t mtx_gpt2_decode(const mtx_str *text, char *dst);  // raw bytes of a text in the byte alphabet; SIZE_MAX if it is none
// Undoes RWKV's escapes (\n, \t, \r, \xHH, \\); dst has room for text->len bytes.
size_t mtx_rwkv_unescape(const mtx_str *text, char *dst);

// Loaders of the kinds, after tokens, attributes and specials are known.
mtx_code mtx_bpe_load(mtx_tok *t, const mtx_gguf *g, mtx_err *err);
mtx_code mtx_spm_load(mtx_tok *t, mtx_err *err);
mtx_code mtx_ugm_load(mtx_tok *t, const mtx_gguf *g, mtx_err *err);
mtx_code mtx_trie_kinds_load(mtx_tok *t, mtx_err *err);  // WPM, RWKV, PLaMo-2

// Encoders of one plain piece of text; append to e->out.
mtx_code mtx_bpe_encode(mtx_enc *e, const char *p, size_t n);
mtx_code mtx_spm_encode(mtx_enc *e, const char *p, size_t n, bool prefix_space);
mtx_code mtx_wpm_encode(mtx_enc *e, const char *p, size_t n);
mtx_code mtx_ugm_encode(mtx_enc *e, const char *p, size_t n);
mtx_code mtx_ugm_word(mtx_enc *e, const char *p, size_t n);  // normalised text
mtx_code mtx_rwkv_encode(mtx_enc *e, const char *p, size_t n);
mtx_code mtx_plamo2_encode(mtx_enc *e, const char *p, size_t n);

// merge.c: one word by merges (BPE) or scores (SPM, UGM); p[0..n) must outlive the call.
mtx_code mtx_encode_word(mtx_enc *e, const char *p, size_t n);
// Starts the word cache when a text of n bytes is worth it.
void mtx_cache_start(mtx_enc *e, size_t n);
// Long escaped text: cut before every U+2581 where no key reaches across, each part a word.
mtx_code mtx_encode_words(mtx_enc *e, const char *p, size_t n);
void mtx_tok_mark_glue(mtx_tok *t);
// Appends the text with each ' ' as U+2581 to *dst.
mtx_code mtx_escape_spaces(mtx_buf *dst, const char *p, size_t n, mtx_err *err);
// Appends p[0..n) with everything that is not canonical UTF-8 replaced.
mtx_code mtx_clean_utf8(mtx_buf *dst, const char *p, size_t n, mtx_err *err);
void mtx_enc_fini(mtx_enc *e);

#endif
