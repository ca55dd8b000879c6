// SPDX-License-Identifier: MIT
// The model of AMX's tiles: against products worked out by hand, its refusals, and against the instructions.
//
// Where this CPU has AMX the last part compares the model with silicon; elsewhere on x86-64 it compares it with
// itself through tile_trap.h, which holds the decoding of that header. test_matmul tests the kernels on both.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "kern/amx/shape.h"
#include "kern/cpu.h"
#include "kern/tiers.h"
#include "tile_model.h"
#if defined(__x86_64__)
#include "tile_trap.h"
#endif

// Tiles 0 (result), 1 and 2 (factors) of an [m, 4k] x [4k, n] product.
static tile_shapes shapes(int m, int k, int n) {
  tile_shapes s = {.palette = 1};
  s.rows[0] = s.rows[1] = (uint8_t)m;
  s.rows[2] = (uint8_t)k;
  s.row_bytes[0] = s.row_bytes[2] = (uint16_t)(4 * n);
  s.row_bytes[1] = (uint16_t)(4 * k);
  return s;
}

static void test_by_hand(void) {
  // Rows of 8 bytes, 8 more to the next: the second half must not be read or written.
  static const uint8_t a[2][16] = {{1, 0xFF, 0x80, 2, 0, 0, 0, 1, 99}, {5, 0, 0, 0, 0, 0, 0, 0, 99}};
  static const uint8_t b[2][16] = {{3, 4, 0xFF, 0x80, 7, 0, 0, 0, 99}, {0, 0, 0, 10, 0, 0, 0, 0x81, 99}};
  static const struct { bool a_signed, b_signed; int32_t want[4]; } sums[] = {
    {true, true, {-119, 7 - 127, 15, 35}},      // 3 - 4 + 128 - 256 + 10
    {true, false, {-32375, 7 + 129, 15, 35}},   // 3 - 4 - 128 * 255 + 256 + 10
    {false, true, {649, 7 - 127, 15, 35}},      // 3 + 255 * 4 - 128 - 256 + 10
    {false, false, {33929, 7 + 129, 15, 35}},   // 3 + 1020 + 128 * 255 + 256 + 10
  };
  for (int i = 0; i < 4; i++) {
    int32_t c[2][4] = {{1000, INT32_MAX, 77, 77}, {0, 0, 77, 77}};
    tile_shapes s = shapes(2, 2, 2);
    tile_model_configure(&s);
    tile_model_load(0, c, 16);
    tile_model_load(1, a, 16);
    tile_model_load(2, b, 16);
    tile_model_dot(0, 1, 2, sums[i].a_signed, sums[i].b_signed);
    tile_model_store(0, c, 16);
    tile_model_release();
    CHECK(c[0][0] == 1000 + sums[i].want[0] && (uint32_t)c[0][1] == (uint32_t)INT32_MAX + (uint32_t)sums[i].want[1], "kind %d: %d %d", i, c[0][0], c[0][1]);
    CHECK(c[1][0] == sums[i].want[2] && c[1][1] == sums[i].want[3], "kind %d: %d %d", i, c[1][0], c[1][1]);
    CHECK(c[0][2] == 77 && c[0][3] == 77 && c[1][2] == 77 && c[1][3] == 77, "stored past the row");
  }
}

// ---- what a CPU refuses ------------------------------------------------------------

static uint8_t memory[1024];

static void configured(int m, int k, int n) {
  tile_shapes s = shapes(m, k, n);
  tile_model_configure(&s);
}
static void bad_shape(int tile, int rows, int bytes) {
  tile_shapes s = shapes(2, 2, 2);
  s.rows[tile] = (uint8_t)rows;
  s.row_bytes[tile] = (uint16_t)bytes;
  tile_model_configure(&s);
}
static void bad_factors(int tile, int rows, int bytes) {
  bad_shape(tile, rows, bytes);
  tile_model_dot(0, 1, 2, true, true);
}
static void unconfigured(void) { tile_model_load(0, memory, 64); }
static void released(void) { configured(2, 2, 2), tile_model_release(), tile_model_zero(0); }
static void shapeless(void) { configured(2, 2, 2), tile_model_store(3, memory, 64); }
static void no_such_tile(void) { configured(2, 2, 2), tile_model_zero(8); }
static void palette_2(void) { tile_model_configure((uint8_t[64]){2}); }
static void reserved_byte(void) { tile_model_configure((uint8_t[64]){1, 0, 0, 7}); }
static void rows_17(void) { bad_shape(3, 17, 64); }
static void bytes_65(void) { bad_shape(3, 16, 65); }
static void only_rows(void) { bad_shape(3, 4, 0); }
static void only_bytes(void) { bad_shape(3, 0, 4); }
static void ninth_tile(void) { bad_shape(8, 1, 4); }
static void same_tile(void) { configured(2, 2, 2), tile_model_dot(0, 0, 2, true, true); }
static void other_k(void) { bad_factors(2, 3, 8); }
static void other_m(void) { bad_factors(1, 3, 8); }
static void other_n(void) { bad_factors(2, 2, 12); }
static void odd_k(void) { bad_factors(1, 2, 6); }

