-- SPDX-License-Identifier: MIT
-- GBNF as llama.cpp's grammars/ folder uses it: own grammars of the same kinds, each
-- feature of the syntax at least once, with texts that fit and texts that do not.
local lu = require("luaunit")
local G = require("mtx.core").grammar

TestGbnf = {}

local function check(grammar, fits, does_not)
  local g, message = G.gbnf(grammar)
  lu.assertNotNil(g, message)
  for _, text in ipairs(fits) do
    lu.assertEquals(g:match(text), "complete", text)
    for cut = 0, #text - 1 do lu.assertNotNil((g:match(text:sub(1, cut))), text:sub(1, cut)) end
  end
  for _, text in ipairs(does_not) do lu.assertNotEquals(g:match(text), "complete", text) end
end

function TestGbnf:test_sums()
  check([[
# comments stand alone, or behind a rule
root  ::= (line)+
line  ::= sum "=" ws num "\n"   # like this one
sum   ::= term ([-+*/] ws term)*   # a dash first in a class is itself
term  ::= ident | num | "(" ws sum ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
]], { "1+1=2\n", "(a_1 - 2)*3 = 7\n", "x=1\ny=2\n" }, { "1+=2\n", "1+1=2", "(1=1\n" })
end

function TestGbnf:test_moves_of_a_game()
  check([[
root ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
move ::= (pawn | piece | castle) [+#]?
piece ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle ::= "O-O" "-O"?
]], { "1. e4 e5\n2. Nf3 Nc6\n", "1. d4 d5\n2. exd8=Q+ O-O-O#\n" }, { "1. e4 e5\n", "1. e9 e5\n2. e4 e5\n" })
end

function TestGbnf:test_a_small_language()
  check([[
root ::= (declaration)*
declaration ::= type " " name "(" parameter? ")" "{" statement* "}"
type ::= "int" | "float" | "char"
name ::= [a-zA-Z_] [a-zA-Z_0-9]*
parameter ::= type " " name
statement ::= (
    ( type " " name ws "=" ws expression ";" ) |
    ( name ws "=" ws expression ";" ) |
    ( "return" ws expression ";" ) |
    ( "while" "(" condition ")" "{" statement* "}" ) |
    ( comment )
)
condition ::= expression relation expression
relation ::= ("<=" | "<" | "==" | "!=" | ">=" | ">")
expression ::= term (("+" | "-") term)*
term ::= factor (("*" | "/") factor)*
factor ::= name | [0-9]+ | "-" factor | "(" expression ")"
comment ::= "//" [^\n]* "\n"
ws ::= ([ \t\n]+)?
]], { "", "int f(int a){return a*(2+-1);}", "int f(){// two\nfloat x =1;while(x<=9){x=x+1;}}" }, { "int 9(){}", "int f(){return;}" })
end

function TestGbnf:test_lists_and_texts_of_any_script()
  check([[
root ::= item+
item ::= "- " [^\r\n\x0b\x0c\x85\u2028\u2029]+ "\n"
]], { "- one\n- zwei 2\n", "- é\n" }, { "- a\vb\n", "- a\u{85}\n", "- a\u{2028}\n", "-\n" })
  check([[
root  ::= text-1+ ([ \t\n] text-1+)*
text-1 ::= hiragana | katakana | cjk | [、。！？]
hiragana ::= [ぁ-ゟ]
katakana ::= [ァ-ヿ]
cjk ::= [一-龯\U00020000-\U0002A6DF]
]], { "これは、日本。", "カタ \u{20001}" }, { "abc", "これは " })
  check([[root ::= .+ "\x2E" # any character, then a full stop]], { "a.", "\n..", "𝄞." }, { ".", "a" })
end

function TestGbnf:test_json()
  check([[
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

# the empty alternative comes first
ws ::= | " " | "\n" [ \t]{0,20}
]], { "{}", '{ "a": [1,-2.5e+3, {"b": "\\u00e9\\n"}],\n\t "c": null}' }, { "[]", '{"a":}', '{"a": "\127"}', '{"a":1,}' })
end

function TestGbnf:test_repetition()
  for body, t in pairs({ ['"a"{3}'] = { "aaa", "aa" }, ['"a"{2,}'] = { "aaaaa", "a" }, ['"a"{0,2}'] = { "", "aaa" }, ['"a"{ 1 , 2 }'] = { "aa", "aaa" },
    ['("a" | "bc"){2}'] = { "abc", "a" }, ['[ab]{2,3} "c"'] = { "abac", "ac" }, ['"ab"{0}'] = { "", "ab" }, ['"ab"? "c"*'] = { "abcc", "a" },
    ['("a"{2}){2}'] = { "aaaa", "aa" }, ['"a"{1,100000}'] = { ("a"):rep(99999), "" } }) do
    check("root ::= " .. body, #t[1] < 100 and { t[1] } or {}, { t[2] })
    lu.assertEquals(G.gbnf("root ::= " .. body):match(t[1]), "complete", body)
  end
  lu.assertNil((G.gbnf('root ::= "a"{1,100000}'):match(("a"):rep(100001))))
end

function TestGbnf:test_layout()
  check('root ::= "a" |\r\n  "b" |\n\n  # between\n  "c"\r\nunused ::=\n "d"', { "a", "b", "c" }, { "d" })
  check('root::="a"b\nb::="#" "b" # no blanks needed', { "a#b" }, { "a" })
  check("\n\n# first\n\troot ::= Mixed-Case_2 Mixed-Case_2\nMixed-Case_2 ::= [\\]\\-\\\\^]", { "]-", "\\^" }, { "a" })
  lu.assertNil((G.gbnf('root ::= "a"\n "b"')))  -- a sequence goes on only inside parentheses
  check('root ::= ("a"\n "b")', { "ab" }, {})
end
