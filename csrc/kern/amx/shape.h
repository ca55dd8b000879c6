// SPDX-License-Identifier: MIT
// The 64 bytes that LDTILECFG reads: the shapes of the eight tiles (Intel SDM vol. 1, 18.2, palette 1).
#ifndef MTX_KERN_AMX_SHAPE_H
#define MTX_KERN_AMX_SHAPE_H

#include <stdint.h>

typedef struct tile_shapes {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];  // at most 64; of tiles 8..15: zero
  uint8_t rows[16];        // at most 16; likewise
} tile_shapes;

_Static_assert(sizeof(tile_shapes) == 64, "LDTILECFG reads 64 bytes");

#endif
