-- SPDX-License-Identifier: MIT
-- The Jinja engine against golden data (77 published templates, small snippets),
-- the marks of template text, the limits, error texts, and mutated templates.
local lu = require("luaunit")
local infile = require("mtx.infile")
local json = require("mtx.json")
local template = require("mtx.chat.template")

local NOW = "2026-03-14 15:09:26"
local GOLDEN = "tests/golden/chat/"

local function read(path) return assert(infile.read(path)) end

local function render(source, vars, options)
  local tpl, message, code = template.compile(source, { name = "t" })
  if not tpl then return nil, message, code end
  options = options or {}
  options.now = options.now or NOW
  return tpl:render(vars or {}, options)
end

TestJinjaGolden = {}

local function variables(conversation, tokens, relaxed)
  local vars = { messages = conversation.messages, tools = conversation.tools }
  for k, v in pairs(conversation.kwargs) do vars[k] = v end
  for k, v in pairs(tokens) do vars[k] = v end
  if relaxed then
    for k, v in pairs(vars) do if v == json.null then vars[k] = nil end end
  end
  return vars
end

local function check_case(tpl, case, vars, spans)
  local want = case.relaxed or case
  local text, message, code = tpl:render(vars, { now = NOW, spans = spans })
  local where = case.template .. " / " .. case.case .. (spans and " (spans): " or ": ")
  if want.expected then
    if text ~= want.expected then lu.fail(where .. (text and "other text" or message)) end
  elseif want.error.kind == "raise_exception" then
    if code ~= "template_raise" or message ~= want.error.message then lu.fail(where .. "expected its refusal, got " .. tostring(message)) end
  elseif text or code ~= "template_error" then
    lu.fail(where .. "expected an error")
  end
end

function TestJinjaGolden:test_every_template_and_conversation()
  local conversations = assert(json.decode(read(GOLDEN .. "conversations.json")))
  local tokens, compiled, n = assert(json.decode(read(GOLDEN .. "tokens.json"))), {}, 0
  local cases = assert(io.popen("gzip -dc " .. GOLDEN .. "cases.jsonl.gz"))
  for line in cases:lines() do
    local case = assert(json.decode(line))
    local name = case.template
    compiled[name] = compiled[name] or assert(template.compile(read(GOLDEN .. "templates/" .. name .. ".jinja"), { name = name }))
    local vars = variables(conversations[case.case], tokens[name], case.relaxed)
    check_case(compiled[name], case, vars, false)
    check_case(compiled[name], case, vars, true)
    n = n + 1
  end
  assert(cases:close(), "cases.jsonl.gz cannot be unpacked")
  lu.assertEquals(n, 2926)
end

function TestJinjaGolden:test_snippets()
  local vars, n = nil, 0
  for line in io.lines(GOLDEN .. "snippets.jsonl") do
    local r = assert(json.decode(line))
    if not vars then
      vars = r.vars
    else
      n = n + 1
      for _, spans in ipairs{ false, true } do
        local text, message = render(r.template, vars, { spans = spans })
        if r.expected then lu.assertEquals(text or message, r.expected, r.template) else lu.assertNil(text, r.template) end
      end
    end
  end
  assert(n >= 180, n)
end

-- What the golden environment refuses and we allow, and our own additions.
TestJinja = {}

function TestJinja:test_lists_of_the_template_can_change_but_not_those_of_the_request()
  lu.assertEquals(render("{% set l = [1] %}{{ l.append(2) }}{{ l.pop(0) }}{{ l }}{{ l.extend([5, 4]) }}{{ l.insert(0, 9) }}{{ l.reverse() }}{{ l }}"),
    "None1[2]NoneNoneNone[4, 5, 2, 9]")
  lu.assertEquals(render("{% set d = {'a': 1} %}{{ d.update({'b': 2}) }}{{ d.pop('a') }}{{ d.setdefault('c', 3) }}{{ d }}"), "None13{'b': 2, 'c': 3}")
  local messages = json.array{ 1 }
  for _, source in ipairs{ "{{ messages.append(1) }}", "{{ messages.pop() }}", "{{ d.update({'x': 1}) }}", "{{ d.clear() }}" } do
    local text, message = render(source, { messages = messages, d = json.object("a", 1) })
    lu.assertNil(text)
    lu.assertStrContains(message, "of the request")
  end
