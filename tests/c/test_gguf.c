// SPDX-License-Identifier: MIT
// The GGUF reader against hand-made files: good ones of both versions, one bad
// file per row of a table (with the words its error must hold), split models,
// files that shrink under an open model. Kinds of bad files: llama.cpp's
// tests/test-gguf.cpp names 34; the rest come from published faults.
#include <limits.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "gguf/gguf.h"
#include "gguf_bytes.h"
#include "temp.h"

static const char *dir;

static const char *in_dir(const char *name) {
  static char buf[4][PATH_MAX + 64];
  static int k;
  char *s = buf[k++ & 3];
  snprintf(s, sizeof buf[0], "%s/%s", dir, name);
  return s;
}

// ---------------------------------------------------------------- good files

// Every value type, an array of each kind, two tensors (F32 [4,2], Q8_0 [32]).
static void good(gb *b, uint32_t version, uint32_t alignment) {
  gb_head(b, version, 2, alignment ? 21 : 20);
  gb_kv_str(b, "general.architecture", "llama");
  gb_kv_u32(b, "a.u32", 4000000000u);
  gb_kv_i32(b, "a.i32", -7);
  gb_kv_u16(b, "a.u16", 65535);
  gb_str(b, "a.u8"), gb_u32(b, 0), gb_u8(b, 200);
  gb_str(b, "a.i8"), gb_u32(b, 1), gb_u8(b, 0xff);
  gb_str(b, "a.i16"), gb_u32(b, 3), gb_raw(b, "\x00\x80", 2);
  float f = 0.5f;
  gb_str(b, "a.f32"), gb_u32(b, 6), gb_raw(b, &f, 4);
  gb_str(b, "a.bool"), gb_u32(b, 7), gb_u8(b, 1);
  gb_str(b, "a.u64"), gb_u32(b, 10), gb_u64(b, UINT64_MAX);
  gb_str(b, "a.i64"), gb_u32(b, 11), gb_u64(b, (uint64_t)-9);
  double d = 1e-5, big = 1e300;
  gb_str(b, "a.f64"), gb_u32(b, 12), gb_raw(b, &d, 8);
  gb_str(b, "a.f64big"), gb_u32(b, 12), gb_raw(b, &big, 8);
  gb_str(b, "a.empty"), gb_u32(b, 8), gb_str(b, "");
  gb_str(b, "l.i32"), gb_u32(b, 9), gb_u32(b, 5), gb_u64(b, 3);
  for (int32_t v = -1; v <= 1; v++) gb_raw(b, &v, 4);
  gb_str(b, "l.str"), gb_u32(b, 9), gb_u32(b, 8), gb_u64(b, 3), gb_str(b, "x"), gb_str(b, ""), gb_str(b, "yz");
  gb_str(b, "l.none"), gb_u32(b, 9), gb_u32(b, 8), gb_u64(b, 0);
  gb_str(b, "l.f64"), gb_u32(b, 9), gb_u32(b, 12), gb_u64(b, 1), gb_raw(b, &d, 8);
  gb_str(b, "l.bool"), gb_u32(b, 9), gb_u32(b, 7), gb_u64(b, 2), gb_u8(b, 0), gb_u8(b, 1);
  gb_str(b, "l.u64"), gb_u32(b, 9), gb_u32(b, 10), gb_u64(b, 1), gb_u64(b, 5);
  size_t al = alignment ? alignment : 32;
  if (alignment) gb_kv_u32(b, "general.alignment", alignment);
  gb_tensor(b, "w", 2, (uint64_t[]){4, 2}, 0, 0);
  gb_tensor(b, "q", 1, (uint64_t[]){32}, 8, (32 + al - 1) / al * al);
  gb_pad(b, al);
  for (int i = 0; i < 8; i++) { float x = (float)i; gb_raw(b, &x, 4); }
  gb_pad(b, al);
  for (int i = 0; i < 34; i++) gb_u8(b, (uint8_t)i);
}

