// SPDX-License-Identifier: MIT
// Tokenizers: text to token ids and back, for the vocabulary a GGUF file carries.
//
// Kinds (`tokenizer.ggml.model`): gpt2 and gemma4 (BPE by merges), llama
// (SentencePiece BPE by scores), t5 (unigram), bert (WordPiece), rwkv (longest
// match), plamo2 (cheapest path), whitespace and hybriddna (BPE variants). Ids
// equal llama.cpp's, whose reading of the metadata is the de-facto standard.
//
// An opened mtx_tok is immutable: any number of threads may use it at once. It
// copies what it needs, so the file may be closed after open.
//
// Damaged vocabularies: a missing or mistyped array, one that is too short, and
// a BOS, EOS or EOT id out of range are errors naming the key. Tolerated: any
// other special id out of range (as if absent), a duplicate token text (the
// lowest id is encoded to), a merge without a space (ignored), an empty token
// (never encoded to; decodes to nothing), and a text over 1024 bytes (no special
// token, and not encoded to by the kinds that are not BPE).
#ifndef MTX_TOK_TOK_H
#define MTX_TOK_TOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "gguf/gguf.h"

typedef struct mtx_tok mtx_tok;

// Errors: MTX_ENOTFOUND (no tokenizer in the file), MTX_EFORMAT (a key is
// damaged), MTX_EUNSUPPORTED (unknown tokenizer model or pre-tokenizer, named),
// MTX_ENOMEM. On failure *out is NULL.
mtx_code mtx_tok_open(mtx_tok **out, const mtx_gguf *g, mtx_err *err);
void mtx_tok_close(mtx_tok *t);

int32_t mtx_tok_n_tokens(const mtx_tok *t);
const char *mtx_tok_model(const mtx_tok *t);  // "gpt2", "llama", ...
const char *mtx_tok_pre(const mtx_tok *t);    // name of the pre-tokenizer; "" where there is none

// Special tokens; -1 where the vocabulary has none.
typedef enum {
  MTX_TOK_BOS, MTX_TOK_EOS, MTX_TOK_EOT, MTX_TOK_EOM, MTX_TOK_UNK, MTX_TOK_SEP, MTX_TOK_PAD, MTX_TOK_MASK,
  MTX_TOK_FIM_PRE, MTX_TOK_FIM_SUF, MTX_TOK_FIM_MID, MTX_TOK_FIM_PAD, MTX_TOK_FIM_REP, MTX_TOK_FIM_SEP,
  MTX_TOK_NL,  // what a newline alone is encoded to
  MTX_TOK_N_SPECIAL,
} mtx_tok_special;
int32_t mtx_tok_special_id(const mtx_tok *t, mtx_tok_special which);
const char *mtx_tok_special_name(mtx_tok_special which);  // "bos", "eos", ...
bool mtx_tok_add_bos(const mtx_tok *t);
bool mtx_tok_add_eos(const mtx_tok *t);
bool mtx_tok_add_sep(const mtx_tok *t);

// True for every token that ends a generation: EOS, EOT, EOM and the texts that
// are used as such (`<|im_end|>`, `<end_of_turn>`, ...).
bool mtx_tok_is_eog(const mtx_tok *t, int32_t id);

// Attribute bits of a token. A token may have several (control and normal).
enum {
  MTX_TOK_ATTR_UNKNOWN = 1, MTX_TOK_ATTR_UNUSED = 2, MTX_TOK_ATTR_NORMAL = 4, MTX_TOK_ATTR_CONTROL = 8,
  MTX_TOK_ATTR_USER = 16, MTX_TOK_ATTR_BYTE = 32, MTX_TOK_ATTR_LSTRIP = 64, MTX_TOK_ATTR_RSTRIP = 128,
};
unsigned mtx_tok_attr(const mtx_tok *t, int32_t id);  // 0 for ids out of range

