# SPDX-License-Identifier: MIT
# Judges grammars made from JSON Schemas with Python's jsonschema, which we did
# not write: finished random walks must be valid, valid documents (listed and
# random) must be taken whole, invalid ones must not.
# Usage: grammar_walks.py TEST_SCHEMA_PROGRAM SCHEMAS.jsonl N_WALKS
import json
import random
import subprocess
import sys

import jsonschema

program, path, n_walks = sys.argv[1], sys.argv[2], sys.argv[3]
cases = [json.loads(line) for line in open(path, encoding="utf-8") if line.strip()]
passed = failed = 0


def check(ok, what):
    global passed, failed
    if ok:
        passed += 1
    else:
        failed += 1
        if failed < 40:
            print("FAIL", what[:400])


def validator(schema):
    cls = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    return cls(schema, format_checker=jsonschema.FormatChecker())


def dump(value, compact=False):
    seps = (",", ":") if compact else (", ", ": ")
    return json.dumps(value, ensure_ascii=False, separators=seps)


rng = random.Random(7)


def resolve(root, schema):
    while isinstance(schema, dict) and "$ref" in schema:
        node = root
        for step in schema["$ref"].split("/")[1:]:
            node = node[int(step)] if isinstance(node, list) else node[step]
        schema = node
    return schema


def random_value(root, schema, depth=0):
    """A guess at a value of the schema; the validator decides if it is one."""
    schema = resolve(root, schema)
    if schema is True or schema is False:
        schema = {}
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return random_value(root, {**{k: v for k, v in schema.items() if k != key}, **resolve(root, rng.choice(schema[key]))}, depth)
    for part in schema.get("allOf", []):
        part = resolve(root, part)
        schema = {**schema, **part, "properties": {**schema.get("properties", {}), **part.get("properties", {})},
                  "required": schema.get("required", []) + part.get("required", [])}
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return rng.choice(schema["enum"])
    kinds = schema.get("type", "object" if "properties" in schema else ["string", "integer", "null", "boolean"])
    kind = kinds if isinstance(kinds, str) else rng.choice(kinds)
    if kind == "object":
        out, required = {}, schema.get("required", [])
        names = list(schema.get("properties", {})) + [r for r in required if r not in schema.get("properties", {})]
        optional = [n for n in names if n not in required and rng.random() < (0.6 if depth < 3 else 0.1)]
        order = [n for n in names if n in required]
        for name in optional:
            order.insert(rng.randrange(len(order) + 1), name)
        for name in order:
            out[name] = random_value(root, schema.get("properties", {}).get(name, {}), depth + 1)
        extra = schema.get("additionalProperties", True)
        if extra is not False and rng.random() < 0.4:
            out["k" + str(rng.randrange(100))] = random_value(root, extra, depth + 1)
        return out
    if kind == "array":
        prefix = schema.get("prefixItems", [])
        if isinstance(schema.get("items"), list):
            prefix, rest = schema["items"], schema.get("additionalItems", True)
        else:
            rest = schema.get("items", True)
        low = schema.get("minItems", 0)
        n = rng.randint(low, min(schema.get("maxItems", low + 3), low + 3))
        if depth > 4:
            n = low
        if rest is False:
            n = min(n, len(prefix))
        return [random_value(root, prefix[i] if i < len(prefix) else rest, depth + 1) for i in range(n)]
    if kind == "string":
        n = rng.randint(schema.get("minLength", 0), schema.get("maxLength", schema.get("minLength", 0) + 12))
        return "".join(rng.choice('ab cé"\\\n😀019_-') for _ in range(min(n, 40)))
    if kind in ("integer", "number"):
        low, high = schema.get("minimum", schema.get("exclusiveMinimum", -1000)), schema.get("maximum", schema.get("exclusiveMaximum", 100000))
        v = rng.randint(int(low), max(int(low), int(high)))
        return v if kind == "integer" or rng.random() < 0.5 else v + rng.choice([0.5, 0.25, 0.125])
    return {"boolean": rng.random() < 0.5, "null": None}[kind]


def walks(n_walks, ws):
    text = "".join(dump(c["schema"]) + "\n" for c in cases)
    out = subprocess.run([program, "walk", str(n_walks), ws], input=text.encode(), capture_output=True, timeout=600)
    check(out.returncode == 0, "walker: " + out.stderr.decode()[-300:])
    validators = [validator(c["schema"]) for c in cases]
    seen = [0] * len(cases)
    for line in out.stdout.decode("utf-8").split("\x1e")[1:]:  # line ends may be in the texts
        i, doc = line[:-1].split("\t", 1)
        i = int(i)
        seen[i] += 1
        try:
            error = jsonschema.exceptions.best_match(validators[i].iter_errors(json.loads(doc)))
        except ValueError as e:
            error = e
        check(error is None, f"walk {dump(cases[i]['schema'])}: {doc}: {error}")
    for i, n in enumerate(seen):
        check(n == n_walks, f"{n} walks of {dump(cases[i]['schema'])}")


def documents():
    lines, want = [], []
    for c in cases:
        v, schema = validator(c["schema"]), dump(c["schema"])
        for doc in c["valid"]:
            check(v.is_valid(doc), f"listed as valid: {doc}")
            for compact in (False, True):
                lines.append(schema + "\t" + dump(doc, compact))
                want.append("complete")
        for doc in c["invalid"]:
            check(not v.is_valid(doc), f"listed as invalid: {doc}")
            lines.append(schema + "\t" + dump(doc))
            want.append(None)
        for _ in range(60):
            try:
                doc = random_value(c["schema"], c["schema"])
            except RecursionError:
                continue
            if v.is_valid(doc) and not any(isinstance(x, float) and "e" in repr(x) for x in [doc]):
                lines.append(schema + "\t" + dump(doc))
                want.append("complete")
    out = subprocess.run([program, "match"], input="\n".join(lines).encode() + b"\n", capture_output=True, timeout=600)
    got = out.stdout.decode().split("\n")[:-1]
    check(len(got) == len(want), f"{len(got)} answers for {len(want)} documents; {out.stderr.decode()[-300:]}")
    for line, w, g in zip(lines, want, got):
        check(g == w if w else g in ("no", "partial"), f"{line}: {g}")


documents()
walks(int(n_walks), "0")
walks(int(n_walks) // 5, "2")
print(f"{passed} passed, {failed} failed")
sys.exit(failed != 0)