static void check_good_values(const mtx_gguf *g) {
  mtx_err err;
  uint32_t u = 1;
  uint64_t u64 = 0;
  float f = 0;
  bool t = false;
  mtx_str s;
  CHECK(mtx_gguf_get_u32(g, "a.u32", true, &u, &err) == MTX_OK && u == 4000000000u);
  CHECK(mtx_gguf_get_u32(g, "a.u16", true, &u, &err) == MTX_OK && u == 65535);
  CHECK(mtx_gguf_get_u32(g, "a.u8", true, &u, &err) == MTX_OK && u == 200);
  CHECK(mtx_gguf_get_u64(g, "a.u64", true, &u64, &err) == MTX_OK && u64 == UINT64_MAX);
  CHECK(mtx_gguf_get_u32(g, "a.u64", true, &u, &err) == MTX_EFORMAT && !strcmp(err.key, "a.u64"));
  CHECK(mtx_gguf_get_u32(g, "a.i32", true, &u, &err) == MTX_EFORMAT && !strcmp(err.key, "a.i32") && err.offset > 24);
  CHECK(mtx_gguf_get_u32(g, "a.bool", true, &u, &err) == MTX_EFORMAT);
  CHECK(mtx_gguf_get_u32(g, "l.i32", true, &u, &err) == MTX_EFORMAT && strstr(err.msg, "array of i32"));
  CHECK(mtx_gguf_get_f32(g, "a.f32", true, &f, &err) == MTX_OK && f == 0.5f);
  CHECK(mtx_gguf_get_f32(g, "a.f64", true, &f, &err) == MTX_OK && f == 1e-5f);
  CHECK(mtx_gguf_get_f32(g, "a.f64big", true, &f, &err) == MTX_EFORMAT);
  CHECK(mtx_gguf_get_f32(g, "a.u32", true, &f, &err) == MTX_EFORMAT);
  CHECK(mtx_gguf_get_bool(g, "a.bool", true, &t, &err) == MTX_OK && t);
  CHECK(mtx_gguf_get_bool(g, "a.u8", true, &t, &err) == MTX_EFORMAT);
  CHECK(mtx_gguf_get_str(g, "general.architecture", true, &s, &err) == MTX_OK && s.len == 5 && !memcmp(s.ptr, "llama", 5));
  CHECK(mtx_gguf_get_str(g, "a.empty", true, &s, &err) == MTX_OK && s.len == 0);
  CHECK(mtx_gguf_get_str(g, "a.u8", true, &s, &err) == MTX_EFORMAT);
  u = 77;
  err.code = MTX_OK;
  CHECK(mtx_gguf_get_u32(g, "no.such", false, &u, &err) == MTX_ENOTFOUND && u == 77 && err.code == MTX_OK);
  CHECK(mtx_gguf_get_u32(g, "no.such", true, &u, &err) == MTX_ENOTFOUND && !strcmp(err.key, "no.such"));
  const mtx_gguf_kv *kv = mtx_gguf_find(g, "l.i32");
  CHECK(kv && kv->n == 3 && mtx_gguf_item_i64(kv, 0) == -1 && mtx_gguf_item_i64(kv, 2) == 1 && mtx_gguf_item_f64(kv, 0) == -1.0);
  CHECK(mtx_gguf_item_i64(kv, 3) == 0 && mtx_gguf_item_str(kv, 0).len == 0);
  kv = mtx_gguf_find(g, "l.str");
  CHECK(kv && kv->n == 3 && mtx_gguf_item_str(kv, 2).len == 2 && !memcmp(mtx_gguf_item_str(kv, 2).ptr, "yz", 2));
  CHECK(mtx_gguf_item_str(kv, 1).len == 0 && mtx_gguf_item_str(kv, 3).len == 0);
  kv = mtx_gguf_find(g, "l.none");
  CHECK(kv && kv->n == 0 && kv->item_type == MTX_GGUF_STRING);
  CHECK(mtx_gguf_item_f64(mtx_gguf_find(g, "l.f64"), 0) == 1e-5);
  CHECK(mtx_gguf_item_i64(mtx_gguf_find(g, "l.bool"), 1) == 1);
  CHECK(mtx_gguf_item_i64(mtx_gguf_find(g, "a.i8"), 0) == -1 && mtx_gguf_item_i64(mtx_gguf_find(g, "a.i16"), 0) == -32768);
  CHECK(mtx_gguf_item_f64(mtx_gguf_find(g, "a.u64"), 0) == 18446744073709551615.0);
  CHECK(mtx_gguf_find(g, "") == NULL && mtx_gguf_find(g, "a.u6") == NULL && mtx_gguf_find(g, "a.u640") == NULL);
}