// The id whose text as the vocabulary writes it (GPT-2 alphabet, U+2581, <0x0A>) is text[0..n); -1 if none.
int32_t mtx_tok_find(const mtx_tok *t, const char *text, size_t n);

// --- encoding ---------------------------------------------------------------

typedef struct { size_t begin, end; } mtx_span;  // byte range [begin, end) of the text

enum {
  MTX_TOK_ADD_SPECIAL = 1,    // BOS, EOS, SEP as the vocabulary wants them
  MTX_TOK_PARSE_SPECIAL = 2,  // text that spells a control token becomes that token
  MTX_TOK_BOS_ONCE = 4,       // with ADD_SPECIAL: no second BOS before text that starts with BOS
  MTX_TOK_CONTINUE = 8,       // the text continues earlier text: no space is put before its start
};

// Appends the ids of text[0..n) to *out. With PARSE_SPECIAL and n_spans > 0 only
// text inside one of the spans (ascending, not overlapping) may become a control
// token: the spans are what the chat template wrote, the rest is the user's
// (SEC-90). spans == NULL: the whole text is trusted. User-defined tokens (no
// control tokens: runs of spaces, HTML tags) are recognised everywhere.
// Bytes that are not UTF-8 become U+FFFD, or byte tokens where the vocabulary
// works on bytes; see mtx_utf8_valid for those who want to refuse them.
// Errors: MTX_ELIMIT (text over 1 GiB), MTX_EINVAL (spans), MTX_EFORMAT (the
// vocabulary has no token for a byte), MTX_ENOMEM. On failure *out is as before.
mtx_code mtx_tok_encode(const mtx_tok *t, const char *text, size_t n, unsigned flags, const mtx_span *spans, size_t n_spans,
                        mtx_ids *out, mtx_err *err);

// --- decoding ---------------------------------------------------------------

// The bytes that token `id` stands for in a text, as streaming output shows it.
// Borrowed; may be part of a UTF-8 character. Control and unknown tokens give
// their text when `special`, else nothing. False for ids out of range.
bool mtx_tok_piece(const mtx_tok *t, int32_t id, bool special, const char **ptr, size_t *len);

enum {
  MTX_TOK_REMOVE_SPECIAL = 1,   // drop the BOS in front and the EOS behind that encoding added
  MTX_TOK_UNPARSE_SPECIAL = 2,  // control tokens as their text
  MTX_TOK_RAW = 4,              // only joined pieces: keep a leading space and spaces before punctuation
};
// Appends the text of ids[0..n). Errors: MTX_EINVAL (id out of range, named), MTX_ENOMEM.
mtx_code mtx_tok_decode(const mtx_tok *t, const int32_t *ids, size_t n, unsigned flags, mtx_buf *out, mtx_err *err);

// Incremental detokenizer: every output is whole UTF-8 characters (SEC-92).
// Bytes of an unfinished character are held; bytes that cannot become one are
// given out as U+FFFD, once per broken sequence, and so is a tail at the end.
typedef struct {
  const mtx_tok *tok;
  bool special;        // show control tokens
  bool strip_space;    // the next piece loses one leading space
  uint8_t n_held;
  char held[4];
} mtx_detok;
// `at_start`: the ids start a text, so the space that encoding put before it is dropped.
void mtx_detok_init(mtx_detok *d, const mtx_tok *t, bool special, bool at_start);
// Appends to *out what is certain now. Errors as mtx_tok_decode.
mtx_code mtx_detok_feed(mtx_detok *d, int32_t id, mtx_buf *out, mtx_err *err);
// The same for bytes that a token gave earlier.
mtx_code mtx_detok_bytes(mtx_detok *d, const char *bytes, size_t n, mtx_buf *out, mtx_err *err);
mtx_code mtx_detok_flush(mtx_detok *d, mtx_buf *out, mtx_err *err);
// Makes any bytes whole UTF-8 with the same rule (text that does not come token by token).
mtx_code mtx_utf8_repair(const char *bytes, size_t n, mtx_buf *out, mtx_err *err);

#endif