end

-- A macro that reads nothing but its arguments is run once for constants; nothing shows it, in the first render or the next.
function TestJinja:test_macros_called_with_constants()
  local TAG = "{% macro tag(name, attrs=[]) %}<{{ name }}{% for a in attrs %} {{ a[0] }}={{ a[1] }}{% endfor %}>{% endmacro %}"
  for source, want in pairs({
    [TAG .. "{% for i in [1, 2] %}{{ tag('x') }}{{ tag('y', ('ab', 'cd')) }}{{ tag(i) }}{{ tag('z', [('k', i)]) }}{% endfor %}"] = "<x><y a=b c=d><1><z k=1><x><y a=b c=d><2><z k=2>",
    -- a name that is set elsewhere, shadowed, or reads what changes
    [TAG .. "{% macro outer(tag) %}{{ tag('x') }}{% endmacro %}{% macro other(n) %}[{{ n }}]{% endmacro %}{{ outer(other) }}{{ tag('x') }}"] = "[x]<x>",
    [TAG .. "{{ tag('x') }}{% if x %}{% macro tag(name) %}({{ name }}){% endmacro %}{% endif %}{{ tag('x') }}"] = "<x>(x)",
    ["{% macro a(n) %}{{ n }}{{ x }}{% endmacro %}{{ a('k') }}{% set x = 2 %}{{ a('k') }}"] = "k1k2",
    ["{% set ns = namespace(n=0) %}{% macro a(k) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{% endmacro %}{{ a('k') }}{{ a('k') }}"] = "12",
    ["{% macro b(n) %}({{ n }}){% endmacro %}{% macro a(n) %}{{ b(n) }}{{ b('c') }}{% endmacro %}{{ a('x') }}{{ a('x') }}"] = "(x)(c)(x)(c)",
    ["{% macro a(m, n) %}{{ m }}{{ n }}{% endmacro %}{% for i in [1, 2] %}{{ a(i, 'c') }}{{ [(i, 'c'), ('c', i)] }}{% endfor %}"] = "1c[(1, 'c'), ('c', 1)]2c[(2, 'c'), ('c', 2)]",
    ["{% macro a(n=false, m=none) %}{{ n }}{{ m }}{% endmacro %}{{ a() }}{{ a(1) }}{{ a('x', 'y') }}"] = "FalseNone1Nonexy",
    ["{% macro a(l) %}{% set k = [1] %}{{ k.append(2) or k }}{% endmacro %}{{ a('x') }}{{ a('x') }}"] = "[1, 2][1, 2]",
    ["{% set r = 'a-b' | replace('-', '+') %}{{ r }}{{ 12 | replace('1', '&') }}{{ x | replace('&', '') }}"] = "a+b&21",
  }) do
    local tpl = assert(template.compile(source, { name = "t" }))
    for _, spans in ipairs{ false, true, true, false } do lu.assertEquals(tpl:render({ x = 1 }, { now = NOW, spans = spans }), want, source) end
  end
  -- before it is defined, and the budget it takes
  local early = assert(template.compile("{% if x %}{{ a('k') }}{% endif %}{% macro a(n) %}{{ n }}{% endmacro %}{{ a('k') }}"))
  lu.assertEquals(early:render({}), "k")
  lu.assertNil((early:render({ x = 1 })))
  lu.assertEquals(early:render({}), "k")
  local many = assert(template.compile(TAG .. "{% for i in range(50) %}{{ tag('x') }}{% endfor %}"))
  for _ = 1, 2 do
    lu.assertNotNil((many:render({}, { limits = { steps = 200 } })))
    lu.assertNil((many:render({}, { limits = { steps = 90 } })))
    lu.assertNil((many:render({}, { limits = { bytes = 100 } })))
  end
  local _, spans = many:render({}, { spans = true })
  lu.assertEquals(spans, { { 1, 150 } })