static void test_good(void) {
  static const uint32_t alignments[] = {0, 32, 8, 24, 4096};
  for (uint32_t version = 2; version <= 3; version++) {
    for (size_t a = 0; a < sizeof alignments / sizeof *alignments; a++) {
      gb b = {0};
      mtx_gguf *g;
      mtx_err err = {0};
      good(&b, version, alignments[a]);
      CHECK(mtx_gguf_open_mem(&g, b.p, b.n, 0, &err) == MTX_OK, "%s", err.msg);
      if (!g) { gb_free(&b); continue; }
      CHECK(mtx_gguf_version(g) == (int)version && mtx_gguf_n_tensors(g) == 2);
      CHECK(mtx_gguf_alignment(g) == (alignments[a] ? alignments[a] : 32));
      CHECK(mtx_gguf_file_bytes(g) == b.n && mtx_gguf_n_shards(g) == 1 && mtx_gguf_check(g, &err) == MTX_OK);
      const mtx_gguf_tensor *t = mtx_gguf_tensor_find(g, "w");
      CHECK(t && t->n_dims == 2 && t->ne[0] == 4 && t->ne[1] == 2 && t->ne[2] == 1 && t->n_bytes == 32);
      CHECK(t && ((const float *)t->data)[7] == 7.0f);
      t = mtx_gguf_tensor_find(g, "q");
      CHECK(t && t->type == 8 && t->n_bytes == 34 && ((const uint8_t *)t->data)[33] == 33);
      CHECK(t == mtx_gguf_tensor_at(g, 1) && (const uint8_t *)t->data - b.p == (ptrdiff_t)mtx_gguf_tensor_offset(g, t));
      CHECK(mtx_gguf_tensor_find(g, "W") == NULL);
      mtx_gguf_tensor_release(g, t);
      check_good_values(g);
      mtx_gguf_close(g);
      // Cut anywhere, the file is refused: nothing is read that is not there.
      for (size_t n = 0; n < b.n; n++) {
        uint8_t *cut = malloc(n ? n : 1);
        memcpy(cut, b.p, n);
        mtx_code code = mtx_gguf_open_mem(&g, cut, n, 0, &err);
        if (code == MTX_OK || g) CHECK(0, "cut at %zu of %zu was accepted", n, b.n);
        mtx_gguf_close(g);
        free(cut);
      }
      CHECK(mtx_gguf_open_mem(&g, b.p, b.n - 60, MTX_GGUF_VOCAB_ONLY, &err) == MTX_OK, "%s", err.msg);
      CHECK(g && mtx_gguf_tensor_find(g, "q") && mtx_gguf_tensor_find(g, "q")->data == NULL);
      mtx_gguf_close(g);
      gb_free(&b);
    }
  }
}

// ---------------------------------------------------------------- bad files

typedef struct { const char *name; void (*make)(gb *b); mtx_code code; const char *says; } bad;

static void one_kv(gb *b) { gb_head(b, 3, 0, 1); }
// A file of one tensor "t" whose directory entry is given; 64 KB of data follow.
static void one_tensor(gb *b, uint32_t n_dims, const uint64_t *ne, uint32_t type, uint64_t offset) {
  gb_head(b, 3, 1, 0);
  gb_tensor(b, "t", n_dims, ne, type, offset);
  gb_pad(b, 32);
  for (int i = 0; i < 1024; i++) gb_raw(b, (uint8_t[64]){0}, 64);
}
static void one_array(gb *b, uint32_t item, uint64_t n) { one_kv(b), gb_str(b, "k"), gb_u32(b, 9), gb_u32(b, item), gb_u64(b, n); }
static void alignment(gb *b, uint32_t v) { one_kv(b), gb_kv_u32(b, "general.alignment", v); }
static void two_tensors(gb *b, const char *a, uint64_t at_a, const char *c, uint64_t at_c) {
  gb_head(b, 3, 2, 0);
  gb_tensor(b, a, 1, (uint64_t[]){32}, 0, at_a), gb_tensor(b, c, 1, (uint64_t[]){32}, 0, at_c);
  gb_pad(b, 32);
  for (int i = 0; i < 16; i++) gb_raw(b, (uint8_t[64]){0}, 64);
}
static void many(gb *b, size_t n, uint8_t v) { for (size_t i = 0; i < n; i++) gb_u8(b, v); }

