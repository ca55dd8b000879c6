// SPDX-License-Identifier: MIT
// Finds an architecture by its name in the file.
#ifndef MTX_MODEL_REGISTRY_H
#define MTX_MODEL_REGISTRY_H

#include "model/arch.h"
#include "model/model.h"

const mtx_arch *mtx_arch_find(const char *name);  // NULL when unknown

#endif
