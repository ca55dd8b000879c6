// SPDX-License-Identifier: MIT
// The tile instructions of AMX that matmul needs, one name each; tests put a model in their place.
//
// Written as assembly, for gcc 12's intrinsics do not tell the compiler that TILELOADD reads memory, so
// that it may leave out the stores before it. Source: Intel SDM vol. 2, "TILELOADD" and its neighbours.
#ifndef MTX_KERN_AMX_TILE_H
#define MTX_KERN_AMX_TILE_H

#include "shape.h"

// From here to tile_release the tiles have these shapes, on this thread; all are zero.
#define tile_configure(shapes) __asm__ volatile("ldtilecfg %0" ::"m"(*(shapes)) : "memory")
// Tiles in their initial state cost nothing when threads are switched.
#define tile_release() __asm__ volatile("tilerelease" ::: "memory")

// z[m][n] = the sum over k and j = 0..3 of x[m][4k + j] * w[k][4n + j]: signed bytes, int32 sums. Z, X, W: the
// tiles for it, literals. x: rows x_stride bytes apart; rows of w and z are 64 bytes.
#define tile_product(Z, X, W, x, x_stride, w, z)                                                                    \
  __asm__ volatile("tilezero %%tmm" #Z "\n\t"                                                                      \
                   "tileloadd (%0,%1,1), %%tmm" #X "\n\t"                                                          \
                   "tileloadd (%2,%4,1), %%tmm" #W "\n\t"                                                          \
                   "tdpbssd %%tmm" #W ", %%tmm" #X ", %%tmm" #Z "\n\t"                                             \
                   "tilestored %%tmm" #Z ", (%3,%4,1)" ::"r"(x), "r"((long)(x_stride)), "r"(w), "r"(z), "r"(64L)    \
                   : "memory")

#endif
