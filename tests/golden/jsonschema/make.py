#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes draft2020-12.jsonl and draft7.jsonl from a copy of the public JSON-Schema-Test-Suite.

Source: https://github.com/json-schema-org/JSON-Schema-Test-Suite, commit
44401e0c046704b476ec9d2e2fccdaee618f259d, MIT (LICENSE here). One line per group of the
suite: file, group, the schema as text, and per test what it is, the document as text and
whether it is valid. Texts are compact, numbers as the suite spells them, strings in their
shortest spelling. Left out: keywords that need other documents (refRemote, vocabulary,
cross-draft) or that are about annotations (content), dynamicRef, and formats for which no grammar is made.

Usage: make.py FOLDER_OF_THE_SUITE
"""
import json
import pathlib
import sys

FILES = """type enum const required properties additionalProperties patternProperties propertyNames minProperties maxProperties
items additionalItems prefixItems minItems maxItems uniqueItems contains minLength maxLength pattern format minimum maximum
exclusiveMinimum exclusiveMaximum multipleOf anyOf oneOf allOf not if-then-else ref anchor defs definitions boolean_schema default
dependentRequired dependentSchemas dependencies unevaluatedItems unevaluatedProperties infinite-loop-detection optional/bignum optional/float-overflow optional/ecmascript-regex
optional/non-bmp-regex optional/id optional/refOfUnknownKeyword optional/unknownKeyword""".split()
FORMATS = """date date-time time duration email hostname ipv4 ipv6 uri uri-reference iri iri-reference uri-template json-pointer relative-json-pointer
uuid unknown""".split()


class Number(str):
    """A number as the file spells it."""


def text(v):
    if isinstance(v, Number):
        return str(v)
    if isinstance(v, dict):
        return "{" + ",".join(text(k) + ":" + text(x) for k, x in v.items()) + "}"
    if isinstance(v, list):
        return "[" + ",".join(map(text, v)) + "]"
    return json.dumps(v, ensure_ascii=False)


suite = pathlib.Path(sys.argv[1])
for draft in ("draft2020-12", "draft7"):
    with open(pathlib.Path(__file__).parent / (draft + ".jsonl"), "w", encoding="utf-8") as out:
        for name in FILES + ["optional/format/" + f for f in FORMATS]:
            path = suite / "tests" / draft / (name + ".json")
            if not path.exists():  # not every keyword is in both drafts
                continue
            for group in json.loads(path.read_text(encoding="utf-8"), parse_float=Number, parse_int=Number):
                if name.startswith("optional/") and "$schema" not in text(group["schema"]) and draft == "draft2020-12":
                    print("no $schema:", name, group["description"])
                tests = [[t["description"], text(t["data"]), t["valid"]] for t in group["tests"]]
                line = {"file": name, "group": group["description"], "schema": text(group["schema"]), "tests": tests}
                out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
