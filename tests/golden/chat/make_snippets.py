# SPDX-License-Identifier: MIT
# Writes snippets.jsonl: small templates and what Jinja2 renders them to.
#
# Run with Jinja2 3.1 installed: python3 make_snippets.py > snippets.jsonl
# The environment is that of Hugging Face transformers: immutable sandbox,
# trim_blocks, lstrip_blocks, loop controls, `generation` as a plain block, tojson
# as json.dumps without escaping. An error is recorded as {"error": type name}.
import copy
import datetime
import json
import sys

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_run"), [], [], body).set_lineno(lineno)

    def _run(self, caller):
        return caller()


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise TemplateError(message)


def strftime_now(format):
    return datetime.datetime(2026, 3, 14, 15, 9, 26).strftime(format)


env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
env.filters["tojson"] = tojson
env.globals["raise_exception"] = raise_exception
env.globals["strftime_now"] = strftime_now

VARS = {
    "s": "Hello World", "u": "Ünïcödé ✓ 𝄞 ß", "e": "", "n": 7, "f": 2.5, "t": True, "z": None, "neg": -3, "big": 12345678901234567,
    "l": [3, 1, 2], "w": ["b", "A", "c", "a"], "d": {"b": 1, "a": [1, 2, {"x": None}], "items": "own", "C": 2.0},
    "users": [{"name": "bob", "age": 30, "city": "Rome"}, {"name": "Al", "age": 25, "city": "Oslo"}, {"name": "cy", "age": 30, "city": "Rome"},
              {"name": "di", "city": "oslo"}],
    "tree": [{"v": 1, "kids": [{"v": 2, "kids": [{"v": 3, "kids": []}]}, {"v": 4, "kids": []}]}, {"v": 5, "kids": []}],
    "ml": "one\n  two\n\nthree \n", "ws": " \t x y \n\u00a0", "h": "<b>\"x\" & 'y'</b>", "m": {"role": "user", "content": "hi <|im_end|>"},
    "lines": "a\r\nb\u2028c\n", "q": "it's \"q\" \\ \n\t\x01\x7f\u00a0\u200b", "nums": ["12", " -7 ", "3.9", "0x1f", "abc", "", "1e3", "1_000"],
}