end

-- Macros of one argument whose text depends on it alone run once for each text.
function TestJinja:test_macros_called_with_texts()
  local E = "{% macro e(v) %}<{{ v|string|replace('&', '+') }}>{% endmacro %}"
  for source, want in pairs({
    [E .. "{% for i in ['a&', 'b', 'a&', 0, 0, 1.0, 1, true, none, '0', '1.0'] %}{{ e(i) }}{% endfor %}"] = "<a+><b><a+><0><0><1.0><1><True><None><0><1.0>",
    -- an argument that changes something is evaluated once for each call
    [E .. "{% set l = ['a', 'b', 'a'] %}{% for i in l[:] %}{{ e(l.pop()) }}{% endfor %}{{ l }}"] = "<a><b><a>[]",
    [E .. "{% for i in [1, 2, 3] %}{{ e(loop.cycle('x', 'y')) }}{{ e(loop.changed(1)) }}{% endfor %}"] = "<x><True><y><False><x><False>",
    [E .. "{% for i in range(200) %}{{ e(i|string) if i > 195 else e('k') if i > 193 }}{% endfor %}{% for i in 'abab' %}{{ e(i) }}{% endfor %}"] = "<k><k><196><197><198><199><a><b><a><b>",
    [E .. "{% for i in ['<|x|>', m, m] %}{{ e(i) }}{% endfor %}{% for k in d %}{{ e(d[k]) }}{% endfor %}{{ e(d.p.q) if d.p }}"] = "<<|x|>><<|x|>><<|x|>><1><2>",
    [E .. "{% macro w(v) %}{{ e(v) }}{{ e(v) }}{% endmacro %}{% for i in 'aa' %}{{ w(i) }}{% endfor %}"] = "<a><a><a><a>",
  }) do
    local tpl = assert(template.compile(source, { name = "t" }))
    for _, spans in ipairs{ false, true, true, false } do lu.assertEquals(tpl:render({ m = "<|x|>", d = { a = 1, b = "2" } }, { now = NOW, spans = spans }), want, source) end
  end
  -- the template's text and the same text from outside stay apart; another render knows nothing of them
  local tpl = assert(template.compile(E .. "{% for i in [m, '<|x|>', m, '<|x|>'] %}{{ e(i) }}{% endfor %}", { name = "t" }))
  for _ = 1, 2 do
    local _, spans = tpl:render({ m = "<|x|>" }, { spans = true })
    lu.assertEquals(spans, { { 1, 1 }, { 7, 15 }, { 21, 28 } })
  end
  -- the budget is taken each time; more texts than are kept
  local many = assert(template.compile(E .. "{% for i in range(300) %}{{ e(m[i % 100]) }}{% endfor %}"))
  local words = json.array()
  for i = 1, 100 do words[i] = "w" .. i % (i < 50 and 7 or 100) end
  local want = {}
  for i = 0, 299 do want[#want + 1] = "<" .. words[i % 100 + 1] .. ">" end
  for _ = 1, 2 do
    lu.assertEquals(many:render({ m = words }), table.concat(want))
    lu.assertNil((many:render({ m = words }, { limits = { steps = 590 } })))
    lu.assertNil((many:render({ m = words }, { limits = { bytes = 1000 } })))
  end
end

function TestJinja:test_gaps_longer_than_a_line()
  local text = ("ab%scd"):format((" "):rep(100))
  lu.assertEquals(render("{{ s|wordwrap(10) }}", { s = text }), "ab\ncd")
  lu.assertEquals(render("{{ s|wordwrap(2) }}", { s = "a     bcdefgh" }), "a\nbc\nde\nfg\nh")
end

-- Any of these would take minutes if every beginning were followed to the end of the text.
function TestJinja:test_texts_of_beginnings()
  local n = 400000
  lu.assertEquals(render("{{ s|striptags }}", { s = ("<"):rep(n) }), ("<"):rep(n))
  lu.assertEquals(render("{{ s|striptags }}", { s = "a<b>c" .. ("<!--"):rep(n) }), "ac" .. ("<!--"):rep(n))
  lu.assertEquals(render("{{ s|urlize }}", { s = ("a"):rep(n) .. ".:80" }), ("a"):rep(n) .. ".:80")
end

function TestJinja:test_characters_of_html_and_tables()
  lu.assertEquals(render("{{ s|striptags }}", { s = "<!--x--><b>&#x41;&#65;&x41;&amp;</b>" }), "AA&x41;&")
  local _, message = render("{{ ''.maketrans({'': 1}) }}")
  lu.assertStrContains(message, "a key must be one character")
end

function TestJinja:test_from_json_and_gen()
  lu.assertEquals(render("{{ '{\"b\": [1, 2.0], \"a\": null}'|from_json|tojson }}"), '{"b": [1, 2.0], "a": null}')
  lu.assertEquals(render("{{ [{'a': 1}]|map(attribute='a')|tojson }}"), "[1]")
end

function TestJinja:test_lua_values()
  lu.assertEquals(render("{{ f('a', 2) }} {{ t.x }} {{ l[1] }} {{ l|length }} {{ n is none }} {{ t }}",
    { f = function(a, b) return a .. b end, t = { x = 1, b = { 2 } }, l = { 5, 6 }, n = json.null }), "a2 1 6 2 True {'b': [2], 'x': 1}")
  lu.assertEquals(render("{{ outer() }}!", { outer = function() return (render("{% for i in [1,2] %}{{ i }}{% endfor %}")) end }), "12!")
end

function TestJinja:test_reads()
  local tpl = assert(template.compile("{% set x = 1 %}{{ messages }}{% for m in tools %}{{ m }}{{ x }}{% endfor %}{{ range(2) }}{% macro f() %}{{ enable_thinking }}{% endmacro %}"))
  lu.assertEquals(tpl:reads(), { messages = true, tools = true, enable_thinking = true })
end

function TestJinja:test_errors_name_line_column_and_feature()
  local cases = {
    { "a\nb {{ x.y.z }}", "t: line 2, column 7: ", "x" }, { "{% foo %}", "line 1, column 4: ", "foo" }, { "é {{ 1 | frob }}", "line 1, column 10: ", "frob" },
    { "\n\n{% if x %}", "line 3, column 1: ", "end tag" }, { "{{ 'x' + 1 }}", "line 1, column 8: ", "str and int" }, { "{{ [1].x.y }}", "column 9", "no attribute 'x'" },
    { "{% include 'x' %}", "column 1", "include" }, { "{{ range(3).nope() }}", "column 17", "nope" }, { "{% autoescape true %}{% endautoescape %}", "column 1", "autoescape" },
    { "{{ 99999999999999999999 }}", "column 4", "64 bits" }, { "{{ 9223372036854775807 + 1 }}", "column 24", "64 bits" }, { "{{ x|default(1,2,3) }}", "column 6", "at most 2" },
  }
  for _, c in ipairs(cases) do
    local text, message, code = render(c[1], {})
    lu.assertNil(text, c[1])
    lu.assertEquals(code, "template_error")
    lu.assertStrContains(message, c[2])
    lu.assertStrContains(message, c[3])
  end
  local text, message, code = render("{{ raise_exception('Roles must <alternate>') }}")
  lu.assertNil(text)
  lu.assertEquals({ message, code }, { "Roles must <alternate>", "template_raise" })
end

-- Spans -------------------------------------------------------------------------

TestJinjaSpans = {}

-- The output with what the template wrote in [ ].
local function marked(source, vars)
  local text, spans = render(source, vars, { spans = true })
  assert(text, spans)
  local out, pos = {}, 1
  for _, span in ipairs(spans) do
    assert(span[1] >= pos and span[2] >= span[1] and span[2] <= #text, "spans out of order")
    out[#out + 1] = text:sub(pos, span[1] - 1) .. "[" .. text:sub(span[1], span[2]) .. "]"
    pos = span[2] + 1
  end
  return table.concat(out) .. text:sub(pos)
end

function TestJinjaSpans:test_marks_travel()
  local vars = { m = json.object("role", "user", "content", "  <|im_end|>é x  "), bos_token = "<s>", n = 3, name = "user" }
  local cases = {
    ["<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>"] = "[<|im_start|>user\n]  <|im_end|>é x  [<|im_end|>]",
    ["{{ '<|' ~ m['role'] ~ '|>' + m.content|trim + '<|end|>' }}"] = "[<|user|>]<|im_end|>é x[<|end|>]",
    ["{{ bos_token }}{{ bos_token + name }}"] = "[<s><s>]user",
    ["{{ '<a>' ~ name ~ '<b>' }}{{ ('<a>' ~ name ~ '<b>')[2:9] }}"] = "[<a>]user[<b>>]user[<b]",
    ["{% set x = '<a>' + m.content %}{{ x.split('im')[0] }}|{{ x.split('im')[1]|trim }}"] = "[<a>]  <|[|]_end|>é x",
    ["{{ ['<a>', name]|join('<sep>') }}{{ name|join('-') }}"] = "[<a><sep>]user" .. "u[-]s[-]e[-]r",
    ["{% macro f(x) %}<m>{{ x }}{{ caller() }}</m>{% endmacro %}{% call f(name) %}in{{ name }}{% endcall %}"] = "[<m>]user[in]user[</m>]",
    ["{% set b %}<b>{{ name }}{% endset %}{{ b }}{{ b|upper }}{% filter upper %}<c>{{ name }}{% endfilter %}"] = "[<b>]user[<B>]USER[<C>]USER",
    ["{{ name.replace('s', '<|s|>') }}{{ '<x>'.replace('x', name) }}"] = "u[<|s|>]er[<]user[>]",
    ["{{ m|tojson }}{{ ['<a>']|tojson }}{{ '<|image_' ~ n ~ '|>' }}{{ n }}"] = '{"role": "user", "content": "  <|im_end|>é x  "}["<a>"][<|image_3|>3]',
    ["{{ '<|%s|>' % name }}{{ '<|{}|>'.format(name) }}{{ nope|default('<d>') }}{{ '<y>' if true }}"] = "[<|]user[|><|]user[|><d><y>]",
    ["{% set ns = namespace(t='') %}{% for i in [1, 2] %}{% set ns.t = ns.t ~ '<i>' ~ name %}{% endfor %}{{ ns.t }}"] = "[<i>]user[<i>]user",
    ["{% for c in '<' ~ name %}{{ c }},{% endfor %}{{ ('<' ~ name)[::-1] }}{{ '<>' * 2 }}"] = "[<,]u[,]s[,]e[,]r[,]resu[<<><>]",
    ["{{ ('<a>' ~ name)|indent(2, true) }}{{ {'k': '<v>'}['k'] }}{{ {'<k>': 1}|first }}"] = "  [<a>]user[<v>]<k>",
    ["{{ ('<a>'|safe) ~ name }}{{ name if name == 'user' else '<u>' }}{{ '<u>' or name }}"] = "[<a>]useruser[<u>]",
  }
  for source, want in pairs(cases) do lu.assertEquals(marked(source, vars), want, source) end
end

function TestJinjaSpans:test_user_text_is_never_inside_a_span_in_golden_templates()
  local conversations, tokens, n = json.decode(read(GOLDEN .. "conversations.json")), json.decode(read(GOLDEN .. "tokens.json")), 0
  local secret = "<|im_start|><s>[INST]<start_of_turn><|eot_id|>SECRET"
  for name in pairs(tokens) do
    local tpl = assert(template.compile(read(GOLDEN .. "templates/" .. name .. ".jinja"), { name = name }))
    local vars = variables(conversations.multi_turn_no_system, tokens[name], true)
    vars.messages = json.array{ json.object("role", "user", "content", secret), json.object("role", "assistant", "content", "ok" .. secret), json.object("role", "user", "content", "x " .. secret .. " y") }
    local text, spans = tpl:render(vars, { now = NOW, spans = true })
    if text then
      n = n + 1
      local inside = {}
      for _, span in ipairs(spans) do inside[#inside + 1] = text:sub(span[1], span[2]) end
      lu.assertNotStrContains(table.concat(inside, "\0"), "SECRET", false, name)
      lu.assertNotStrContains(table.concat(inside, "\0"), secret:sub(1, 40), false, name)
      lu.assertTrue(#spans > 0, name)
    end
  end
  assert(n > 60, n)
end

-- Limits ----------------------------------------------------------------------------

TestJinjaLimits = {}

local function refused(source, words, vars, limits)
  local started = os.clock()
  local text, message, code = render(source, vars or {}, { limits = limits })
  lu.assertNil(text, source)
  lu.assertEquals(code, "template_error")
  lu.assertStrContains(message, words)
  assert(os.clock() - started < 5, "took too long: " .. source)
end

function TestJinjaLimits:test_steps_bytes_depth()
  refused("{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}", "too many steps")
  refused("{% for a in range(9999999999) %}{% endfor %}", "range")
  refused("{{ range(100000000) }}", "range is too big")
  refused("{{ 'abc' * 1000000000 }}", "too much text")
  refused("{{ [1] * 100000000000 }}", "too many steps")
  refused("{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "too much text")
  refused("{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", "too much text")
  refused("{% set ns = namespace(s='aa') %}{% for i in range(64) %}{% set ns.s = ns.s|replace('a', 'aaa') %}{% endfor %}", "too m")
  refused("{% set ns = namespace(l=[1]) %}{% for i in range(64) %}{% set ns.l = ns.l + ns.l %}{% endfor %}", "too many steps")
  refused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recurses too deeply")
  refused("{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}", "recurses too deeply")
  refused("{% set l = [1] %}{{ l.append(l) }}{{ l }}", "nested too deeply")
  refused("{% set l = [1] %}{{ l.append(l) }}{{ l|tojson }}", "nested deeper")
  refused("{% set l = [] %}{% set k = [] %}{{ l.append(k) }}{{ k.append(l) }}{{ l == k }}", "too deeply")
  refused("{{ '%99999999d' % 1 }}", "width")
  refused("{{ '{:>99999999}'.format(1) }}", "width")
  refused("{{ x|center(9999999999) }}", "too much text", { x = "a" })
  for _, word in ipairs{ "x", "x-", "ab-", "(", ")", "a--b", "&gt;", "www.", "a@", "'a" } do
    local x = word:rep(50000 // #word)
    for _, filter in ipairs{ "wordwrap(1)", "wordwrap(1, false)", "urlize", "striptags", "wordcount", "xmlattr" } do
      render("{{ x|" .. filter .. " }}", { x = x })
    end
  end
  refused("{% for i in range(10) %}" .. ("x"):rep(1000) .. "{% endfor %}", "too much text", {}, { bytes = 5000 })
  refused("{% for i in range(10) %}{% endfor %}", "too many steps", {}, { steps = 5 })
  refused("{{ '" .. ("x"):rep(100) .. "'|urlencode }}" .. ("{{ a }}"):rep(100), "too much text", { a = ("y"):rep(1000) }, { bytes = 50000 })
end

function TestJinjaLimits:test_deep_source()
  for _, source in ipairs{ "{{ " .. ("("):rep(100000) .. "1" .. (")"):rep(100000) .. " }}", "{{ " .. ("-"):rep(100000) .. "1 }}", ("{% if x %}"):rep(10000),
    "{{ " .. ("["):rep(10000) .. " }}", "{{ 1 if " .. ("1 if 1 else "):rep(10000) .. "1 }}", "{{ x" .. ("[x"):rep(10000) .. " }}" } do
    local text, _, code = render(source, {})
    lu.assertNil(text)
    lu.assertEquals(code, "template_error")
  end
  lu.assertEquals(render("{{ 1" .. (" + 1"):rep(5000) .. " }}"), "5001")
  lu.assertEquals(render("{{ " .. ("not "):rep(5000) .. "1 }}"), "True")
  lu.assertEquals(render("{{ x" .. ("|upper"):rep(2000) .. " }}", { x = "a" }), "A")
end

function TestJinjaLimits:test_no_way_out()
  for _, source in ipairs{ "{{ ''.__class__ }}", "{{ os }}", "{{ io }}", "{{ _G }}", "{{ x.__index }}", "{{ x.kind }}", "{{ f.__globals__ }}" } do
    lu.assertEquals(render(source, { x = json.array{ 1 }, f = function() return 1 end }), "", source)
  end
end

-- Templates with random damage must render or fail as documented, quickly.
function TestJinjaLimits:test_mutated_templates()
  local conversations, sources = json.decode(read(GOLDEN .. "conversations.json")), {}
  for line in io.lines(GOLDEN .. "snippets.jsonl") do
    local r = json.decode(line)
    if r.template then sources[#sources + 1] = r.template end
  end
  for _, name in ipairs{ "Qwen-Qwen3-0.6B", "google-gemma-4-31B-it", "Kimi-K2-Instruct", "meta-llama-Llama-3.1-8B-Instruct" } do
    sources[#sources + 1] = read(GOLDEN .. "templates/" .. name .. ".jinja")
  end
  local pieces = { "{{", "}}", "{%", "%}", "{#", "#}", "-", "+", "|", "(", ")", "[", "]", ":", "'", "\"", ".", "if ", "for ", "in ", "endfor", "loop", "recursive ",
    "1", "0", "999999999", "*", "**", "//", "%", "~", "messages", "tools", "not ", "is ", "set ", "=", ",", "\\", "\255", "é", "none", "namespace", "range(9)", "macro f() ",
    "caller()", "|tojson", "|list", "|join", "|map", "|sort", ".append(messages)", ".items()", "[::-1]", "%}{% else %}" }
  local vars = variables(conversations.tool_call_object, { bos_token = "<s>" }, true)
  vars.s, vars.n, vars.l, vars.d, vars.users = "text", 7, json.array{ 3, 1 }, json.object("a", 1), vars.messages
  math.randomseed(20260314)
  local stop, n, rendered = os.clock() + 5, 0, 0
  while n < 20000 and os.clock() < stop do
    local s = sources[math.random(#sources)]
    for _ = 1, math.random(1, 4) do
      local at = math.random(#s + 1)
      local kind = math.random(4)
      if kind == 1 then s = s:sub(1, at - 1) .. s:sub(at + math.random(0, 8))
      elseif kind == 2 then s = s:sub(1, at - 1) .. pieces[math.random(#pieces)] .. s:sub(at)
      elseif kind == 3 then s = s:sub(1, at - 1) .. s:sub(at, at + math.random(20)) .. s:sub(at)
      else s = s:sub(1, at - 1) .. string.char(math.random(0, 255)) .. s:sub(at + 1) end
    end
    local text, message, code = render(s, vars, { spans = n % 2 == 0, limits = { steps = 20000, bytes = 1 << 20, depth = 50 } })
    n = n + 1
    if text then rendered = rendered + 1
    else
      assert(code == "template_error" or code == "template_raise", code)
      assert(not message:find("the engine failed", 1, true), message .. "\n" .. s)
    end
  end
  assert(n > 300 and rendered > 50, ("%d tried, %d rendered"):format(n, rendered))
end
