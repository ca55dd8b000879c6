// SPDX-License-Identifier: MIT
// The table of pre-tokenizer names and rules, and the driver of passes.
//
// Names and their flags: llama.cpp's src/llama-vocab.cpp, the only place where
// the meaning of `tokenizer.ggml.pre` is written down. A new name is one row.
#include "tok/pretok.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "tok/pretok_rules.h"

enum { L = MTX_UNI_L, N = MTX_UNI_N, P = MTX_UNI_P, S = MTX_UNI_S, M = MTX_UNI_M, WS = MTX_UNI_WS };

#define RUN(...) {mtx_match_run, NULL, &(const mtx_run){__VA_ARGS__}}
#define WORDS(...) {mtx_match_words, NULL, &(const mtx_words){__VA_ARGS__}}
#define CUT(fn) {NULL, fn, NULL}
#define RULE(name, ...)                       \
  static const mtx_pass name##_pass[] = {__VA_ARGS__}; \
  static const mtx_pretok_rule name = {name##_pass, sizeof name##_pass / sizeof *name##_pass}

static const uint32_t han_kana[][2] = {{0x4E00, 0x9FA5}, {0x3040, 0x30FF}};
static const uint32_t ds_cjk[][2] = {{0x4E00, 0x9FA5}, {0x0800, 0x4E00}, {0xAC00, 0xD7FF}};
static const uint32_t ds_punct[][2] = {{'!', '/'}, {':', '~'}, {0xFF01, 0xFF0F}, {0xFF1A, 0xFF5E}, {0x2018, 0x201F}, {0x3000, 0x3002}};
static const uint32_t bloom_marks[][2] = {{0x2026, 0x2026}, {0x3002, 0x3002}, {0xFF0C, 0xFF0C}, {0x3001, 0x3001},
                                          {0x0964, 0x0964}, {0x06D4, 0x06D4}, {0x060C, 0x060C}};
// The first range starts at U+8C48, as in the reference, where U+F900 was meant.
static const uint32_t afmoe_scripts[][2] = {
    {0x8C48, 0xFAFF}, {0x4E00, 0x9FFF}, {0x3400, 0x4DBF}, {0x3040, 0x30FF}, {0xFF65, 0xFF9F}, {0x2F00, 0x2FDF},
    {0x0E40, 0x0EFF}, {0x1780, 0x17FF}, {0x1000, 0x109F}, {0xAA60, 0xAA7F}, {0xA9E0, 0xA9FF}, {0x1100, 0x11FF}};
// DeepSeek LLM's list of cased letters (its tokenizer.json).
static const uint32_t ds_letters[][2] = {
    {'A', 'Z'}, {'a', 'z'}, {0xB5, 0xB5}, {0xC0, 0xD6}, {0xD8, 0xF6}, {0xF8, 0x1BA}, {0x1BC, 0x1BF}, {0x1C4, 0x293},
    {0x295, 0x2AF}, {0x370, 0x373}, {0x376, 0x377}, {0x37B, 0x37D}, {0x37F, 0x37F}, {0x386, 0x386}, {0x388, 0x38A},
    {0x38C, 0x38C}, {0x38E, 0x3A1}, {0x3A3, 0x3F5}, {0x3F7, 0x481}, {0x48A, 0x52F}, {0x531, 0x556}, {0x10A0, 0x10C5},
    {0x13A0, 0x13F5}, {0x13F8, 0x13FD}, {0x1C90, 0x1CBA}, {0x1CBD, 0x1CBF}, {0x1D00, 0x1D2B}, {0x1D6B, 0x1D77},
    {0x1D79, 0x1D9A}, {0x1E00, 0x1F15}, {0x1F18, 0x1F1D}, {0x1F20, 0x1F45}, {0x1F48, 0x1F4D}, {0x1F50, 0x1F57},
    {0x1F59, 0x1F59}, {0x1F5B, 0x1F5B}, {0x1F5D, 0x1F5D}, {0x1F5F, 0x1F7D}, {0x1F80, 0x1FB4}, {0x1FB6, 0x1FBC},
    {0x1FBE, 0x1FBE}, {0x1FC2, 0x1FC4}, {0x1FC6, 0x1FCC}, {0x1FD0, 0x1FD3}, {0x1FD6, 0x1FDB}, {0x1FE0, 0x1FEC},
    {0x1FF2, 0x1FF4}, {0x1FF6, 0x1FFC}, {0x2102, 0x2102}, {0x2107, 0x2107}, {0x210A, 0x2113}, {0x2115, 0x2115},
    {0x2119, 0x211D}, {0x2124, 0x2124}, {0x2126, 0x2126}, {0x2128, 0x2128}, {0x212A, 0x212D}, {0x212F, 0x2134},
    {0x2139, 0x2139}, {0x213C, 0x213F}, {0x2145, 0x2149}, {0x214E, 0x214E}, {0x2183, 0x2184}, {0x2C00, 0x2C7B},
    {0x2C7E, 0x2CE4}, {0x2CEB, 0x2CEE}, {0x2CF2, 0x2CF3}, {0xA640, 0xA66D}, {0xA680, 0xA69B}, {0xA722, 0xA76F},
    {0xA771, 0xA787}, {0xA78B, 0xA78E}, {0xAB70, 0xABBF}, {0xFB00, 0xFB06}, {0xFB13, 0xFB17}, {0xFF21, 0xFF3A},
    {0xFF41, 0xFF5A}, {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB}, {0x10C80, 0x10CB2},
    {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF}, {0x1E900, 0x1E943}};
#define RANGES(a) .range = a, .n_ranges = sizeof a / sizeof *a

#define GPT2_PASS {mtx_match_gpt2, NULL, NULL}
#define NUMBER_PASS RUN(.set.mask = N, .max = 1)
#define THREE_DIGITS_PASS RUN(.set.ascii = "0123456789", .min = 3, .max = 3)
#define NEWLINE_PASS RUN(.set.ascii = "\r\n", .max = 1)
#define CL100K(...) WORDS(.lead_not = L | N, .punct_not = WS | L | N, .tail = MTX_TAIL_NL, __VA_ARGS__)
#define DEEPSEEK3(...) WORDS(.ascii_punct = true, .lead_not = L | P | S, .body = MTX_BODY_LM, .symbols = true, __VA_ARGS__)

RULE(r_gpt2, GPT2_PASS);
RULE(r_default, RUN(.set = {.mask = P, .ascii = "$+<=>^~|"}), GPT2_PASS, RUN(.set.mask = N), THREE_DIGITS_PASS);
RULE(r_falcon, RUN(.set = {.mask = P, .ascii = "$+<=>^~|`"}), GPT2_PASS, THREE_DIGITS_PASS);
RULE(r_starcoder, NUMBER_PASS, GPT2_PASS);
RULE(r_llama3, CL100K(.contraction = true, .digits = 3));
RULE(r_jais2, CL100K(.contraction = true, .digits = 3, .space_ladder = true));
RULE(r_qwen2, CL100K(.contraction = true, .digits = 1));
RULE(r_qwen35, WORDS(.contraction = true, .lead_not = L | N, .body = MTX_BODY_LM, .digits = 1, .punct_not = WS | L | M | N, .tail = MTX_TAIL_NL));
RULE(r_ufakzeka, CL100K(.digits = 1));
RULE(r_seed, WORDS(.contraction = true, .lead_not = L | N, .digits = 1, .punct_not = WS | L | N));
RULE(r_laguna, CUT(mtx_cut_newlines), CL100K(.contraction = true, .digits = 1));
RULE(r_minicpm5, RUN(.set.mask = N, .max = 3), CL100K(.contraction = true, .digits = UINT32_MAX));
RULE(r_exaone_moe, WORDS(.contraction = true, .lead_not = L | N, .body = MTX_BODY_PHRASE, .digits = 1, .punct_not = WS | L | N, .tail = MTX_TAIL_ONE_NL_SLASH));
RULE(r_tekken, WORDS(.lead_not = L | N, .body = MTX_BODY_CASE, .digits = 1, .punct_not = WS | L | N, .tail = MTX_TAIL_NL_SLASH));
RULE(r_gpt4o, WORDS(.suffix = true, .lead_not = L | N, .body = MTX_BODY_CASE, .digits = 3, .punct_not = WS | L | N, .tail = MTX_TAIL_NL_SLASH));
RULE(r_granite_multi, WORDS(.suffix = true, .lead_not = L | N, .body = MTX_BODY_CASE_M, .digits = 3, .punct_not = WS | L | N, .tail = MTX_TAIL_NL_SLASH));
RULE(r_aya, CUT(mtx_cut_aya_digits), WORDS(.suffix = true, .lead_not = L | N, .body = MTX_BODY_LM, .digits = 3, .punct_not = WS | L | N, .tail = MTX_TAIL_NL_SLASH));
RULE(r_kimi, WORDS(.suffix = true, .lead_not = L | N, .body = MTX_BODY_KIMI, .digits = 3, .punct_not = WS | L | N, .tail = MTX_TAIL_NL));
RULE(r_youtu, {mtx_match_youtu, NULL, NULL}, WORDS(.suffix = true, .lead_not = L | N, .body = MTX_BODY_LM, .digits = 1, .punct_not = WS | L | N, .tail = MTX_TAIL_NL_SLASH));
RULE(r_deepseek_llm, NEWLINE_PASS, RUN(.set = {RANGES(ds_letters)}, .lead = MTX_LEAD_WS), RUN(.set = {RANGES(ds_punct)}, .lead = MTX_LEAD_WS),
     CUT(mtx_cut_trailing_space), RUN(.set = {RANGES(ds_cjk)}), RUN(.set.mask = N));
RULE(r_deepseek_coder, NEWLINE_PASS, RUN(.set.mask = L, .lead = MTX_LEAD_WS), RUN(.set.mask = P, .lead = MTX_LEAD_WS), RUN(.set = {RANGES(ds_cjk)}), NUMBER_PASS);
RULE(r_deepseek3, RUN(.set.mask = N, .max = 3), RUN(.set = {RANGES(han_kana)}), DEEPSEEK3(.tail = MTX_TAIL_NL));
RULE(r_spark, RUN(.set.mask = N, .max = 3), RUN(.set = {RANGES(han_kana)}), DEEPSEEK3(.single_newline = true), NUMBER_PASS);
RULE(r_afmoe, CUT(mtx_cut_afmoe_digits), RUN(.set = {RANGES(afmoe_scripts)}), DEEPSEEK3(.tail = MTX_TAIL_NL));
RULE(r_bloom, RUN(.set = {.mask = WS, .ascii = "(|.,!?)", RANGES(bloom_marks), .negate = true}, .lead = MTX_LEAD_SPACE));
RULE(r_viking, RUN(.set = {.mask = WS, .ascii = "(|.,!?)", RANGES(bloom_marks), .negate = true}, .lead = MTX_LEAD_SPACE), NUMBER_PASS);
RULE(r_chameleon, {mtx_match_chameleon_mark, NULL, NULL}, {mtx_match_chameleon_mark, NULL, ""}, {mtx_match_chameleon_space, NULL, NULL}, NUMBER_PASS,
     RUN(.set = {.mask = P, .ascii = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"}, .max = 1), GPT2_PASS);
RULE(r_superbpe, RUN(.set.mask = N), CUT(mtx_cut_digit_thirds));
RULE(r_newlines, CUT(mtx_cut_newlines));
RULE(r_whitespace, RUN(.set = {.mask = WS, .negate = true}));

enum { IGN = MTX_PRE_IGNORE_MERGES, BOS = MTX_PRE_ADD_BOS, KEEP = MTX_PRE_KEEP_SPACES, SEP = MTX_PRE_ADD_SEP,
       RAW = MTX_PRE_RAW, ESC = MTX_PRE_ESCAPE, GEMMA = MTX_PRE_GEMMA4 };

static const mtx_pretok names[] = {
    {"default", &r_default, 0},
    {"llama3", &r_llama3, IGN | BOS}, {"llama-v3", &r_llama3, IGN | BOS}, {"llama-bpe", &r_llama3, IGN | BOS},
    {"falcon3", &r_llama3, IGN | BOS}, {"falcon-h1", &r_llama3, IGN | BOS}, {"pixtral", &r_llama3, IGN | BOS},
    {"midm-2.0", &r_llama3, IGN | BOS}, {"lfm2", &r_llama3, IGN | BOS}, {"jina-v5-nano", &r_llama3, IGN | BOS},
    {"dbrx", &r_llama3, 0}, {"smaug-bpe", &r_llama3, 0}, {"glm4", &r_llama3, MTX_PRE_NO_BOS},
    {"chatglm-bpe", &r_llama3, MTX_PRE_NO_BOS}, {"jais-2", &r_jais2, 0}, {"minicpm5", &r_minicpm5, IGN},
    {"deepseek-llm", &r_deepseek_llm, KEEP}, {"deepseek-coder", &r_deepseek_coder, KEEP},
    {"deepseek-v3", &r_deepseek3, KEEP}, {"hunyuan-dense", &r_deepseek3, KEEP}, {"joyai-llm", &r_deepseek3, KEEP},
    {"hy_v4", &r_deepseek3, KEEP}, {"spark2_5", &r_spark, KEEP}, {"youtu", &r_youtu, KEEP | IGN},
    {"falcon", &r_falcon, 0}, {"mpt", &r_gpt2, 0},
    {"starcoder", &r_starcoder, 0}, {"refact", &r_starcoder, 0}, {"command-r", &r_starcoder, KEEP},
    {"smollm", &r_starcoder, KEEP}, {"codeshell", &r_starcoder, 0}, {"exaone", &r_starcoder, 0},
    {"minerva-7b", &r_starcoder, 0}, {"mellum2", &r_starcoder, 0},
    {"gpt-2", &r_gpt2, 0}, {"phi-2", &r_gpt2, 0}, {"jina-es", &r_gpt2, 0}, {"jina-de", &r_gpt2, 0},
    {"gigachat", &r_gpt2, 0}, {"jina-v2-es", &r_gpt2, 0}, {"jina-v2-de", &r_gpt2, 0}, {"a.x-4.0", &r_gpt2, 0},
    {"mellum", &r_gpt2, 0}, {"modern-bert", &r_gpt2, 0}, {"exaone4", &r_gpt2, 0}, {"olmo", &r_gpt2, 0},
    {"jais", &r_gpt2, 0}, {"trillion", &r_gpt2, KEEP}, {"granite-docling", &r_gpt2, KEEP},
    {"jina-v1-en", &r_gpt2, SEP}, {"jina-v2-code", &r_gpt2, SEP}, {"roberta-bpe", &r_gpt2, SEP},
    {"qwen2", &r_qwen2, KEEP}, {"deepseek-r1-qwen", &r_qwen2, KEEP}, {"kormo", &r_qwen2, KEEP},
    {"f2llmv2", &r_qwen2, KEEP}, {"megrez", &r_qwen2, 0}, {"stablelm2", &r_qwen2, 0}, {"hunyuan", &r_qwen2, KEEP},
    {"solar-open", &r_qwen2, KEEP}, {"grok-2", &r_qwen2, KEEP}, {"bailingmoe", &r_qwen2, KEEP},
    {"bailingmoe2", &r_qwen2, KEEP}, {"llada-moe", &r_qwen2, KEEP}, {"qwen35", &r_qwen35, KEEP},
    {"ufakzeka", &r_ufakzeka, KEEP}, {"seed-coder", &r_seed, KEEP}, {"laguna", &r_laguna, KEEP},
    {"poro-chat", &r_bloom, KEEP}, {"bloom", &r_bloom, 0}, {"gpt3-finnish", &r_bloom, 0}, {"viking", &r_viking, KEEP},
    {"tekken", &r_tekken, KEEP | IGN | BOS}, {"gpt-4o", &r_gpt4o, KEEP}, {"llama4", &r_gpt4o, KEEP},
    {"kanana2", &r_gpt4o, KEEP}, {"talkie", &r_gpt4o, KEEP}, {"minimax-m2", &r_gpt4o, KEEP},
    {"granite-embed-multi-97m", &r_granite_multi, KEEP | IGN}, {"tiny_aya", &r_aya, KEEP}, {"cohere2moe", &r_aya, KEEP},
    {"superbpe", &r_superbpe, KEEP}, {"kimi-k2", &r_kimi, KEEP}, {"afmoe", &r_afmoe, KEEP},
    {"exaone-moe", &r_exaone_moe, 0}, {"chameleon", &r_chameleon, KEEP | BOS},
    {"gemma4", &r_newlines, RAW | ESC | GEMMA}, {"granite-embed-multi-311m", &r_newlines, RAW | ESC | GEMMA},
    {"sarvam-moe", &r_newlines, RAW | ESC | KEEP}, {"whitespace", &r_whitespace, RAW},
};

const mtx_pretok *mtx_pretok_at(size_t i) { return i < sizeof names / sizeof *names ? &names[i] : NULL; }

const mtx_pretok *mtx_pretok_find(const char *name, size_t len) {
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strlen(names[i].name) == len && memcmp(names[i].name, name, len) == 0) return &names[i];
  return NULL;
}

mtx_code mtx_cuts_push(mtx_cuts *c, size_t end, mtx_err *err) {
  if (c->len == c->cap) {
    mtx_code rc = mtx_grow(&c->ptr, &c->cap, c->len + 1, sizeof *c->ptr, err);
    if (rc) return rc;
  }
  c->ptr[c->len++] = (uint32_t)end;
  return MTX_OK;
}

void mtx_cuts_fini(mtx_cuts *c) {
  free(c->ptr);
  *c = (mtx_cuts){0};
}

static mtx_code run_pass(const mtx_pass *p, const mtx_pretok_view *v, size_t begin, size_t end, mtx_cuts *out, mtx_err *err) {
  if (p->cut) return p->cut(v, begin, end, out, err);
  mtx_code rc;
  size_t gap = begin;
  for (size_t i = begin; i < end;) {
    size_t j = p->match(v, i, begin, end, p);
    if (j == i) {
      i++;
      continue;
    }
    if (i > gap && (rc = mtx_cuts_push(out, i, err))) return rc;
    if ((rc = mtx_cuts_push(out, j, err))) return rc;
    gap = i = j;
  }
  return gap < end ? mtx_cuts_push(out, end, err) : MTX_OK;
}

mtx_code mtx_pretok_split(const mtx_pretok_rule *rule, const mtx_pretok_view *v, mtx_cuts *out, mtx_cuts *tmp, mtx_err *err) {
  mtx_code rc;
  out->len = 0;
  if (!v->n) return MTX_OK;
  if ((rc = mtx_cuts_push(out, v->n, err))) return rc;
  for (size_t i = 0; i < rule->n_passes; i++) {
    mtx_cuts swap = *tmp;
    *tmp = *out;
    *out = swap;
    out->len = 0;
    size_t begin = 0;
    for (size_t k = 0; k < tmp->len; k++) {
      if ((rc = run_pass(&rule->pass[i], v, begin, tmp->ptr[k], out, err))) return rc;
      begin = tmp->ptr[k];
    }
  }
  return MTX_OK;
}
