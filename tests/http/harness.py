# SPDX-License-Identifier: MIT
"""Test functions in order, one line each; last line: "N passed, N failed"."""
import sys
import traceback

tests = []


def test(f):
    tests.append(f)
    return f


def run():
    passed = failed = 0
    for f in tests:
        try:
            f()
            passed += 1
            print("ok", f.__name__)
        except Exception:
            failed += 1
            print("FAILED", f.__name__)
            traceback.print_exc(limit=3, file=sys.stdout)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