#define MAKE(id, ...) static void mk_##id(gb *b) { __VA_ARGS__; }
#define NE(...) (uint64_t[]){__VA_ARGS__}
MAKE(empty, (void)b)
MAKE(magic_short, gb_raw(b, "GGU", 3))
MAKE(magic, gb_raw(b, "GUGU", 4); many(b, 60, 0))
MAKE(ggjt, gb_raw(b, "tjgg", 4); many(b, 60, 0))
MAKE(zip, gb_raw(b, "PK\3\4", 4); many(b, 60, 0))
MAKE(lfs, gb_raw(b, "version https://git-lfs.github.com/spec/v1\n", 43))
MAKE(html, gb_raw(b, "<!DOCTYPE html>", 15))
MAKE(version_none, gb_raw(b, "GGUF", 4))
MAKE(version_0, gb_head(b, 0, 0, 0))
MAKE(version_1, gb_head(b, 1, 0, 0))
MAKE(version_4, gb_head(b, 4, 0, 0))
MAKE(big_endian, gb_head(b, 0x03000000, 0, 0))
MAKE(big_endian_magic, gb_raw(b, "FUGG", 4); many(b, 60, 0))
MAKE(no_counts, gb_raw(b, "GGUF\3\0\0\0", 8))
MAKE(no_kv_count, gb_raw(b, "GGUF\3\0\0\0\0\0\0\0\0\0\0\0", 16))
MAKE(n_tensors_64, gb_head(b, 3, UINT64_MAX, 0); many(b, 16, 0))
MAKE(n_tensors_63, gb_head(b, 3, 1ull << 63, 0); many(b, 16, 0))
MAKE(n_tensors_32, gb_head(b, 3, 1ull << 32, 0); many(b, 16, 0))
MAKE(n_tensors_1, gb_head(b, 3, 1, 0); many(b, 16, 0))
MAKE(n_kv_64, gb_head(b, 3, 0, UINT64_MAX); many(b, 16, 0))
MAKE(n_kv_63, gb_head(b, 3, 0, 1ull << 63); many(b, 16, 0))
MAKE(n_kv_32, gb_head(b, 3, 0, 1ull << 32); many(b, 16, 0))
MAKE(n_kv_limit, gb_head(b, 3, 0, (1 << 16) + 1); many(b, 1 << 20, 0))
MAKE(n_tensors_limit, gb_head(b, 3, (1 << 20) + 1, 0); many(b, 34 << 20, 0))
MAKE(both_counts, gb_head(b, 3, UINT64_MAX, UINT64_MAX); many(b, 16, 0xff))
MAKE(key_empty, one_kv(b); gb_str(b, ""); gb_u32(b, 4); gb_u32(b, 1))
MAKE(key_64, one_kv(b); gb_u64(b, UINT64_MAX); many(b, 32, 'k'))
MAKE(key_past_end, one_kv(b); gb_u64(b, 1000); many(b, 32, 'k'))
MAKE(key_long, one_kv(b); gb_u64(b, 65536); many(b, 65536, 'k'); gb_u32(b, 0); gb_u8(b, 0))
MAKE(key_nul, one_kv(b); gb_strn(b, "a\0b", 3); gb_u32(b, 4); gb_u32(b, 1))
MAKE(key_twice, gb_head(b, 3, 0, 2); gb_kv_str(b, "general.architecture", "llama"); gb_kv_str(b, "general.architecture", "gpt2"))
MAKE(kv_type, one_kv(b); gb_str(b, "k"); gb_u32(b, 13); many(b, 16, 0))
MAKE(kv_type_max, one_kv(b); gb_str(b, "k"); gb_u32(b, UINT32_MAX); many(b, 16, 0))
MAKE(kv_cut, one_kv(b); gb_str(b, "kk"); gb_u32(b, 10); gb_u32(b, 1))
MAKE(str_64, one_kv(b); gb_str(b, "k"); gb_u32(b, 8); gb_u64(b, UINT64_MAX); many(b, 9, 0))
MAKE(str_63, one_kv(b); gb_str(b, "k"); gb_u32(b, 8); gb_u64(b, 1ull << 63); many(b, 9, 0))
MAKE(str_past_end, one_kv(b); gb_str(b, "k"); gb_u32(b, 8); gb_u64(b, 10); many(b, 9, 'x'))
MAKE(str_limit, one_kv(b); gb_str(b, "k"); gb_u32(b, 8); gb_u64(b, (64 << 20) + 1); many(b, (64 << 20) + 1, 'x'))
MAKE(bool_2, one_kv(b); gb_str(b, "kkkk"); gb_u32(b, 7); gb_u8(b, 2))
MAKE(array_type, one_array(b, 13, 0))
MAKE(array_nested, one_array(b, 9, 1); gb_u32(b, 4); gb_u64(b, 1); gb_u32(b, 7))
MAKE(array_64, one_array(b, 4, UINT64_MAX); many(b, 64, 0))
MAKE(array_62, one_array(b, 4, 1ull << 62); many(b, 64, 0))
MAKE(array_61, one_array(b, 10, 1ull << 61); many(b, 64, 0))
MAKE(array_past_end, one_array(b, 4, 17); many(b, 64, 0))
MAKE(array_str_64, one_array(b, 8, UINT64_MAX); many(b, 64, 0))
MAKE(array_str_item, one_array(b, 8, 2); gb_u64(b, UINT64_MAX); many(b, 64, 0))
MAKE(array_str_cut, one_array(b, 8, 2); gb_str(b, "12345678"))
MAKE(array_bool, one_array(b, 7, 2); gb_u8(b, 1); gb_u8(b, 7))
MAKE(array_limit, one_array(b, 0, (64 << 20) + 1); many(b, (64 << 20) + 1, 0))
MAKE(array_limit_sum, gb_head(b, 3, 0, 2); gb_str(b, "a"); gb_u32(b, 9); gb_u32(b, 0); gb_u64(b, 40 << 20); many(b, 40 << 20, 0);
     gb_str(b, "b"); gb_u32(b, 9); gb_u32(b, 0); gb_u64(b, 40 << 20); many(b, 40 << 20, 0))