static void test_refusals(void) {
  static const struct { const char *name; void (*run)(void); } cases[] = {
    {"unconfigured", unconfigured}, {"released", released}, {"shapeless", shapeless}, {"no such tile", no_such_tile},
    {"palette 2", palette_2}, {"reserved byte", reserved_byte}, {"17 rows", rows_17}, {"65 bytes", bytes_65},
    {"only rows", only_rows}, {"only bytes", only_bytes}, {"ninth tile", ninth_tile}, {"same tile", same_tile},
    {"other k", other_k}, {"other m", other_m}, {"other n", other_n}, {"odd k", odd_k},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    pid_t child = fork();
    if (child == 0) {
      if (!freopen("/dev/null", "w", stderr)) _exit(1);
      cases[i].run();
      _exit(0);
    }
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%s was let through", cases[i].name);
  }
}

// ---- the instructions ----------------------------------------------------------------

#if defined(__x86_64__)
#define AMX __attribute__((target("amx-tile,amx-int8")))

static tile_shapes fixed_shapes = {.palette = 1, .row_bytes = {60, 52, 60, 60}, .rows = {11, 11, 13, 11}};

// The four products of a and b added to c, each through other registers and addresses.
AMX static void instructions(const uint8_t *a, const uint8_t *b, int32_t (*c)[16][16]) {
  tile_shapes s[2] = {fixed_shapes, fixed_shapes};
  __asm__ volatile("ldtilecfg fixed_shapes(%%rip)\n\t tilezero %%tmm3\n\t tilestored %%tmm3, (%0,%1,1)" ::"r"(c[4]), "r"(64L) : "memory");
  __asm__ volatile("ldtilecfg 64(%0)\n\t"
                   "tileloadd (%1,%2,1), %%tmm0\n\t tileloadd (%3,%2,1), %%tmm1\n\t tileloadd (%4,%2,1), %%tmm2\n\t"
                   "tdpbssd %%tmm2, %%tmm1, %%tmm0\n\t tilestored %%tmm0, (%1,%2,1)\n\t tilerelease" ::"r"(s), "r"(c[0]), "r"(64L), "r"(a), "r"(b)
                   : "memory");
  register const tile_shapes *r12 __asm__("r12") = s;
  register const uint8_t *r13 __asm__("r13") = a, *r9 __asm__("r9") = b + 1024;
  register uint8_t *r8 __asm__("r8") = (uint8_t *)c[1] - 400;
  register long r10 __asm__("r10") = 64, r11 __asm__("r11") = 32;
  __asm__ volatile("ldtilecfg (%0)\n\t"
                   "tileloadd 400(%1,%2,1), %%tmm0\n\t tileloadd (%3,%2,1), %%tmm1\n\t tileloadd -1024(%4,%5,2), %%tmm2\n\t"
                   "tdpbsud %%tmm2, %%tmm1, %%tmm0\n\t tilestored %%tmm0, 400(%1,%5,2)" ::"r"(r12), "r"(r8), "r"(r10), "r"(r13), "r"(r9), "r"(r11)
                   : "memory");
  __asm__ volatile("tileloaddt1 16(%0,%1,8), %%tmm0\n\t tdpbusd %%tmm2, %%tmm1, %%tmm0\n\t tilestored %%tmm0, 16(%0,%1,8)" ::"r"((uint8_t *)c[2] - 16), "r"(8L) : "memory");
  __asm__ volatile("tileloadd (%0,%1,4), %%tmm0\n\t tdpbuud %%tmm2, %%tmm1, %%tmm0\n\t tilestored %%tmm0, (%0,%1,4)" ::"r"(c[3]), "r"(16L) : "memory");
  // No index: every row from one address.
  __asm__ volatile("tileloadd (%0), %%tmm3\n\t tilestored %%tmm3, (%1,%2,1)\n\t tilerelease" ::"r"(a), "r"(c[5]), "r"(64L) : "memory");
}

static void modelled(const uint8_t *a, const uint8_t *b, int32_t (*c)[16][16]) {
  tile_model_configure(&fixed_shapes);
  tile_model_zero(3);
  tile_model_store(3, c[4], 64);
  tile_model_load(1, a, 64);
  tile_model_load(2, b, 64);
  for (int i = 0; i < 4; i++) {
    tile_model_load(0, c[i], 64);
    tile_model_dot(0, 1, 2, i < 2, i % 2 == 0);
    tile_model_store(0, c[i], 64);
  }
  tile_model_load(3, a, 0);
  tile_model_store(3, c[5], 64);
  tile_model_release();
}

static void test_instructions(void) {
  static uint8_t a[1024], b[1024];
  static int32_t c[2][6][16][16];
  uint32_t r = 12345;
  for (int i = 0; i < 1024; i++) a[i] = (uint8_t)((r = r * 1664525 + 1013904223) >> 24), b[i] = (uint8_t)((r = r * 1664525 + 1013904223) >> 24);
  for (int i = 0; i < 6 * 256; i++) c[0][i / 256][i / 16 % 16][i % 16] = (int32_t)(r = r * 1664525 + 1013904223);
  memcpy(c[1], c[0], sizeof c[0]);
  bool native = mtx_cpu_get()->amx;
  printf("instructions: %s\n", native ? "this CPU's" : "emulated");
  if (!native) tile_trap_install();
  instructions(a, b, c[0]);
  CHECK(!tile_model.configured);
  modelled(a, b, c[1]);
  for (int i = 0; i < 6; i++) CHECK(memcmp(c[0][i], c[1][i], sizeof c[0][i]) == 0, "part %d differs", i);
  if (native || mtx_cpu_get()->avx512_vbmi) CHECK(mtx_amx_works(), "the probe's product");
}
#endif

int main(void) {
  test_by_hand();
  test_refusals();
#if defined(__x86_64__)
  test_instructions();
#endif
  return check_report();
}
