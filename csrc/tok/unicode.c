// SPDX-License-Identifier: MIT
// Lookups in the generated Unicode tables.
#include "tok/unicode.h"

#include "tok/unicode_data.h"

uint8_t mtx_uni_class(uint32_t cp) {
  if (cp > 0x10FFFF) return 0;
  return uni_class[(size_t)uni_stage1[cp >> 7] << 7 | (cp & 127)];
}

// tab: runs {first, last, target, step}, ascending.
static uint32_t map_run(const uint32_t *tab, size_t n_runs, uint32_t cp) {
  size_t lo = 0, hi = n_runs;
  while (lo < hi) {
    size_t mid = (lo + hi) / 2;
    const uint32_t *r = tab + 4 * mid;
    if (cp < r[0]) {
      hi = mid;
    } else if (cp > r[1]) {
      lo = mid + 1;
    } else {
      return r[2] + (cp - r[0]) * r[3];
    }
  }
  return cp;
}

uint32_t mtx_uni_lower(uint32_t cp) {
  if (cp < 0x80) return cp >= 'A' && cp <= 'Z' ? cp + 32 : cp;
  return map_run(uni_lower, sizeof uni_lower / 16, cp);
}

uint32_t mtx_uni_base(uint32_t cp) {
  if (cp < 0xC0) return cp;
  return map_run(uni_nfd, sizeof uni_nfd / 16, cp);
}

bool mtx_utf8_valid(const char *text, size_t n, size_t *bad) {
  const unsigned char *p = (const unsigned char *)text;
  for (size_t i = 0; i < n;) {
    uint32_t cp;
    if (p[i] < 0x80) {
      i++;
      continue;
    }
    size_t len = mtx_utf8_decode(p + i, n - i, &cp);
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    bool ok = len > 1 && len == mtx_utf8_len(p[i]) && cp >= least[len] && !(cp >= 0xD800 && cp < 0xE000);
    if (ok && len == 4 && (p[i] > 0xF4 || (p[i] == 0xF4 && p[i + 1] > 0x8F))) ok = false;
    if (!ok) {
      if (bad) *bad = i;
      return false;
    }
    i += len;
  }
  return true;
}