MAKE(align_0, alignment(b, 0))
MAKE(align_3, alignment(b, 3))
MAKE(align_4, alignment(b, 4))
MAKE(align_2g, alignment(b, 1u << 31))
MAKE(align_max, alignment(b, UINT32_MAX))
MAKE(align_i32, one_kv(b); gb_kv_i32(b, "general.alignment", 32))
MAKE(align_str, one_kv(b); gb_kv_str(b, "general.alignment", "32"))
MAKE(align_u64, one_kv(b); gb_str(b, "general.alignment"); gb_u32(b, 10); gb_u64(b, 32))
MAKE(name_empty, gb_head(b, 3, 1, 0); gb_tensor(b, "", 1, NE(32), 0, 0); many(b, 512, 0))
MAKE(name_long, gb_head(b, 3, 1, 0); gb_u64(b, 256); many(b, 1024, 'n'))
MAKE(name_64, gb_head(b, 3, 1, 0); gb_u64(b, UINT64_MAX); many(b, 64, 0))
MAKE(name_nul, gb_head(b, 3, 1, 0); gb_strn(b, "t\0x", 3); many(b, 512, 0))
MAKE(name_twice, two_tensors(b, "output_norm.weight", 0, "output_norm.weight", 128))
MAKE(dims_0, one_tensor(b, 0, NE(1), 0, 0))
MAKE(dims_5, one_tensor(b, 5, NE(1, 1, 1, 1, 1), 0, 0))
MAKE(dims_9, one_tensor(b, 9, NE(1, 1, 1, 1, 1, 1, 1, 1, 1), 0, 0))
MAKE(dims_max, one_tensor(b, UINT32_MAX, NE(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), 0, 0))
MAKE(ne_0, one_tensor(b, 1, NE(0), 0, 0))
MAKE(ne_0_last, one_tensor(b, 3, NE(32, 4, 0), 0, 0))
MAKE(ne_negative, one_tensor(b, 1, NE((uint64_t)-32), 0, 0))
MAKE(ne_42, one_tensor(b, 2, NE(32, (1ull << 42) + 1), 0, 0))
MAKE(ne_32_32, one_tensor(b, 2, NE(1ull << 32, 1ull << 32), 0, 0))
MAKE(ne_31_31_2, one_tensor(b, 3, NE(1ull << 31, 1ull << 31, 2), 0, 0))
MAKE(bytes_wrap, one_tensor(b, 2, NE(1ull << 31, 1ull << 30), 0, 0))
MAKE(bytes_wrap_f64, one_tensor(b, 2, NE(1ull << 31, 1ull << 31), 28, 0))
MAKE(block, one_tensor(b, 1, NE(33), 8, 0))
MAKE(block_k, one_tensor(b, 2, NE(128, 4), 12, 0))
MAKE(type_4, one_tensor(b, 1, NE(32), 4, 0))
MAKE(type_31, one_tensor(b, 1, NE(32), 31, 0))
MAKE(type_99, one_tensor(b, 1, NE(32), 99, 0))
MAKE(type_max, one_tensor(b, 1, NE(32), UINT32_MAX, 0))
MAKE(offset_odd, one_tensor(b, 1, NE(32), 0, 33))
MAKE(offset_past, one_tensor(b, 1, NE(32), 0, 1 << 20))
MAKE(offset_wrap, one_tensor(b, 1, NE(32), 0, UINT64_MAX - 31))
MAKE(offset_63, one_tensor(b, 1, NE(32), 0, 1ull << 63))
MAKE(data_cut, one_tensor(b, 2, NE(128, 128), 0, 0); b->n -= 1)
MAKE(data_none, gb_head(b, 3, 1, 0); gb_tensor(b, "t", 1, NE(32), 0, 0))
MAKE(data_align, gb_head(b, 3, 1, 1); gb_kv_u32(b, "general.alignment", 4096); gb_tensor(b, "t", 1, NE(32), 0, 0); many(b, 2048, 0))
MAKE(offset_align, gb_head(b, 3, 1, 1); gb_kv_u32(b, "general.alignment", 64); gb_tensor(b, "t", 1, NE(32), 0, 32); many(b, 2048, 0))
MAKE(overlap, two_tensors(b, "a", 0, "b", 96))
MAKE(overlap_back, two_tensors(b, "a", 96, "b", 0))
MAKE(overlap_same, two_tensors(b, "a", 0, "b", 0))
MAKE(type_39, gb_head(b, 3, 2, 0); gb_tensor(b, "a", 1, NE(128), 39, 0); gb_tensor(b, "b", 1, NE(128), 39, 32); many(b, 512, 0))
MAKE(split_0_of_max, gb_head(b, 3, 0, 1); gb_str(b, "split.count"); gb_u32(b, 4); gb_u32(b, UINT32_MAX))
MAKE(split_str, gb_head(b, 3, 0, 1); gb_kv_str(b, "split.count", "3"))
MAKE(split_no, gb_head(b, 3, 0, 2); gb_kv_u16(b, "split.count", 3); gb_kv_u16(b, "split.no", 3))
MAKE(split_no_none, gb_head(b, 3, 0, 1); gb_kv_u16(b, "split.count", 3))
MAKE(split_mem, gb_head(b, 3, 0, 2); gb_kv_u16(b, "split.count", 3); gb_kv_u16(b, "split.no", 0))

