// SPDX-License-Identifier: MIT
// Whether the tiles of this machine compute what they should: asked before the tier is offered.
//
// CPUID, XCR0 and Linux may all promise tiles that a hypervisor or an emulator does not keep. One product of
// known bytes, every shape at its largest, costs microseconds.
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "kern/tiers.h"
#include "tile.h"

static bool works;

static void ask(void) {
  static const tile_shapes shapes = {.palette = 1, .row_bytes = {64, 64, 64}, .rows = {16, 16, 16}};
  int8_t a[16][64], b[16][64];
  int32_t c[16][16];
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 64; j++) {
      a[i][j] = (int8_t)(37 * i + 11 * j);
      b[i][j] = (int8_t)(59 * i - 23 * j - 128);
    }
  memset(c, 0xA5, sizeof c);
  tile_configure(&shapes);
  tile_product(0, 1, 2, a, 64, b, c);
  tile_release();
  works = true;
  for (int m = 0; m < 16; m++)
    for (int n = 0; n < 16; n++) {
      int32_t sum = 0;
      for (int k = 0; k < 64; k++) sum += a[m][k] * b[k / 4][4 * n + k % 4];
      works &= c[m][n] == sum;
    }
}

bool mtx_amx_works(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, ask);
  return works;
}
