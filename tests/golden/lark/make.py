# SPDX-License-Identifier: MIT
"""Grammars in Lark's notation and texts -> cases.jsonl: what Lark itself says of each text.

    pip install lark==1.3.1; python3 make.py

Earley with the lexer "dynamic_complete" tries every way to cut a text into terminals, which is what
a grammar over characters means."""
import json
import pathlib

from lark import Lark

GRAMMARS = {
    "patch": (r'''start: begin file+ end
begin: "*** Begin Patch" LF
end: "*** End Patch" LF?
file: "*** Add File: " NAME LF ("+" REST? LF)+ -> add
  | "*** Delete File: " NAME LF
hunk: "@@" LF
NAME: /[^\n]+/
REST: /[^\n]+/
%import common.LF
''', ["*** Begin Patch\n*** Delete File: a\n*** End Patch", "*** Begin Patch\n*** Add File: a b\n+x\n+\n*** End Patch\n", "*** Begin Patch\n*** End Patch",
      "*** Begin Patch\n*** Add File: a\n*** End Patch", "*** Begin Patch\n*** Delete File: \n*** End Patch", ""]),
    "sum": (r'''// a calculator
?start: sum
?sum: product (("+" | "-") product)*
?product: atom (("*"|"/") atom)*
?atom: NUMBER | "-" atom -> neg | "(" sum ")"
%import common.NUMBER
%import common.WS_INLINE
%ignore WS_INLINE
''', ["1", "1+2*3", " 1 + ( 2.5e3 - -4 ) ", "1 2", "1+", "()", "((1))", "1\n+2", "1 .5", "--1"]),
    "strings": ('''start: "a\\"b\\\\\\n\\x41\\u00e9" WORD~2..3 "é"i | "SELECT"i " " [WORD] | "0".."9"~2 | "x" "y"? tail
!tail: "." | /[;,]/
WORD: LETTER+
%import common (LETTER, DIGIT)
''', ['a"b\\\nAéxyé', 'a"b\\\nAéxyzwé', 'a"b\\\nAéxé', "select ", "SeLeCt abc", "selec ", "12", "1", "123", "xy.", "x;", "xy", "a", "select ab1"]),
    "json": (r'''?start: value
?value: object | array | ESCAPED_STRING | SIGNED_NUMBER | "true" | "false" | "null"
array: "[" [value ("," value)*] "]"
object: "{" [pair ("," pair)*] "}"
pair: ESCAPED_STRING ":" value
%import common.ESCAPED_STRING
%import common.SIGNED_NUMBER
%import common.WS
%ignore WS
''', ['{"a": [1, -2.5, {"b": null}], "c\\"d": "x"}', "[]", "[1,]", "{", '"a\nb"', "tru", " true ", '{"a" 1}', "1.", ".5e3"]),
    "flags": (r'''start: "<" BODY ">" TAIL?
BODY: /.+/s
TAIL: /[a-c]{2,3}|x\/y|[.\/]/
''', ["<a>", "<a\nb>", "<>", "<a>ab", "<a>abcd", "<a>x/y", "<a>/", "<a>.", "<a>d"]),
    "prefixes": (r'''start.2: _a B? | _a
_a.3: "a"* C
B.5: "b"+
C: "c" | D~2
D: "d"
''', ["c", "aac", "dd", "d", "acb", "acbbb", "b", "addb"]),
}

with open(pathlib.Path(__file__).parent / "cases.jsonl", "w") as out:
    for name, (grammar, texts) in GRAMMARS.items():
        parser = Lark(grammar, parser="earley", lexer="dynamic_complete", keep_all_tokens=True)
        for text in texts:
            try:
                parser.parse(text)
                good = True
            except Exception:
                good = False
            out.write(json.dumps({"name": name, "grammar": grammar, "text": text, "good": good}, ensure_ascii=False) + "\n")
