#!/bin/sh
# SPDX-License-Identifier: MIT
# Random walks through token masks, judged by Python's jsonschema: 250 for each
# schema of tests/golden/grammar. Without python3 or jsonschema this fails.
cd "$(dirname "$0")/../.." || exit 1
python3 tests/http/grammar_walks.py "${BUILD:-build}/tests/c/test_schema" tests/golden/grammar/schemas.jsonl "${WALKS:-250}"
