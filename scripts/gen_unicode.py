#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes csrc/tok/unicode_data.h from Python's unicodedata.

The tokenizers of today's models were built with Unicode 15.1. Debian 12's Python
carries 14.0, so the code points added since then are listed here by category
(DerivedGeneralCategory.txt of 15.0 and 15.1). Usage: scripts/gen_unicode.py > csrc/tok/unicode_data.h
"""
import sys
import unicodedata

L, N, P, S, M, WS, C = 1, 2, 4, 8, 16, 32, 64  # as MTX_UNI_* in unicode.h
CLASS = {"L": L, "N": N, "P": P, "S": S, "M": M, "C": C, "Z": 0}
ADDED = [  # first, last, class: assigned in 15.0 or 15.1
    (0xCF3, 0xCF3, M), (0xECE, 0xECE, M), (0x2FFC, 0x2FFF, S), (0x31EF, 0x31EF, S), (0x10EFD, 0x10EFF, M),
    (0x1123F, 0x11240, L), (0x11241, 0x11241, M), (0x11B00, 0x11B09, P), (0x11F00, 0x11F01, M), (0x11F02, 0x11F02, L),
    (0x11F03, 0x11F03, M), (0x11F04, 0x11F10, L), (0x11F12, 0x11F33, L), (0x11F34, 0x11F3A, M), (0x11F3E, 0x11F42, M),
    (0x11F43, 0x11F4F, P), (0x11F50, 0x11F59, N), (0x1342F, 0x1342F, L), (0x13439, 0x1343F, C), (0x13440, 0x13440, M),
    (0x13441, 0x13446, L), (0x13447, 0x13455, M), (0x1B132, 0x1B132, L), (0x1B155, 0x1B155, L), (0x1D2C0, 0x1D2D3, N),
    (0x1DF25, 0x1DF2A, L), (0x1E030, 0x1E06D, L), (0x1E08F, 0x1E08F, M), (0x1E4D0, 0x1E4EB, L), (0x1E4EC, 0x1E4EF, M),
    (0x1E4F0, 0x1E4F9, N), (0x1F6DC, 0x1F6DC, S), (0x1F774, 0x1F776, S), (0x1F77B, 0x1F77F, S), (0x1F7D9, 0x1F7D9, S),
    (0x1FA75, 0x1FA77, S), (0x1FA87, 0x1FA88, S), (0x1FAAD, 0x1FAAF, S), (0x1FABB, 0x1FABD, S), (0x1FABF, 0x1FABF, S),
    (0x1FACE, 0x1FACF, S), (0x1FADA, 0x1FADB, S), (0x1FAE8, 0x1FAE8, S), (0x1FAF7, 0x1FAF8, S), (0x2B739, 0x2B739, L),
    (0x2EBF0, 0x2EE5D, L), (0x31350, 0x323AF, L),
]
# White_Space of PropList.txt (Python's str.isspace also counts U+001C..1F, regular expressions do not).
SPACES = [*range(0x9, 0xE), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000]
BLOCK = 128
TOP = 0x110000


def classes():
    cls = bytearray(TOP)
    for c in range(TOP):
        cat = unicodedata.category(chr(c))
        cls[c] = 0 if cat == "Cn" else CLASS[cat[0]]
    for first, last, k in ADDED:
        cls[first:last + 1] = bytes([k]) * (last + 1 - first)
    for c in SPACES:
        cls[c] |= WS
    return cls


def put(name, ctype, values, per_line, fmt):
    print(f"static const {ctype} {name}[{len(values)}] = {{")
    for i in range(0, len(values), per_line):
        print("  " + ",".join(fmt % v for v in values[i:i + per_line]) + ",")
    print("};\n")


def runs(pairs):
    """(code, target) pairs -> [first, last, target of first, step of the target]; step 1 or 0, stride 1 only."""
    out = []
    for c, t in pairs:
        if out:
            f, l, t0, step = out[-1]
            if c == l + 1 and (t == t0 + (c - f) and (step == 1 or l == f)):
                out[-1] = (f, c, t0, 1)
                continue
            if c == l + 1 and t == t0 and (step == 0 or l == f):
                out[-1] = (f, c, t0, 0)
                continue
        out.append((c, c, t, 1))
    return out


def main():
    cls = classes()
    blocks, index, stage1 = [], {}, []
    for i in range(0, TOP, BLOCK):
        b = bytes(cls[i:i + BLOCK])
        if b not in index:
            index[b] = len(blocks)
            blocks.append(b)
        stage1.append(index[b])
    assert len(blocks) < 65536
    lower, nfd = [], []
    for c in range(TOP):
        if 0xD800 <= c < 0xE000:
            continue
        low = chr(c).lower()
        # U+0130 has no one-character lower case; UnicodeData.txt's simple mapping is "i".
        t = 0x69 if c == 0x130 else ord(low) if len(low) == 1 else c
        if t != c:
            lower.append((c, t))
        first = ord(unicodedata.normalize("NFD", chr(c))[0])
        if first != c:
            nfd.append((c, first))
    print("// SPDX-License-Identifier: MIT")
    print("// Unicode 15.1 tables, written by scripts/gen_unicode.py; do not edit.")
    print("//")
    print("// class: two stages of 128. lower, nfd: runs {first, last, target, step}; the")
    print("// target of first+k is target + k*step. nfd keeps only the first code point of")
    print("// the decomposition (the base letter), which is what accent stripping needs.\n")
    put("uni_stage1", "uint8_t" if len(blocks) < 256 else "uint16_t", stage1, 40, "%d")
    put("uni_class", "uint8_t", [x for b in blocks for x in b], 48, "%d")
    for name, pairs in (("uni_lower", lower), ("uni_nfd", nfd)):
        put(name, "uint32_t", [x for r in runs(pairs) for x in r], 16, "%d")
    sys.stderr.write(f"{len(blocks)} blocks, {len(runs(lower))} lower runs, {len(runs(nfd))} nfd runs\n")


if __name__ == "__main__":
    main()