SNIPPETS = r"""
{{ s }} {{ n }} {{ f }} {{ t }} {{ z }} {{ nope }} {{ l }} {{ d }} {{ (1,) }} {{ (1, 'a') }} {{ () }} {{ [] }} {{ {} }} {{ q }}
{{ [q, u, 1.0, 1e22, 1e-7, 123456789.5, true, none] }}
{{ [s.upper(), s.lower(), s.title(), s.capitalize(), s.swapcase(), u.upper(), u.lower(), u.title(), u.swapcase()] }}
{{ [ws.strip(), ws.lstrip(), ws.rstrip(), 'xxaxx'.strip('x'), 'abcba'.lstrip('ab'), 'abcba'.rstrip('ab'), 'éaé'.strip('é')] }}
{{ [s.split(), s.split('o'), s.split('o', 1), ' a  b '.split(), ' a  b c'.split(none, 1), ''.split(), ''.split(','), 'a,b,'.split(',')] }}
{{ ['a.b.c'.rsplit('.', 1), 'a b  c '.rsplit(none, 1), 'a.b.c'.rsplit('.'), 'abc'.rsplit('x')] }}
{{ [ml.splitlines(), ml.splitlines(true), lines.splitlines(), ''.splitlines()] }}
{{ ['a-b-c'.partition('-'), 'a-b-c'.rpartition('-'), 'abc'.partition('-'), 'abc'.rpartition('-')] }}
{{ [s.replace('o', '0'), s.replace('o', '0', 1), 'aa'.replace('', '-'), s.replace('zz', ''), 'aaa'.replace('a', 'aa')] }}
{{ [s.startswith('He'), s.startswith(('x', 'H')), s.endswith('ld'), s.startswith('ell', 1), s.endswith('')] }}
{{ [s.find('o'), s.find('o', 5), s.rfind('o'), s.find('zz'), s.index('W'), s.count('l'), u.find('✓'), 'aaa'.count('aa'), s.find('')] }}
{{ s.index('zz') }}
{{ ['-'.join(['a', 'b']), ','.join([]), '7'.zfill(3), '-7'.zfill(4), 'ab'.center(7, '*'), 'ab'.ljust(5) ~ '|', 'ab'.rjust(5), 'abc'.center(6)] }}
{{ ['12'.isdigit(), 'a1'.isalnum(), 'ab'.isalpha(), ' '.isspace(), 'aB'.islower(), 'AB'.isupper(), ''.isdigit(), 'é'.isalpha(), '１'.isdigit()] }}
{{ ['abc'.removeprefix('a'), 'abc'.removesuffix('c'), 'abc'.removeprefix('x'), 'a\tb'.expandtabs(4)] }}
{{ ['{} {}'.format(1, 'x'), '{0}{1}{0}'.format('a', 'b'), '{x}-{y!r}'.format(x=1, y='s'), '{:>5}|{:<5}|{:^5}|'.format('a', 'b', 'c'), '{:05d} {:.2f} {:,}'.format(42, 3.14159, 1234567), '{{}}'.format(), '{0[b]} {1.b}'.format(d, d), '{:x} {:#x} {:b} {:e} {:%}'.format(255, 255, 5, 1234.5, 0.25)] }}
{{ ['%s %d %5.1f|%-5s|%05d' % ('a', 3, 2.25, 'b', 42), '%s' % 'x', '%(a)s' % {'a': 1}, '%x %X %o' % (255, 255, 8), '%r %%' % 'q', '%+d' % 5] }}
{{ '%d' % 'x' }}
{{ '%s %s' % 'x' }}
{{ [s[0], s[-1], s[1:4], s[::-1], s[::2], s[-3:], s[:-3], s[20:], u[0], u[9:], u[-1], u[::-1], s[4:1:-1]] }}
{{ [l[0], l[-1], l[1:], l[::-1], l[:1], l[5:], l[-2:], (1,2,3)[1:], l[::2]] }}
{{ s[99] }}{{ l[99] is defined }}{{ s.nope is defined }}
{{ d.items }}
{{ d['items'] }} {{ d.b }} {{ d['b'] }} {{ d.get('b') }} {{ d.get('x') }} {{ d.get('x', 5) }} {{ d.keys() }} {{ d.values() }} {{ d.items() }}
{{ d.a[2].x }} {{ d.a.2 }} {{ d['a'][-1] }}
{{ nope.x }}
{{ z.x is defined }} {{ z.x }}
{{ z.x.y }}
{{ nope + 1 }}
{{ nope ~ 'x' }} {{ [] ~ 1 ~ none }}
{{ s + 1 }}
{{ 1 + s }}
{{ l + [4] }} {{ (1,) + (2,) }} {{ 'ab' * 3 }} {{ 2 * [0] }} {{ 'a' * -1 }}
{{ [7 // 2, -7 // 2, 7 % 3, -7 % 3, 7 / 2, 6 / 2, 2 ** 10, 2 ** -1, 2.0 ** 3, -7.5 // 2, -7.5 % 2, 7 // 2.0, 1 / 3] }}
{{ 1 / 0 }}
{{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ -n }} {{ +n }} {{ - -n }} {{ -5|abs }} {{ 1 - -1 }}
{{ [1 == 1.0, true == 1, 'a' == 'a', none == none, [1] == [1.0], (1,) == [1], {'a': 1} == {'a': 1}, nope == nope, 1 != 2, 'a' < 'b', [1, 2] < [1, 3], 1 < 2 < 3, 1 < 3 > 2, 3 >= 3 <= 2] }}
{{ 1 < 'a' }}
{{ ['a' in 'abc', 'a' in ['a'], 'b' in d, 1 in l, 'x' not in s, 3 in (1, 2), '' in '', 'x' in nope] }}
{{ 1 in 'abc' }}
{{ 1 in none }}
{{ [0 or 'x', '' or [], 1 and 2, 0 and 1, not 0, not [], none or 0, nope or 'd', not not 5] }}
{{ 'y' if n > 5 else 'n' }} {{ 'y' if n < 5 }} {{ ('a' if false else 'b' if false else 'c') }}
{{ [n is odd, n is even, n is divisibleby 7, n is divisibleby(2), s is string, n is number, t is number, f is float, n is integer, t is integer, t is boolean, z is none, l is sequence, s is sequence, d is sequence, d is mapping, l is mapping, s is iterable, n is iterable, nope is iterable, nope is sequence] }}
{{ [n is defined, nope is defined, nope is undefined, range is callable, s is callable, 'a' is in ['a'], 1 is eq 1, 1 is ne 2, 1 is lt 2, 3 is ge 3, 'abc' is lower, 'ABC' is upper, n is sameas n, 'upper' is filter, 'odd' is test, t is true, t is false, 1 is true, z is not none, s is not string] }}
{{ [l|length, s|length, u|length, d|length, nope|length, l|count] }}
{{ n|length }}
{{ [l|first, l|last, l|min, l|max, l|sum, w|min, w|max, [] | first is defined, s|first, s|last] }}
{{ [l|sort, l|sort(reverse=true), w|sort, w|sort(case_sensitive=true), users|sort(attribute='name')|map(attribute='name')|list, users[:3]|sort(attribute='age,name')|map(attribute='name')|list] }}
{{ [d|dictsort, d|dictsort(true), {'a': 2, 'b': 1}|dictsort(by='value'), {'a': 2, 'b': 1}|dictsort(reverse=true)] }}
{{ d|dictsort(by='x') }}
{{ [l|reverse|list, s|reverse, l|list, s|list, d|list, (1, 2)|list] }}
{{ [l|join, l|join(', '), users|join('; ', attribute='name'), d|join('-'), s|join('.')] }}
{{ [w|unique|list, ['a', 'A', 'b']|unique|list, ['a', 'A']|unique(true)|list, [1, 1.0, true, 2]|unique|list, users|unique(attribute='city')|map(attribute='name')|list] }}
{{ [users|map(attribute='name')|list, users|map(attribute='age', default=0)|list, w|map('upper')|list, l|map('string')|list, ['a b']|map('replace', ' ', '_')|list] }}
{{ [users|selectattr('age')|map(attribute='name')|list, users|selectattr('age', 'defined')|list|length, users|rejectattr('city', 'equalto', 'Rome')|map(attribute='name')|list, users|selectattr('name', 'in', ['bob'])|list|length, l|select('odd')|list, l|reject('gt', 1)|list, [0, 1, '']|select|list, [0, 1, '']|reject|list, users[:3]|selectattr('age', '>', 26)|list|length] }}
{{ users|selectattr('age', '>', 26)|list }}
{{ none|selectattr('x')|list }} {{ nope|map('upper')|list }}
{% for g in users|groupby('city') %}{{ g.grouper }}:{% for x in g.list %}{{ x.name }},{% endfor %};{% endfor %}
{% for c, g in users|groupby('age', default=1) %}{{ c }}={{ g|length }} {% endfor %}
{{ [l|batch(2)|list, l|batch(2, 'x')|list, [1,2,3,4,5]|slice(2)|list, [1,2,3,4,5]|slice(3, 'f')|list] }}
{{ [nope|default('x'), e|default('x'), e|default('x', true), z|default('y'), nope|d, d|default(1)|length] }}
{{ nums|map('int')|list }} {{ nums|map('int', -1)|list }} {{ nums|map('float')|list }} {{ '1f'|int(0, 16) }} {{ '0b11'|int(base=2) }} {{ 3.99|int }} {{ true|int }} {{ none|int }} {{ '12'|float }}
{{ [2.5|round, 3.5|round, 2.675|round(2), 42|round, 42.7|round(method='floor'), 42.2|round(0, 'ceil'), 1234|round(-2), 1250.0|round(-2), 2.567|round(1, 'ceil'), n|round(1)] }}
{{ [f|abs, neg|abs, -2.5|abs] }}
{{ s|abs }}
{{ [ml|indent, ml|indent(2), ml|indent(2, true), ml|indent(2, blank=true), ml|indent('> ', first=true), ''|indent(first=true), 'a'|indent] }}
{{ ['foo bar baz qux'|truncate(9), 'foo bar baz qux'|truncate(9, true), 'foo bar baz qux'|truncate(11), 'foo bar baz qux'|truncate(11, false, '...', 0), 'foo'|truncate(5), 'foo bar baz qux'|truncate(9, true, '')] }}
{{ [s|wordcount, ml|wordcount, h|escape, h|e, h|striptags, s|center(21), 'foo bar-baz (x) it\'s'|title, s|upper|lower, s|capitalize] }}
{{ [h|forceescape, 'a b/c?é'|urlencode, {'a': 1, 'b c': '/'}|urlencode, s|trim, '  x '|trim, 'xax'|trim('x')] }}
{{ 'a'|safe + '<' }} {{ '<' + 'b>'|safe }} {{ h|e + h }} {{ ('<'|safe ~ '<') + '<' }} {{ ('<'|safe)|upper + '<' }}
{{ [1000000|filesizeformat, 1|filesizeformat, 999|filesizeformat, 1024|filesizeformat(true), 123456789|filesizeformat] }}
{{ ['%s-%s'|format('a', 'b'), '%(x)s'|format(x=1)] }}
{{ d|tojson }} {{ d|tojson(indent=2) }} {{ d|tojson(sort_keys=true) }} {{ u|tojson(ensure_ascii=true) }} {{ d|tojson(separators=(',', ':')) }} {{ q|tojson }}
{{ [1, 2.0, 1e22, 1e-7, big, none, true, 'x', (1, 2), {}, [], {'a': {}}]|tojson }} {{ [[], {}, [1], {'a': []}]|tojson(indent=4) }} {{ [1]|tojson(indent=0) }} {{ [1, {'k': 2}]|tojson(indent='\t') }}
{{ {1: 'a', none: 'b', false: 'c', 2.5: 'd'}|tojson }} {{ {1: 'a', none: 'b'} }}
{{ nope|tojson }}
{{ [nope]|tojson }}
{{ range(3)|list }} {{ range(1, 4)|list }} {{ range(10, 0, -3)|list }} {{ range(0)|list }} {{ range(3) }} {{ range(1, 7, 2) }} {{ range(5)|length }} {{ range(3)[1] }} {{ range(5)[-1] }}
{{ range(1, 2, 0) }}
{{ dict(a=1, b='x') }} {{ dict({'q': 1}, z=2) }} {{ dict([('a', 1)]) }}
{% set ns = namespace(x=1) %}{% for i in range(3) %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{% set ns.y = 'n' %}{{ ns.y }}{{ ns.nope is defined }}
{% set ns = {} %}{% set ns.x = 1 %}
{% set x = 1 %}{% for i in range(3) %}{% set x = i %}{{ x }}{% endfor %}{{ x }}
{% for i in range(2) %}{% if x is defined %}seen{% endif %}{% set x = i %}{% endfor %}{{ x is defined }}
{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (a, b) = (b, a) %}{{ a }}{{ b }}
{% set a, b = [1, 2, 3] %}
{% for i in [1,2,3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}|{{ loop.nextitem }}|{{ loop.cycle('a', 'b') }}{{ loop.changed(i // 2) }}{{ loop.depth }};{% endfor %}
{% for i in [] %}x{% else %}none{% endfor %} {% for i in [1] %}x{% else %}none{% endfor %} {% for i in nope %}x{% else %}u{% endfor %}
{% for i in z %}x{% endfor %}
{% for i in [1,2,3,4,5] %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% for i in l if i > 1 %}{{ loop.index }}:{{ i }}/{{ loop.length }} {% else %}none{% endfor %} {% for i in l if i > 9 %}x{% else %}none{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for c in 'añb' %}{{ c }}.{% endfor %}{% for k, v in d|items %}{{ k }}{% endfor %}
{% for a in [1, 2] %}{% set outer = loop %}{% for b in [1, 2] %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}
{% for i in tree recursive %}{{ i.v }}({{ loop(i.kids) }}){{ loop.depth }}{{ loop.index }}{% endfor %}
{% macro f(a, b=2, c='x') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(1, c='z') }}{{ f(b=1, a=0) }}{{ f() }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, q=2) }}
{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, x=3) }}
{% macro f(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}
{% macro f(n) %}{{ n }}{% if n > 0 %},{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}
{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}in{{ s }}{% endcall %}
{% macro f(l) %}{% for i in l %}{{ caller(i, 2) }}{% endfor %}{% endmacro %}{% call(x, y) f(l) %}[{{ x }}{{ y }}]{% endcall %}
{% macro f() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ f() }}{% set x = 2 %}{{ f() }}{% for x in [9] %}{{ f() }}{% endfor %}
{% macro f() %}{% set s = 'in' %}{{ s }}{% endmacro %}{{ f() }}{{ s }}
{% for i in [1, 2] %}{% macro g() %}{{ i }}{% endmacro %}{{ g() }}{% endfor %}
{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}{{ a.name }}
{% set x %}a{{ n }}b{% endset %}{{ x }}{{ x|length }} {% set y | upper | trim %}  q{% endset %}[{{ y }}]
{% filter upper %}a{{ s }}{% endfilter %} {% filter replace('a', 'b')|upper %}aaa{% endfilter %}
{% with a = 1, b = n %}{{ a }}{{ b }}{% set s = 2 %}{{ s }}{% endwith %}{{ a }}{{ s }} {% with %}{% set q1 = 1 %}{% endwith %}{{ q1 is defined }}
{% generation %}{{ s }}{% set inner_name = 1 %}{% endgeneration %}{{ inner_name is defined }}
{% raw %}{{ x }} {% if %}{# c #}{% endraw %} {%- raw -%} a {%- endraw -%} b
a {# c #} b {#- c -#} c {# multi
line #} d
  {% if true %}
  x
  {% endif %}
y
  {%+ if true %}
  x {%- endif %}   z
a
{%- if true -%}  b  {%- endif -%}
c
{{- ' x ' -}}  d {{+ 'e' }} {{ 'f' -}}
 {{ 1 }}
	{% set q2 = 1 %}	
  {# c #}
end
{% if true +%}
x{% endif %}{% if false %}a{% elif n == 7 %}b{% else %}c{% endif %}{% if nope %}a{% elif false %}b{% endif %}
{{ 'a' 'b' "c" }}{{ "\n\t\\\'\"\x41\u00e9\U0001F600\101\q" }}{{ 'multi
line' }}{{ '\'' }}{{ "a\
b" }}
{{ 0x1F }} {{ 0b11 }} {{ 0o17 }} {{ 1_000 }} {{ 1.5e3 }} {{ 1e3 }} {{ 1_0.2_5 }} {{ 0 }} {{ 00 }}
{{ True }} {{ true }} {{ None }} {{ none }} {{ False }}
{{ {'a': {'b': {}}}}}{{ {'}}': 1}['}}'] }} {{ '%}' }} {{ "{{" }}
{{ {'a': 1, 'b': 2,}.b }} {{ [1, 2,] }} {{ (1) }} {{ (1, 2)[0] }} {{ 1, 2 }}
{{ s.upper().lower()|title|length + 1 }} {{ (s|lower).split(' ')[1] }} {{ s is string and n is number }} {{ not s is string }} {{ s is not string or true }}
{{ 'a' ~ 1 + 2 ~ 'b' }} {{ 1 ~ 2 * 3 }} {{ 1 + 2 * 3 - 4 / 2 }} {{ (1 + 2) * 3 }} {{ 10 - 3 - 2 }} {{ 2 * 3 % 4 }}
{{ strftime_now('%Y-%m-%d %H:%M:%S %B %b %A %a %d %-d %j %p %I %y %e %w %u %U %W %C %D %F %T %R %% %n') }} {{ strftime_now('%d %B %Y') }}
{{ raise_exception('no ' ~ n) }}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }} {% set j = joiner('|') %}{{ j() }}x{{ j() }}y
{{ s|nofilter }}
{{ s is notest }}
{{ s() }}
{{ s.nomethod() }}
{{ s.split('') }}
{% for i in range(3) %}{{ i }}{{ ',' if not loop.last }}{% endfor %}
{{ l.index(2) }} {{ l.count(1) }} {{ (1, 2).index(2) }}
{{ l.append(1) }}
{{ '' if z is none else z.x }}{{ z or 'none' }}{{ (z or {}).x is defined }}
{{ d|length > 2 and 'b' in d and d.b == 1 }} {{ d.a|length }} {{ d.C }} {{ d.items()|list|length }} {{ d.keys()|list }} {{ d.copy() == d }}
{{ [1, [2, [3]]]|string }} {{ 1|string + '2' }} {{ none|string }} {{ 1.0|string }} {{ d|string|length }}
{{ users|map(attribute='name')|join(', ') }} {{ users|map('length')|list }}
{{ users|map(attribute='nope.x') | list }}
{{ users|map(attribute='nope', default='x')|list }} {{ [[1, 2], [3, 4]]|map('first')|list }} {{ [[1, 2], [3, 4]]|map(attribute=1)|list }} {{ [[1, 2], [3, 4]]|map('sum')|sum }} {{ users[:3]|sum(attribute='age') }}
{{ users[:2]|sum(attribute='age') }} {{ [1.5, 2]|sum }} {{ [[1], [2]]|sum(start=[]) }}
{{ m['content'] ~ '<|x|>' }} {{ m|items|list }} {{ m|attr('role') }} {{ 'abc'|attr('upper') is callable }}
{{ [true, 1]|max }} {{ 5 > true }} {{ true + 1 }} {{ -true }} {{ 'x' * true }} {{ [5][false] }}
{{ (0.1 + 0.2) }} {{ 1e16 }} {{ 123456789012345680.0 }} {{ 5e-324 }} {{ 1.0e5 }} {{ 3.0 * 2 }} {{ 7 / 7 }} {{ 1e300 * 1e10 }} {{ 100 * 1.1 }}
{{ loop is defined }} {{ varargs is defined }}
{{ [ [nope], {'a': nope} ] }} {{ [nope]|join(',') }} {{ nope|string|length }} {{ nope|upper }} {{ nope|list }} {{ nope|first is defined }}
{{ nope|trim }}{{ nope|replace('a', 'b') }}{{ nope|items|list }}{{ nope|join(',') }}{{ nope == '' }}{{ nope == none }}{{ nope is none }}
{{ nope|int }}
{{ nope|float }}
{{ 'a,b;c'|replace(',', ';')|replace(';', '') }} {{ 5|replace(5, 6) }} {{ 'aXbX'|replace('X', 'Y', 1) }}
{{ s[nope] }}
{{ d[[1]] is defined }} {{ d[1] is defined }} {{ l['a'] is defined }}
{% if n in [1, 7] and s not in ['x'] %}yes{% endif %} {% if 'World' in s %}in{% endif %} {% if (1, 2) == (1, 2) %}tup{% endif %}
{%- for m in [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'b'}] %}{{ '<|' ~ m.role ~ '|>\n' ~ m.content | trim ~ '\n' }}{%- endfor %}
{% print n, s %}
{% set x = [1] %}{% set y = x + [2] %}{{ x }}{{ y }}{{ x * 2 }}
{% for x in [1, 2] -%}
   {{ x }}
{%- endfor %}
{% block title %}B{{ s }}{% endblock %}
{% if %}
{% unknown %}
{{ 1 + }}
{{ (1 }}
{{ 'abc }}
{% for x in %}{% endfor %}
{% if true %}
{{ a b }}
{% set 1 = 2 %}
{% set x['a'] = 1 %}
{% endif %}
{% break %}
{{ "\u12" }}
{# never closed
{% raw %} never closed
{{ x | }}
{% macro f(a=1, b) %}{% endmacro %}
{% from 'x' import y %}
{{ (s)|groupby }}
{{ (s)|indent(none) }}
{{ (s)|replace('a') }}
{{ (s)|replace }}
{{ (s)|sort(attribute='name') }}
{{ (s)|urlize }}
{{ (s)|urlize(10) }}
{{ (s)|wordwrap }}
{{ (s)|wordwrap(5) }}
{{ (s)|wordwrap(5,false) }}
{{ (s)|wordwrap(5,true,'|') }}
{{ (s)|wordwrap(wrapstring='#') }}
{{ (s)|wordwrap(5,break_on_hyphens=false) }}
{{ (u)|title }}
{{ (u)|wordcount }}
{{ (e)|slice(2,'x')|list }}
{{ (e)|sum(start='x') }}
{{ (e)|wordwrap(0) }}
{{ (n)|indent }}
{{ (n)|indent(2) }}
{{ (n)|indent('>') }}
{{ (n)|indent(2,true) }}
{{ (n)|indent(first=true) }}
{{ (n)|indent(blank=true) }}
{{ (n)|truncate }}
{{ (n)|truncate(5) }}
{{ (n)|truncate(5,true) }}
{{ (n)|truncate(5,false,'.',0) }}
{{ (n)|truncate(5,leeway=0) }}
{{ (n)|truncate(0,true,'',0) }}
{{ (big)|filesizeformat }}
{{ (l)|truncate(5,false,'.',0) }}
{{ (l)|truncate(5,leeway=0) }}
{{ (w)|truncate(5) }}
{{ (w)|truncate(5,true) }}
{{ (w)|urlencode }}
{{ (d)|xmlattr }}
{{ (d)|xmlattr(false) }}
{{ (users)|unique|list }}
{{ (users)|unique(true)|list }}
{{ ({})|truncate(0,true,'',0) }}
{{ (1e308)|int }}
{{ (1e308)|int(5) }}
{{ (1e308)|int('x') }}
{{ (1e308)|int(0,16) }}
{{ (1e308)|int(base=2) }}
{{ (1e308)|int(0,1) }}
{{ (1e308)|int(0,37) }}
{{ (1e308)|round(1,'ceil') }}
{{ (1e308)|round(1,'floor') }}
{{ (l|map('string'))|last }}
{{ (s|safe)|batch(2)|list }}
{{ (s|safe)|batch(2,'x')|list }}
{{ (s|safe)|groupby(0) }}
{{ (s|safe)|groupby('city',default='x') }}
{{ (s|safe)|list }}
{{ (s|safe)|map('upper')|list }}
{{ (s|safe)|map('default','x')|list }}
{{ (s|safe)|rejectattr('age')|list }}
{{ (s|safe)|select|list }}
{{ (s|safe)|select('string')|list }}
{{ (s|safe)|select('defined')|list }}
{{ (s|safe)|slice(2)|list }}
{{ (s|safe)|sort }}
{{ (s|safe)|sort(true) }}
{{ (s|safe)|sort(case_sensitive=true) }}
{{ (s|safe)|unique|list }}
{{ (s|safe)|unique(true)|list }}
{{ (s|safe)|unique(attribute='city')|list }}
{{ (s) is eq }}
{{ (s) is in }}
{{ (s) is sameas }}
{{ (l) is filter }}
{{ (l) is test }}
{{ (nope) is callable }}
{{ (s|safe) is escaped }}
{{ (s).center() }}
{{ (s).count("l",2) }}
{{ (s).endswith("",20) }}
{{ (s).format_map({}) }}
{{ (s).isidentifier() }}
{{ (s).isprintable() }}
{{ (s).istitle() }}
{{ (s).join() }}
{{ (s).maketrans({}) }}
{{ (s).startswith("",20) }}
{{ (s).translate({72:"J"}) }}
{{ (s).zfill() }}
{{ (u).casefold() }}
{{ (e).isascii() }}
{{ (ml).split(none,1) }}
{{ (l).count() }}
{{ (l).index(1,1) }}
{{ (d).fromkeys([1]) }}
{{ (d).get() }}
{{ (s) % (l) }}
{{ (l) in (d) }}
{{ (l) not in (d) }}
{{ (n)[1:] }}
{{ (n)[::-1] }}
{{ (n)[:2] }}
{{ (n)[1:2] }}
{{ (n)[none:] }}
{{ (n)[::2] }}
{{ (n)[-2:] }}
{{ '{0.a}'.format(n) }}
{{ '{0[0]}'.format(n) }}
{{ '{:>8}'.format((t)) }}
{{ '{:>8}'.format(z) }}
{{ dict((nope)) }}
{{ namespace((nope)).a }}
{{ (range(3))[1:] }}
{{ (range(3))[::-1] }}
{{ (range(3))[:2] }}
{{ (range(3))[1:2] }}
{{ (range(3))[none:] }}
{{ (range(3))[::2] }}
{{ (range(3))[-2:] }}
{% macro f(a) %}{{ a }}{{ varargs }}{% endmacro %}{{ f(*(s|safe)) }}
{{ {'a':1}|xmlattr }}
{{ {'a<':1,'b':'x"<'}|xmlattr }}
{{ {'a':nope}|xmlattr }}
{{ {'a':1}|xmlattr(false) }}
{{ {}|xmlattr }}
{{ 'hello world foo-bar bazquux verylongwordthatisbroken'|wordwrap(10) }}
{{ 'hello world foo-bar bazquux verylongwordthatisbroken'|wordwrap(10,false) }}
{{ 'hello world foo-bar bazquux verylongwordthatisbroken'|wordwrap(10,true,'|',false) }}
{{ ml|wordwrap(4) }}
{{ '  lead  and   inner  spaces  '|wordwrap(8) }}
{{ 'a\tb c\n\nd -- e --f g--h'|wordwrap(5) }}
{{ u|wordwrap(4) }}
{{ 'visit http://example.com/a?b=c and www.foo.org, x@y.com'|urlize }}
{{ 'visit http://example.com/a?b=c and www.foo.org, x@y.com'|urlize(10, true) }}
{{ 'visit https://example.com.'|urlize(target='_blank', rel='x') }}
{{ [5]|random }}
{% block a required %}{% endblock %}
{% block a %}x{% endblock %}{% block a %}y{% endblock %}
{% for loop in l %}{{ loop }}{% endfor %}
{% macro f(caller) %}{{ caller }}{% endmacro %}{{ f(1) }}
{% macro f(a, a) %}{{ a }}{% endmacro %}{{ f(1,2) }}
{{ dict(a=1, a=2) }}
{{ range(100001)|length }}
{{ '{0.__class__}'.format(1) }}
{{ '{0}{}'.format(1,2) }}
{{ '{}{0}'.format(1,2) }}
{{ '{:{}}'.format('a', 5) }}
{{ '{:>{w}}'.format('a', w=5) }}
{{ '{!a}'.format('é') }}
{{ '{:_}'.format(12345678) }}
{{ '{:_x}'.format(12345678) }}
{{ '{:n}'.format(1000) }}
{{ '{:c}'.format(65) }}
{{ '{:s}'.format(1) }}
{{ '{:=5}'.format(-3) }}
{{ '{:=5}'.format('a') }}
{{ '{:5}|{:<5}|'.format(true, none) }}
{{ '{:>5}'.format(l) }}
{{ 'x' % [1] }}
{{ '%.*f' % (2, 3.14159) }}
{{ '%d' % 1e20 }}
{{ '%a' % 'é' }}
{{ 1e20|int }}
{{ 0|filesizeformat }} {{ 1000|filesizeformat }} {{ 1500|filesizeformat }} {{ 1023|filesizeformat(true) }} {{ 1e12|filesizeformat }} {{ 1e30|filesizeformat }} {{ '5'|filesizeformat }} {{ -5|filesizeformat }} {{ 2.7|filesizeformat }}
{{ '<p>a  b</p> <!-- c --> &amp; &lt; &eacute; &#65; &nope;'|striptags }}
{{ 'a b c'|wordcount }} {{ ''|wordcount }} {{ 'a-b c_d'|wordcount }} {{ "it's"|wordcount }} {{ 'é ü ✓'|wordcount }} {{ 5|wordcount }}
{{ 'abc'.translate({97:'x', 98:none}) }} {{ 'abc'.translate({'a':'x'}) }}
{{ 3 is odd if true else false }}
{{ [1] is filter }}
{{ {} is test }}
{{ [1,2,3][1:][0] }} {{ [1,2,3][-1:] }} {{ (1,2,3)[::-1] }} {{ range(5)[1:3] }} {{ range(5)[::-1] }} {{ range(5)[1:3]|list }}
{{ s.split(sep=' ') }} {{ s.split(maxsplit=1) }} {{ s.replace(old='a', new='b') }}
{{ s.startswith(prefix='a') }}
{{ s.find(sub='a') }}
{{ s.strip(chars='a') }}
{{ s.center(width=20) }}
{{ s.join(iterable=[]) }}
{{ d.get(key='a') }}
{{ s.format_map({}) }}
{{ [1,2,1].index(1, 1) }} {{ (1,2,1).index(1, 1) }}
{{ {}.fromkeys(['a','b'], 1) }}
{{ strftime_now('%Y', 1) }}
{{ strftime_now(format='%Y') }}
{% for i in range(3) %}{{ loop.index }}{% set loop = 3 %}{% endfor %}
{{ [1] in {} }}
{{ {} in {} }}
""".lstrip("\n")

