// SPDX-License-Identifier: MIT
// Every tiny model made from its head and rules has the sha256 of the original,
// so whatever an architecture test compares, the weights are not the reason.
#include "check.h"
#include "golden_arch.h"

static void test_sha256(void) {
  // FIPS 180-4 examples, and every split of a message around the block border.
  static const struct { const char *text, *hex; } KNOWN[] = {
    {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
    {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
  };
  char hex[65], part[65];
  mtx_sha256 s;
  for (int i = 0; i < 3; i++) {
    mtx_sha256_init(&s);
    mtx_sha256_update(&s, KNOWN[i].text, strlen(KNOWN[i].text));
    mtx_sha256_hex(&s, hex);
    CHECK(!strcmp(hex, KNOWN[i].hex), "%s", hex);
  }
  uint8_t text[200];
  for (int i = 0; i < 200; i++) text[i] = (uint8_t)(i * 7);
  for (size_t n = 0; n <= 200; n++) {
    mtx_sha256_init(&s);
    mtx_sha256_update(&s, text, n);
    mtx_sha256_hex(&s, hex);
    mtx_sha256_init(&s);
    for (size_t i = 0; i < n; i += 13) mtx_sha256_update(&s, text + i, n - i < 13 ? n - i : 13), mtx_sha256_hex(&s, part);
    mtx_sha256_hex(&s, part);
    CHECK(!strcmp(hex, part), "length %zu", n);
  }
  mtx_err err;
  CHECK(mtx_sha256_file("tests/golden/arch/none", hex, &err) == MTX_ENOTFOUND);
}

int main(void) {
  test_sha256();
  int n;
  golden_model *m = golden_arch_models(&n);
  CHECK(n == 117, "%d models", n);
  for (int i = 0; i < n; i++) {
    uint8_t *bytes = golden_arch_make(&m[i]);
    CHECK(bytes, "%s", m[i].name);
    free(bytes);
  }
  golden_arch_free(m, n);
  return check_report();
}
