// SPDX-License-Identifier: MIT
// The matmul functions in use. Only csrc/kern reads them; others call kern.h.
#ifndef MTX_KERN_DISPATCH_H
#define MTX_KERN_DISPATCH_H

#include "kern/matmul.h"

extern mtx_mm_ops mtx_mm;

#endif