#define F(id, says) {#id, mk_##id, MTX_EFORMAT, says}
#define U(id, says) {#id, mk_##id, MTX_EUNSUPPORTED, says}
#define L(id, says) {#id, mk_##id, MTX_ELIMIT, says}
static const bad BAD[] = {
  F(empty, "ends inside the header"), F(magic_short, "ends inside the header"), F(magic, "not a GGUF file"), U(ggjt, "GGJT"), U(zip, "zip"),
  U(lfs, "git lfs pull"), U(html, "download"), F(version_none, "header"), U(version_0, "version 0"), U(version_1, "too old"),
  U(version_4, "version 4"), U(big_endian, "big-endian"), U(big_endian_magic, "big-endian"), F(no_counts, "header"), F(no_kv_count, "header"),
  F(n_tensors_64, "18446744073709551615 tensors"), F(n_tensors_63, "cannot hold"), F(n_tensors_32, "cannot hold"), F(n_tensors_1, "cannot hold"),
  F(n_kv_64, "18446744073709551615 metadata"), F(n_kv_63, "cannot hold"), F(n_kv_32, "cannot hold"), F(both_counts, "cannot hold"),
  F(n_kv_limit, "limit"), F(n_tensors_limit, "limit"),
  F(key_empty, "key is empty"), L(key_64, "limit is 65535"), F(key_past_end, "ends inside a metadata key"), L(key_long, "limit"), F(key_nul, "zero byte"),
  F(key_twice, "general.architecture: the metadata key occurs twice"), F(kv_type, "type 13"), F(kv_type_max, "type 4294967295"), F(kv_cut, "kk: the file ends"),
  L(str_64, "k: "), L(str_63, "k: "), F(str_past_end, "k: the file ends"), L(str_limit, "limit"), F(bool_2, "only 0 and 1"),
  F(array_type, "item type 13"), U(array_nested, "array of arrays"), F(array_64, "k: "), F(array_62, "k: "), F(array_61, "k: "), F(array_past_end, "17 items"),
  F(array_str_64, "k: "), L(array_str_item, "k: "), F(array_str_cut, "k: "), F(array_bool, "stored as 7"), L(array_limit, "limit"), L(array_limit_sum, "b: "),
  F(align_0, "general.alignment"), F(align_3, "general.alignment"), F(align_4, "general.alignment"), F(align_2g, "2147483648"), F(align_max, "4294967295"),
  F(align_i32, "stored as i32"), F(align_str, "stored as string"), F(align_u64, "stored as u64"),
  F(name_empty, "tensor name is empty"), L(name_long, "limit is 255"), L(name_64, "tensor name"), F(name_nul, "zero byte"),
  F(name_twice, "output_norm.weight: the tensor name occurs twice"), F(dims_0, "t: the tensor has 0"), F(dims_5, "5 dimensions"), F(dims_9, "9 dimensions"),
  F(dims_max, "4294967295 dimensions"), F(ne_0, "t: dimension 0"), F(ne_0_last, "dimension 2"), F(ne_negative, "t: "), F(ne_42, "t: "), F(ne_32_32, "63 bits"),
  F(ne_31_31_2, "63 bits"), F(bytes_wrap, "63 bits"), F(bytes_wrap_f64, "63 bits"), F(block, "Q8_0 blocks"), F(block_k, "Q4_K blocks"),
  U(type_4, "type 4"), U(type_31, "type 31"), U(type_99, "type 99"), U(type_max, "type 4294967295"),
  F(offset_odd, "offset 33"), F(offset_past, "incomplete"), F(offset_wrap, "t: "), F(offset_63, "t: "), F(data_cut, "incomplete"), F(data_none, "incomplete"),
  F(data_align, "incomplete"), F(offset_align, "alignment 64"), F(overlap, "overlaps 'a'"), F(overlap_back, "overlaps 'b'"), F(overlap_same, "overlaps"),
  F(type_39, "MXFP4"), F(split_0_of_max, "split.count"), F(split_str, "split.count"), F(split_no, "split.no"), F(split_no_none, "split.no"), U(split_mem, "split.count"),
};