# A snippet is a line, but for those that need several lines: these are joined by hand.
MULTI = [
    "a {# c #} b {#- c -#} c {# multi\nline #} d",
    "  {% if true %}\n  x\n  {% endif %}\ny",
    "  {%+ if true %}\n  x {%- endif %}   z",
    "a\n{%- if true -%}  b  {%- endif -%}\nc\n{{- ' x ' -}}  d {{+ 'e' }} {{ 'f' -}}\n {{ 1 }}",
    "\t{% set q2 = 1 %}\t\n  {# c #}\nend",
    "{% if true +%}\nx{% endif %}{% if false %}a{% elif n == 7 %}b{% else %}c{% endif %}{% if nope %}a{% elif false %}b{% endif %}",
    "{{ 'a' 'b' \"c\" }}{{ \"\\n\\t\\\\\\'\\\"\\x41\\u00e9\\U0001F600\\101\\q\" }}{{ 'multi\nline' }}{{ '\\'' }}{{ \"a\\\nb\" }}",
    "{% for x in [1, 2] -%}\n   {{ x }}\n{%- endfor %}",
    "line\r\n{% if true %}\r\nx\r\n{% endif %}\r\nend\r\n",
    "ends with two\n\n",
    "ends with one\n",
    "\n\n  {{ n }}  \n\n",
    "{% if true %}\n\n  a\n\n{% endif %}\n\nb",
    "{%- set x = 1 %}\n{%- set y = 2 %}\n\n{{- x }}{{ y }}",
    "\u3000{%- if true %} \u00a0{% endif -%}\u2003 x",
    "{# a #}\n{# b -#}\n  c {#- d #}",
    "  {{ n }}\n  {% raw %}\n  {{ x }}\n  {% endraw %}\n z",
    "{% for i in range(2) %}\n  {{ i }}\n{% endfor %}\n",
    "{% if true %}a{% endif %}\n  {% if true %}b{% endif %}\nc  {% if true %}\nd{% endif %}",
    "{% for m in users -%}\n  {%- if loop.first %}\n    first\n  {%- elif loop.last -%}\n    last\n  {% else %}\n    mid\n  {% endif %}\n{%- endfor %}",
]

joined = set()
for text in MULTI:
    for line in text.split("\n"):
        joined.add(line)

snippets = [line for line in SNIPPETS.split("\n") if line and line not in joined] + MULTI
out = sys.stdout
out.write(json.dumps({"vars": VARS}, ensure_ascii=False) + "\n")
for source in snippets:
    record = {"template": source}
    try:
        record["expected"] = env.from_string(source).render(**copy.deepcopy(VARS))  # a filter can change a list (indent)
        if " at 0x" in record["expected"]:
            continue
    except Exception as error:
        record["error"] = type(error).__name__
        record["message"] = str(error)
    out.write(json.dumps(record, ensure_ascii=False) + "\n")
