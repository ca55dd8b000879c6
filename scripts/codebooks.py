#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes csrc/quant/codebooks.c from tests/golden/quant/codebooks.json.

The numbers are part of the file format (they were found by clustering, so no
formula gives them); the JSON lists them as plain integers. Grid entries are
stored ready for unpack.h: one byte an element, in element order, so a lookup
is one 4- or 8-byte load. IQ1's grids are stored times 8, the unit in which its
+-1/8 offset is an integer. The same grids follow with each element as the rank
of its value, packed into two bytes an entry, for look-ups by byte permutation.

Usage: scripts/codebooks.py [codebooks.json] > csrc/quant/codebooks.c
"""
import json
import sys

SOURCE = "tests/golden/quant/codebooks.json"

HEAD = """// SPDX-License-Identifier: MIT
// Codebooks of the IQ, MXFP4 and NVFP4 types. Generated: do not edit.
//
// Made by scripts/codebooks.py from %s, a listing of the
// tables in ggml-common.h (ggml 0.25), which are part of the file format.
#include "quant/codebooks.h"
""" % SOURCE


def rows(values, per_line):
    lines = []
    for i in range(0, len(values), per_line):
        lines.append("  " + ", ".join(values[i:i + per_line]) + ",")
    return "\n".join(lines)


def grid(name, entries, factor=1):
    width = len(entries[0])
    body = rows(["{" + ", ".join(str(v * factor) for v in e) + "}" for e in entries], 32 // width)
    return f"const int8_t {name}[{len(entries)}][{width}] = {{\n{body}\n}};\n"


def flat(name, values, ctype="int8_t"):
    return f"const {ctype} {name}[{len(values)}] = {{\n{rows([str(v) for v in values], 16)}\n}};\n"


def ranks(name, entries):
    levels = sorted({v for e in entries for v in e})
    half = len(entries[0]) // 2
    bits = 8 // half
    planes = []
    for first in (0, half):
        packed = [sum(levels.index(e[first + j]) << bits * j for j in range(half)) for e in entries]
        planes.append("{\n" + rows([str(v) for v in packed], 24) + "\n}")
    return f"const uint8_t {name}[2][{len(entries)}] = {{{', '.join(planes)}}};\n"


def main():
    with open(sys.argv[1] if len(sys.argv) > 1 else SOURCE) as f:
        book = json.load(f)
    assert book["IQ1_S"]["grid"] == book["IQ1_M"]["grid"]
    assert book["MXFP4"]["values"] == book["NVFP4"]["values"]
    print(HEAD)
    print(flat("mtx_iq4_values", book["IQ4_NL"]["values"]))
    print(flat("mtx_e2m1_values", book["MXFP4"]["values"]))
    print(flat("mtx_sign_masks", book["ksigns"]["values"], "uint8_t"))
    print(grid("mtx_sign_bytes", [[-(m >> j & 1) for j in range(8)] for m in range(256)]))
    print(grid("mtx_iq2_xxs_grid", book["IQ2_XXS"]["grid"]))
    print(grid("mtx_iq2_xs_grid", book["IQ2_XS"]["grid"]))
    print(grid("mtx_iq2_s_grid", book["IQ2_S"]["grid"]))
    print(grid("mtx_iq3_xxs_grid", book["IQ3_XXS"]["grid"]))
    print(grid("mtx_iq3_s_grid", book["IQ3_S"]["grid"]))
    print(grid("mtx_iq1_grid8", book["IQ1_S"]["grid"], 8))
    for name, key in (("iq2_xxs", "IQ2_XXS"), ("iq2_xs", "IQ2_XS"), ("iq2_s", "IQ2_S"),
                      ("iq3_xxs", "IQ3_XXS"), ("iq3_s", "IQ3_S"), ("iq1", "IQ1_S")):
        print(ranks(f"mtx_{name}_ranks", book[key]["grid"]), end="\n" if name != "iq1" else "")


if __name__ == "__main__":
    main()
