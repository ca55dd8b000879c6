// SPDX-License-Identifier: MIT
// Sign masks of IQ2_XXS, IQ2_XS and IQ3_XXS, all four of a lane at once.
#ifndef MTX_KERN_SIGN_MASKS_H
#define MTX_KERN_SIGN_MASKS_H

// Four 7-bit sign codes in the low 28 bits -> four sign masks, the eighth bit making the number of signs even.
LANES_INLINE mi mm_sign_masks(mi w) {
  mi s = mi_or(mi_or(mi_and(w, 0x0000007F), mi_and(mi_shl(w, 1), 0x00007F00)),
               mi_or(mi_and(mi_shl(w, 2), 0x007F0000), mi_and(mi_shl(w, 3), 0x7F000000)));
  mi x = mi_xor(s, mi_and(mi_shr(s, 4), 0x07070707));
  x = mi_xor(x, mi_and(mi_shr(x, 2), 0x03030303));
  x = mi_xor(x, mi_and(mi_shr(x, 1), 0x01010101));
  return mi_or(s, mi_shl(mi_and(x, 0x01010101), 7));
}

#endif
