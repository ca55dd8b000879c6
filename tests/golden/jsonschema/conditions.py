# SPDX-License-Identifier: MIT
# Makes conditions.jsonl: random schemas of conditions (if, not, oneOf, dependentRequired,
# contains, ...) over a few keys and values, with documents that Python's jsonschema judged.
# Usage: conditions.py >conditions.jsonl
import json
import random

import jsonschema

N_SCHEMAS, N_DOCUMENTS = 240, 12
KEYS = ["a", "b", "c"]
VALUES = [0, 1, 5, "x", "y", "xx", True, None]
rng = random.Random(20261130)


def counts(*keywords):
    return {k: rng.randint(0, 2) for k in keywords if rng.random() < 0.5}


def assertion(depth):
    return rng.choice([
        lambda: {"const": rng.choice(VALUES)},
        lambda: {"enum": rng.sample(VALUES, rng.randint(1, 3))},
        lambda: {"type": rng.choice(["integer", "string", "boolean", "null", "number", "object", "array"])},
        lambda: {"type": ["string", "integer"]},
        lambda: {rng.choice(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]): rng.randint(0, 6)},
        lambda: {"multipleOf": rng.choice([2, 5])},
        lambda: {rng.choice(["minLength", "maxLength"]): rng.randint(0, 3)},
        lambda: {"pattern": rng.choice(["^x", "y", "^[xy]{2}"])},
        lambda: {"type": "array", "items": {"enum": [0, 1, "x"]}, "uniqueItems": True},
        lambda: {"contains": schema(depth + 1), **counts("minContains", "maxContains")},
        lambda: {rng.choice(["minItems", "maxItems"]): rng.randint(0, 2)},
        lambda: {rng.choice(["minProperties", "maxProperties"]): rng.randint(0, 3)},
        lambda: {"required": rng.sample(KEYS, rng.randint(1, 2))},
    ])()


def schema(depth=0):
    if depth > 2 or rng.random() < 0.25:
        return assertion(depth)
    s = {}
    for _ in range(rng.randint(1, 3)):
        sub = [schema(depth + 1) for _ in range(3)]
        s.update(rng.choice([
            {"properties": dict(zip(rng.sample(KEYS, 2), sub))},
            {"required": rng.sample(KEYS, rng.randint(1, 2))},
            {"if": sub[0], "then": sub[1]},
            {"if": sub[0], "then": sub[1], "else": sub[2]},
            {"not": sub[0]},
            {"dependentRequired": {k: rng.sample(KEYS, rng.randint(1, 2)) for k in rng.sample(KEYS, 2)}},
            {"dependentSchemas": {rng.choice(KEYS): sub[0]}},
            {"oneOf": sub[:2]},
            {"anyOf": sub[:2]},
            {"allOf": sub[:2]},
            {"additionalProperties": False},
            assertion(depth),
        ]))
    return s


def value(depth):
    kind = rng.randrange(10)
    if kind < 6 or depth > 1:
        return rng.choice(VALUES + [2, 6, 10, "yx", "xyz", False, 0.5])
    if kind < 8:
        return [value(depth + 1) for _ in range(rng.randrange(4))]
    return document(depth + 1)


def document(depth=0):
    return {k: value(depth + 1) for k in rng.sample(KEYS + ["d"], rng.randrange(4))}


made = 0
while made < N_SCHEMAS:
    s = schema()
    judge = jsonschema.Draft202012Validator(s)
    docs = {}
    for _ in range(60):
        d = document() if rng.random() < 0.6 else value(0)
        docs[json.dumps(d)] = judge.is_valid(d)
    some = [[t, v] for t, v in docs.items() if v][:N_DOCUMENTS // 2] + [[t, v] for t, v in docs.items() if not v][:N_DOCUMENTS // 2]
    if len(some) < N_DOCUMENTS:  # all valid, or none
        continue
    made += 1
    print(json.dumps({"schema": json.dumps(s, separators=(",", ":")), "tests": some}, separators=(",", ":")))