static void test_bad(void) {
  for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
    gb b = {0};
    mtx_gguf *g = (mtx_gguf *)1;
    mtx_err err = {0};
    char text[1024];
    BAD[i].make(&b);
    uint8_t *exact = malloc(b.n ? b.n : 1);  // so that ASan sees one byte too many
    if (b.n) memcpy(exact, b.p, b.n);
    mtx_code code = mtx_gguf_open_mem(&g, exact, b.n, 0, &err);
    mtx_err_format(&err, text, sizeof text);
    CHECK(code == BAD[i].code && err.code == code, "%s: %s: %s", BAD[i].name, mtx_code_name(code), text);
    CHECK(g == NULL && strstr(text, BAD[i].says), "%s: '%s' lacks '%s'", BAD[i].name, text, BAD[i].says);
    mtx_gguf_close(g);
    free(exact);
    gb_free(&b);
  }
}

// 1 MB of array headers, one inside the other: an error, and no recursion.
static void test_nested_bomb(void) {
  gb b = {0};
  mtx_gguf *g;
  mtx_err err;
  one_kv(&b), gb_str(&b, "k"), gb_u32(&b, 9);
  while (b.n < 1 << 20) gb_u32(&b, 9), gb_u64(&b, 1);
  CHECK(mtx_gguf_open_mem(&g, b.p, b.n, 0, &err) == MTX_EUNSUPPORTED && strstr(err.msg, "array of arrays"));
  gb_free(&b);
}

// Any single byte of a good file changed: an error or a model, never a crash.
static void test_flips(void) {
  gb b = {0};
  good(&b, 3, 0);
  int n_ok = 0, n_bad = 0;
  for (size_t i = 0; i < b.n; i++) {
    for (int v = 0; v < 3; v++) {
      uint8_t old = b.p[i];
      b.p[i] = (uint8_t)(v == 0 ? 0xff : v == 1 ? 0 : old ^ 0x80);
      mtx_gguf *g;
      if (mtx_gguf_open_mem(&g, b.p, b.n, 0, NULL) == MTX_OK) {
        n_ok++;
        for (uint64_t k = 0; k < mtx_gguf_n_kv(g); k++) {
          const mtx_gguf_kv *kv = mtx_gguf_kv_at(g, k);
          for (uint64_t j = 0; j < kv->n; j++) mtx_gguf_item_f64(kv, j), mtx_gguf_item_str(kv, j);
        }
      } else {
        n_bad++;
      }
      mtx_gguf_close(g);
      b.p[i] = old;
    }
  }
  CHECK(n_ok > 100 && n_bad > 100, "%d %d", n_ok, n_bad);
  gb_free(&b);
}

// ---------------------------------------------------------------- files

static void shard(gb *b, int no, int count, const char *tensor, const char *arch) {
  gb_head(b, 3, 1, no == 0 ? 5 : 3);
  gb_kv_u16(b, "split.no", (uint16_t)no);
  gb_kv_u16(b, "split.count", (uint16_t)count);
  gb_kv_str(b, "general.architecture", arch);
  if (no == 0) gb_kv_i32(b, "split.tensors.count", count), gb_kv_str(b, "general.name", "split model");
  gb_tensor(b, tensor, 1, (uint64_t[]){32}, 0, 0);
  gb_pad(b, 32);
  for (int i = 0; i < 32; i++) { float x = (float)(100 * no + i); gb_raw(b, &x, 4); }
}

static void save_shard(const char *name, int no, int count, const char *tensor, const char *arch) {
  gb b = {0};
  shard(&b, no, count, tensor, arch);
  CHECK(gb_save(&b, in_dir(name)));
  gb_free(&b);
}

static void open_says(const char *path, mtx_code want, const char *says) {
  mtx_gguf *g;
  mtx_err err = {0};
  char text[1024];
  mtx_code code = mtx_gguf_open(&g, path, 0, &err);
  mtx_err_format(&err, text, sizeof text);
  CHECK(code == want && g == NULL && strstr(text, says), "%s: %s: %s", path, mtx_code_name(code), text);
  mtx_gguf_close(g);
}

static void test_split(void) {
  static const char *const names[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"};
  static const char *const tensors[] = {"a", "b", "c"};
  mtx_err err = {0};
  for (int i = 0; i < 3; i++) save_shard(names[i], i, 3, tensors[i], "llama");
  for (int i = 0; i < 3; i++) {
    mtx_gguf *g;
    CHECK(mtx_gguf_open(&g, in_dir(names[i]), 0, &err) == MTX_OK, "%s", err.msg);
    if (!g) continue;
    mtx_str s;
    CHECK(mtx_gguf_n_tensors(g) == 3 && mtx_gguf_n_shards(g) == 3);
    CHECK(mtx_gguf_get_str(g, "general.name", true, &s, &err) == MTX_OK);
    for (int k = 0; k < 3; k++) {
      const mtx_gguf_tensor *t = mtx_gguf_tensor_find(g, tensors[k]);
      CHECK(t && t->shard == k && ((const float *)t->data)[31] == (float)(100 * k + 31));
    }
    mtx_gguf_close(g);
    CHECK(mtx_gguf_open(&g, in_dir(names[i]), MTX_GGUF_VOCAB_ONLY, &err) == MTX_OK, "%s", err.msg);
    CHECK(g && mtx_gguf_find(g, "general.name") && mtx_gguf_n_shards(g) == 1);
    mtx_gguf_close(g);
  }
  save_shard(names[1], 1, 3, "a", "llama");
  open_says(in_dir(names[0]), MTX_EFORMAT, "a: the tensor name occurs twice");
  save_shard(names[1], 1, 3, "b", "gpt2");
  open_says(in_dir(names[0]), MTX_EFORMAT, "different models");
  save_shard(names[1], 2, 3, "b", "llama");
  open_says(in_dir(names[0]), MTX_EFORMAT, "shard 3 of 3, its name says 2 of 3");
  open_says(in_dir(names[1]), MTX_EFORMAT, "rename");
  save_shard(names[1], 1, 2, "b", "llama");
  open_says(in_dir(names[0]), MTX_EFORMAT, names[1]);
  save_shard(names[1], 1, 3, "b", "llama");
  unlink(in_dir(names[2]));
  open_says(in_dir(names[0]), MTX_ENOTFOUND, "m-00003-of-00003.gguf: shard 3 of 3 is missing");
  open_says(in_dir(names[1]), MTX_ENOTFOUND, "m-00003-of-00003.gguf");
  mtx_gguf *first;
  CHECK(mtx_gguf_open(&first, in_dir(names[1]), MTX_GGUF_VOCAB_ONLY, &err) == MTX_OK && mtx_gguf_find(first, "general.name"));
  mtx_gguf_close(first);
  save_shard("renamed.gguf", 0, 3, "a", "llama");
  open_says(in_dir("renamed.gguf"), MTX_EFORMAT, "-00001-of-00003.gguf");

  // Names that look like shards, or nearly, of files that are whole models.
  static const char *const whole[] = {"best-of-breed.gguf", "m-00001-of-00001.gguf", "x-00002-of-00007.gguf"};
  for (int i = 0; i < 3; i++) {
    gb b = {0};
    mtx_gguf *g;
    good(&b, 3, 0);
    CHECK(gb_save(&b, in_dir(whole[i])));
    CHECK(mtx_gguf_open(&g, in_dir(whole[i]), 0, &err) == MTX_OK, "%s: %s", whole[i], err.msg);
    mtx_gguf_close(g);
    gb_free(&b);
  }
}

static void test_paths(void) {
  open_says(in_dir("absent.gguf"), MTX_ENOTFOUND, "absent.gguf");
  open_says(dir, MTX_EFORMAT, "not a regular file");
  CHECK(mkfifo(in_dir("fifo.gguf"), 0600) == 0);
  open_says(in_dir("fifo.gguf"), MTX_EFORMAT, "not a regular file");
  gb b = {0};
  CHECK(gb_save(&b, in_dir("empty.gguf")));
  open_says(in_dir("empty.gguf"), MTX_EFORMAT, "empty");
  gb_raw(&b, "GGUF", 4);
  CHECK(gb_save(&b, in_dir("short.gguf")));
  open_says(in_dir("short.gguf"), MTX_EFORMAT, "short.gguf");
  gb_free(&b);
}

// The file shrinks under an open model: zeros and a flag instead of SIGBUS.
static void test_truncated(void) {
  gb b = {0};
  mtx_gguf *g;
  mtx_err err = {0};
  const char *path = in_dir("shrinks.gguf");
  gb_head(&b, 3, 1, 0);
  gb_tensor(&b, "t", 1, (uint64_t[]){1 << 18}, 0, 0);
  gb_pad(&b, 32);
  many(&b, 1 << 20, 0x55);
  CHECK(gb_save(&b, path));
  CHECK(mtx_gguf_open(&g, path, 0, &err) == MTX_OK, "%s", err.msg);
  const mtx_gguf_tensor *t = g ? mtx_gguf_tensor_at(g, 0) : NULL;
  const volatile uint8_t *p = t ? t->data : NULL;
  if (p) {
    CHECK(p[t->n_bytes - 1] == 0x55 && mtx_gguf_check(g, &err) == MTX_OK);
    mtx_gguf_tensor_release(g, t);
    CHECK(p[1000] == 0x55);
    CHECK(truncate(path, 8192) == 0);
    CHECK(p[1 << 19] == 0 && p[t->n_bytes - 1] == 0 && p[100] == 0x55);
    CHECK(mtx_gguf_check(g, &err) == MTX_EIO && strstr(err.file, "shrinks.gguf"));
  }
  mtx_gguf_close(g);
  gb_free(&b);
}

int main(void) {
  dir = temp_dir();
  test_good();
  test_bad();
  test_nested_bomb();
  test_flips();
  test_split();
  test_paths();
  test_truncated();
  return check_report();
}
