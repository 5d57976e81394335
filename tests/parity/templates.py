#!/usr/bin/env python3
"""Chat templates by Jinja itself: makes tests/data/chat-templates.json, which
tests/jinja/test_template.c compares with, or compares random expressions with a library.

    python3 tests/parity/templates.py --fixture
    python3 tests/parity/templates.py build/libdra.so [--random 5000] [--seed 1]

Needs the package jinja2. The environment is that of Hugging Face's apply_chat_template():
an immutable sandbox, trim_blocks, lstrip_blocks, loop controls, tojson by json.dumps().
A case is {"name", "template": index, "variables": index, "expected": text}, or "error": true where
Jinja fails."""
import argparse
import copy
import ctypes
import datetime
import json
import os
import random
import sys
import warnings

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(jinja2.ext.Extension):
    """{% generation %} ... {% endgeneration %}, which passes its body through."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_through"), [], [], body).set_lineno(line)

    @staticmethod
    def _through(caller):
        return caller()


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return env


def render(template, variables):
    try:
        return {"expected": environment().from_string(template).render(**copy.deepcopy(variables))}
    except Exception:
        return {"error": True}


# ---- single constructs -----------------------------------------------------------------------

VALUES = {
    "x": 7, "f": 2.5, "s": "Hello World", "e": "", "t": True, "n": None, "u8": "héllo ✓ wörld",
    "l": [3, 1, 2], "w": ["b", "A", "c"], "d": {"b": 1, "a": {"k": [1, 2]}, "items": "mine"},
    "m": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": " yo "},
          {"role": "user"}],
}

EXPRESSIONS = r"""
1 + 2 * 3
2 ** 3 ** 2
-2 ** 2
7 // 2 ~ ' ' ~ -7 // 2 ~ ' ' ~ 7 % 3 ~ ' ' ~ -7 % 3
7 / 2
7.5 // 2
-7.5 % 2
1e3
1.0
1e16
1e-5
0.1 + 0.2
100000000000000.5
1 / 3
'a' * 3
[1, 2] * 2
[1] + [2]
(1, 2) + (3,)
(1,)
()
'a' 'b'
'\n\t\\\'\"\x41\u00e9\101\q'
"it's"
["it's", 'a"b', '\n', 'é', 1.5, none, true]
{'a': 1, 'b': [none]}
{}
true and 0
'' or 'x'
not x
not x == 7
1 < 2 < 3
3 > 2 == 2
x == 7.0
true == 1
'a' == 1
[1, 2] == [1, 2]
{'a': 1} == {'a': 1.0}
'a' < 'b'
[1, 2] < [1, 3]
m < m
[n, 1] < [n, 2]
[n] < [1]
'ell' in s
'z' not in s
1 in l
'a' in d
'k' in d.a
x in missing
x if x > 5 else 'no'
x if x > 50
'a' if 0 else 'b' if 0 else 'c'
missing
missing ~ 'x'
missing|length
missing|default('d')
missing == other
none == missing
e|default('d')
e|default('d', true)
e|d('d', boolean=true)
n|default('d')
missing.attribute
missing['a']
missing + 1
missing()
d.missing
d.missing.more
d['a']['k'][0]
d.a.k[-1]
d.a.k[5]
d['items']
d.a.k.0
l[1:]
l[:-1]
l[::-1]
l[5:]
l[-2:9]
l[::2]
l[2:0:-1]
l[0]
l[1:"a"]
x[1:]
d[1:]
missing[1:]
0|map("string")|list
5|select|list
[d]|unique|list
[1] in d
s[0]
s[-1]
s[1:4]
s[::-1]
u8[1:3]
u8|length
u8|upper
u8|capitalize
s|lower
s|upper
'hello wORLD-foo (bar) [x'|title
'hello wORLD-foo'.title()
"they're bill's"|title
"they're bill's".title()
'hELLO'|capitalize
'  a b  '|trim
'xxaxx'|trim('x')
'  a  '.strip() ~ '|'
'  a  '.lstrip() ~ '|'
'  a  '.rstrip() ~ '|'
'xyaxy'.strip('yx')
'aXbX'.rstrip('X')
'a,b,,c'.split(',')
'a,b,,c'.split(',', 1)
'a,b,,c'.rsplit(',', 1)
' a  b c '.split()
' a  b c '.split(none, 1)
' a  b c '.rsplit(none, 1)
'a'.split('')
''.split()
''.split(',')
s.startswith('Hell')
s.endswith(('x', 'World'))
s.startswith('')
s.replace('l', 'L')
s.replace('l', 'L', 1)
s.replace('', '-')
s|replace('o', '0')
s|replace('l', '', 2)
s.find('World')
s.find('none')
u8.find('✓')
s.count('l')
s.upper().lower().title().capitalize()
', '.join(['a', 'b'])
', '.join([1])
'-'.join('abc')
w|join(', ')
l|join
m|join(',', attribute='role')
d.items()|list
d.a.items()|list
d.keys()|list
d.values()|list
d.get('b')
d.get('zz')
d.get('zz', 5)
d|items|list
missing|items|list
d.a|dictsort
{'b': 1, 'A': 2}|dictsort
{'b': 1, 'A': 2}|dictsort(true)
{'b': 1, 'A': 2}|dictsort(by='value', reverse=true)
l|length
d|length
x|length
w|sort
w|sort(case_sensitive=true)
w|sort(reverse=true)
m|sort(attribute='role')|map(attribute='role')|list
l|sort|first
l|first
l|last
[]|first
e|first
s|first
l|min
l|max
w|max
[]|max
l|sum
m|sum(attribute='x')
[{'x': 1}, {'x': 2}]|sum(attribute='x')
[0.5, 1]|sum
[]|sum(start=4)
[1, 1.0, 'a', 'A', 'b']|unique|list
w|reverse|list
s|reverse
m|map(attribute='role')|list
m|map(attribute='content', default='none')|list
w|map('upper')|list
w|map('replace', 'b', 'x')|join
['a.b', 'c']|map('length')|list
[{'a': {'b': 3}}]|map(attribute='a.b')|list
[[1, 2]]|map(attribute=1)|list
m|selectattr('role', 'equalto', 'user')|list|length
m|selectattr('content')|list|length
m|selectattr('content', 'defined')|map(attribute='content')|join('/')
m|rejectattr('role', '==', 'user')|list
m|rejectattr('role', 'in', ['user', 'x'])|list
l|select('odd')|list
l|reject('odd')|list
l|select('gt', 1)|list
[0, 1, '', 'a']|select|list
'3'|int
'3.7'|int
' 42 '|int
'abc'|int
'abc'|int(5)
'ff'|int(base=16)
3.99|int
-3.99|int
true|int
'2.5'|float
'x'|float
'1e3'|float
3|float
2.5|round
3.5|round
2.567|round(2)
2.561|round(2, 'ceil')
2.569|round(2, 'floor')
7|round
-5|abs
-2.5|abs
5|string + '!'
none|string
true|string
'a\nb\n\nc'|indent
'a\nb'|indent(2)
'a\nb\n\nc'|indent(2, true, true)
'a\nb'|indent('> ', first=true)
'a\n'|indent
''|indent
'<b>'|safe
d|tojson
d|tojson(indent=2)
{}|tojson(indent=2) ~ []|tojson
[1, [], {}]|tojson(indent=4)
{'b': 1, 'a': 2}|tojson(sort_keys=true)
{'b': 1, 'a': [2, 3]}|tojson(separators=(',', ':'))
'é"\\\n\t\x01<>&\''|tojson
'é✓😀'|tojson(ensure_ascii=true)
{1: 2, none: 3, true: 4, 1.5: 5}|tojson
[1.0, 1e20, none, true, (1, 2)]|tojson
missing|tojson
x is defined
missing is defined
missing is not defined
missing is undefined
n is none
missing is none
s is string
x is string
d is mapping
l is mapping
l is iterable
x is iterable
missing is iterable
s is sequence
d is sequence
x is sequence
missing is sequence
x is number
f is number
t is number
s is number
x is integer
t is integer
f is float
t is boolean
t is true
1 is true
t is false
x is odd
x is even
x is divisibleby 7
x is divisibleby(2)
x is eq 7
x is equalto(7)
x is ne 7
x is lt 8
x is gt 8
x is le 7
x is ge 8
x is in [7]
x is not in [7]
x is not none and x is not string
t is sameas true
range(3)|list
range(1, 4)|list
range(5, 0, -2)|list
range(0)|list
range(1000000)|length
dict(a=1, b='c')
dict({'a': 1}, b=2)
namespace(a=1).a
x.y
x[0]
n.x
none + 1
'a' + 1
'a' - 'b'
1 / 0
1 // 0
1.5 % 0
l.append(4)
1 < 'a'
none < 1
'a' in 5
5 in 'a'
[[]] + []
{[]: 1}
l['a']
s['a']
s.foo
d.items is defined
d.items is callable
raise_exception('bad ' ~ x)
loop
1, 2
(x, s)
l|list == l
'%s'|length
"a" "b" ~ 'c'
'a' ~ 1 + 2
1 ~ 2 * 3
+5
- -5
not not x
-x|abs
(-x)|abs
x|string|length
'x'|default('y')|upper
s.split(' ')[0]
s.split(' ')[-1].upper()
m[0].content
m[0]['content']
m[-1].content is defined
m[1:][0].role
m[::-1][0].role
(m|length) - 1
m|length - 1
'ß'.upper()
'ǆ'.upper()
'İ'|length
'a\u00a0b'.split()
'x\u2028y'.split()
'abc'.join(['1', '2'])
' ' * 0 ~ '|'
'ab' * -1
9223372036854775807
'a' if x is defined and x is number else 'b'
x is defined if t else 5
""" + "\n"

STATEMENTS = [
    "a{% if x %}b{% endif %}c",
    "a\n{% if x %}\nb\n{% endif %}\nc\n",
    "a\n    {% if x %}\n  b\n    {% endif %}\nc\n\n",
    "a \n  {%- if x -%} \n b \n {%- endif -%} \n c",
    "a\n  {%+ if x %}b{% endif +%}\nc",
    "a\n  {{ x }}\n  b",
    "a\n  {{- x -}}\n  b",
    "  {{ x }}  {# note #}  \n  {# alone #}\n  c",
    "a {#- note -#} b",
    "a\n {#+ note +#}\nb",
    "{#-#}x",
    "  {% set y = 1 %}  {% set z = 2 %}\n{{ y }}",
    "\n\n{% if x %}\n\n{% endif %}\n\n",
    "a\r\nb\rc\r\n",
    "{{ '{{' }} {{ '%}' }} {{ \"}}\" }}",
    "{{ {'a': {'b': 1}} }}",
    "{{ {'a': {'b': 1}}['a']['b'] }}",
    "}} %} #} { % {",
    "{% if not x %}a{% elif f > 2 %}b{% else %}c{% endif %}",
    "{% if e %}a{% elif n %}b{% else %}c{% endif %}",
    "{% if x %}{% endif %}",
    "{% for i in l %}{{ i }}{% endfor %}",
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}"
    "{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }} {% endfor %}",
    "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}",
    "{% for i in l if i > 1 %}{{ i }}{{ loop.length }}{{ loop.last }}{% endfor %}",
    "{% for i in [] %}x{% else %}none{% endfor %}",
    "{% for i in l if i > 9 %}x{% else %}none{% endfor %}",
    "{% for i in missing %}x{% else %}none{% endfor %}",
    "{% for i in n %}x{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}",
    "{% for c in 'hé' %}<{{ c }}>{% endfor %}",
    "{% for a, b in [[1, 2], [3, 4]] %}{{ a }}-{{ b }} {% endfor %}",
    "{% for a, b in [[1]] %}{{ a }}{% endfor %}",
    "{% for (a, b) in [[1, 2]] %}{{ a }}{% endfor %}",
    "{% for i in 1, 2 %}{{ i }}{% endfor %}",
    "{% for i in l %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in l %}{% for k in l %}{% if k == 1 %}{% break %}{% endif %}{{ i }}{{ k }}"
    "{{ loop.depth }} {% endfor %}{{ loop.index }}{% endfor %}",
    "{% for i in l %}{% set y = i %}{% endfor %}{{ y }}",
    "{% set y = 0 %}{% for i in l %}{{ y }}{% set y = i %}{{ y }}{% endfor %}{{ y }}",
    "{% if t %}{% set y = 5 %}{% endif %}{{ y }}",
    "{% set ns = namespace(n=0) %}{% for i in l %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
    "{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns.b }}",
    "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }}",
    "{% set d.x = 1 %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set a, b = b, a %}{{ a }}",
    "{% set a = 1, 2 %}{{ a }}",
    "{% set a = 'x' if t else 'y' %}{{ a }}",
    "{% set a %}x{{ x }}\n{% endset %}[{{ a }}]",
    "{% set a | upper | trim %} x{{ s }} {% endset %}[{{ a }}]",
    "{% set a %}{% set b = 5 %}{{ b }}{% endset %}{{ a }}{{ b }}",
    "{% macro f(a, b=2, c='z') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, c=3) }} "
    "{{ f(b=5) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(z=2) }}",
    "{% macro f(a, b=a) %}{{ b }}{% endmacro %}{{ f(3) }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro f() %}{{ x }}{{ y }}{% endmacro %}{% set y = 3 %}{{ f() }}",
    "{% macro f() %}\n  a\n{% endmacro %}\n{{ f()|trim }}{{ f()|length }}",
    "{% for i in l %}{{ g(i) }}{% endfor %}{% macro g(i) %}{{ i }}{% endmacro %}",
    "{% macro g(i) %}{{ loop }}{% endmacro %}{% for i in l %}{{ g(i) }}{% endfor %}",
    "a{% generation %}b{{ x }}{% endgeneration %}c",
    "a\n  {% generation %}\n  b\n  {% endgeneration %}\nc",
    "{% for m in m %}{{ m.role }}{% endfor %}",
    "{% for i in range(3) %}{{ i }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{{ raise_exception('no') }}",
    "{% if x %}{{ raise_exception('no') }}{% endif %}",
    "{{ x\n+\n1 }}",
    "{{ x if x }}{{ '' if x else 'b' }}",
    "{%- set y = [1, 2,] -%}{{ y }}{{ {'a': 1,} }}{{ dict(a=1,) }}",
    "{{ [x, s][0] }}{{ (1, 2)[1] }}{{ {'a': 5}.a }}{{ 'abc'[1] }}",
]

# ---- whole templates -------------------------------------------------------------------------
# They are our own. Their conversations come out in the formats of the families that name them
# (markers, order, white space); the wording of what is said to the model is invented.

CHATML = (
    "{% set has_charge = messages|selectattr('role', 'equalto', 'system')|list|length > 0 %}"
    "{% set charge = {'role': 'system', 'content': 'Answer in one line.'} %}"
    "{% for turn in (messages if has_charge else [charge] + messages) %}"
    "<|im_start|>{{ [turn.role, turn['content']]|join('\\n') }}{{'<|im_end|>\\n'}}"
    "{% endfor %}{{ '<|im_start|>assistant\\n' if add_generation_prompt }}")

LLAMA2 = (
    "{% set now = namespace(speaker='user', preface='') %}{% for turn in messages %}"
    "{% if loop.first and turn.role == 'system' %}"
    "{% set now.preface = ['<<SYS>>', turn.content, '<</SYS>>', '', '']|join('\\n') %}"
    "{% continue %}{% endif %}"
    "{% if turn.role != now.speaker %}"
    "{{ raise_exception('turn ' ~ loop.index ~ ' belongs to the ' ~ now.speaker) }}{% endif %}"
    "{% if now.speaker == 'user' %}"
    "{{ bos_token + '[INST] ' + (now.preface + turn.content).strip() + ' [/INST]' }}"
    "{% set now.speaker = 'assistant' %}{% set now.preface = '' %}"
    "{% else %} {{ turn.content.strip() }} {{ eos_token }}"
    "{% set now.speaker = 'user' %}{% endif %}{% endfor %}")

LLAMA3 = r"""{#- A block: who speaks, a blank line, what is said. -#}
{%- macro block(who, text, end='<|eot_id|>') -%}
    <|start_header_id|>{{ who }}<|end_header_id|>{{ '\n\n' ~ text ~ end }}
{%- endmacro -%}

{%- set charge = none %}
{%- if messages[0].role == 'system' %}
    {%- set charge = messages[0].content | trim %}
    {%- set messages = messages[1:] %}
{%- endif %}
{%- set opening %}
    {%- if date_string is defined %}
It is {{ date_string }}.

    {% endif %}
{{ charge or '' }}
    {%- for tool in tools or [] %}


{{ tool.function | tojson(indent=4) }}
    {%- endfor %}
{% endset %}

{{- bos_token }}
{%- if not opening.strip() == '' %}
    {{- block('system', opening | trim) }}
{%- endif %}
{%- for turn in messages %}
    {%- if 'tool_calls' in turn %}
        {%- if turn.tool_calls | length != 1 %}
            {{- raise_exception("a turn makes one call, here are " ~ turn.tool_calls | length) }}
        {%- endif %}
        {%- set call = turn.tool_calls | map(attribute='function') | first %}
        {{- block(turn.role, {"name": call.name, "parameters": call.arguments} | tojson) }}
    {%- elif turn.role in ('tool', 'ipython') %}
        {%- set found = turn.content %}
        {{- block('ipython', found | tojson if found is mapping or found is iterable else found) }}
    {%- else %}
        {{- block(turn.role, text=turn.content | trim) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- block('assistant', '', end='') }}
{%- endif %}
"""

MISTRAL = r"""{%- macro offer(tools) %}
    {{- '[AVAILABLE_TOOLS] [' }}
    {%- for tool in tools %}
        {{- ', ' if not loop.first }}
        {{- '{"type": "function", "function": {' }}
        {%- for field, about in tool.function.items() if field not in ['return', 'strict'] %}
            {{- field|tojson + ": " + about|tojson }}
            {{- '' if loop.last else ', ' }}
        {%- endfor %}
        {{- "}}" }}
    {%- endfor %}
    {{- '][/AVAILABLE_TOOLS]' }}
{%- endmacro %}
{%- set charge = messages|selectattr('role', '==', 'system')|map(attribute='content')|join('\n') %}
{%- set talk = messages|rejectattr('role', 'equalto', 'system')|list %}
{%- set asked = talk|selectattr('role', 'equalto', 'user')|list %}
{#- Calls and what tools answer stand between turns. -#}
{%- for turn in talk|rejectattr('tool_calls', 'defined')|rejectattr('role', 'in', ['tool']) %}
    {%- if (turn.role == 'assistant') != loop.index is even %}
        {{- raise_exception('a ' ~ turn.role ~ ' out of turn, at ' ~ loop.index) }}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for turn in talk %}
    {%- if turn.role == "tool" %}
        {{- '[TOOL_RESULTS] ' + {'content': turn.content}|tojson + '[/TOOL_RESULTS]' }}
    {%- elif turn.tool_calls is defined and turn.tool_calls is not none %}
        {{- '[TOOL_CALLS] ' ~ turn.tool_calls|map(attribute='function')|list|tojson ~ eos_token }}
    {%- elif turn.role == "user" %}
        {%- if tools and turn == asked[-1] %}
            {{- offer(tools) }}
        {%- endif %}
        {%- set before = charge ~ '\n\n' if charge and loop.last else '' %}
        {{- "[INST] " ~ before ~ turn["content"] ~ "[/INST]" }}
    {%- else %}
        {{- [' ', turn["content"].strip(), eos_token]|join}}
    {%- endif %}
{%- endfor %}
"""

GEMMA = (
    "{{ bos_token }}{% set names = {'user': 'user', 'assistant': 'model'} %}"
    "{% for turn in messages %}{% if turn.role not in names %}"
    "{{ raise_exception('nobody here is called ' + turn.role) }}"
    "{% elif turn.role == (loop.previtem.role if not loop.first else 'assistant') %}"
    "{{ raise_exception('the ' + names[turn.role] + ' speaks again') }}{% endif %}"
    "<start_of_turn>{{ names[turn.role] + '\n' + turn['content'] | trim }}<end_of_turn>\n"
    "{% endfor %}{% if add_generation_prompt %}"
    "<start_of_turn>{{ names.assistant }}\n{% endif %}")

ZEPHYR = """{% for turn in messages if turn.role in ['system', 'user', 'assistant'] %}
<|{{ turn.role }}|>
  {% if turn.role == 'assistant' %}
    {% generation %}
{{ turn.content + eos_token }}
    {% endgeneration %}
  {% else %}
{{ turn.content + eos_token }}
  {% endif %}
{% endfor %}
{# whose turn it is #}
{% if add_generation_prompt %}
<|assistant|>
{% endif %}"""

QWEN = r"""{%- set begin, end = '<|im_start|>', '<|im_end|>\n' %}
{%- set led = messages[0].role == 'system' %}
{%- macro listing(tools) %}
    {{- "\n\nHelp is at hand, one in a line:\n<tools>\n" }}
    {{- tools | map('tojson') | join('\n') }}
    {{- "\n</tools>\nAsk for it so:\n<tool_call>\n{\"name\": \"...\", \"arguments\": {}}\n" }}
    {{- "</tool_call>" }}
{%- endmacro %}
{{- begin ~ 'system\n' ~ (messages[0].content if led else 'Answer kindly.') }}
{{- (listing(tools) if tools) ~ end }}
{%- for turn in (messages[1:] if led else messages) %}
    {%- if turn.role == "tool" %}
        {{- begin + 'user' if loop.first or loop.previtem.role != "tool" }}
        {{- '\n<tool_response>\n' + turn.content + '\n</tool_response>' }}
        {{- end if loop.last or loop.nextitem.role != "tool" }}
        {%- continue %}
    {%- endif %}
    {{- begin + turn.role }}
    {%- if turn.content is string %}
        {{- '\n' + turn.content }}
    {%- endif %}
    {%- for call in turn.tool_calls or [] %}
        {%- set call = call.function | default(call) %}
        {{- '\n<tool_call>\n' }}
        {{- dict(name=call.name, arguments=call.arguments) | tojson }}
        {{- '\n</tool_call>' }}
    {%- endfor %}
    {{- end }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- begin + 'assistant\n' }}
{%- endif %}
"""

PHI3 = """{% set speakers = 'system user assistant'.split() %}{% for turn in messages %}\
{% if turn.role in speakers and (turn.content or turn.role != 'system') %}{{'<|' + turn.role + '|>
' + turn.content + '<|end|>
'}}{% endif %}{% endfor %}{{ '<|assistant|>
' if add_generation_prompt else eos_token }}"""

DEEPSEEK = (
    "{%- macro mark(words) -%}<｜{{ words.replace(' ', '▁') }}｜>{%- endmacro -%}"
    "{% set ask = false if not add_generation_prompt is defined else add_generation_prompt %}"
    "{% set at = namespace() %}{% set at.results = 0 %}"
    "{{bos_token}}{%- for turn in messages if turn.role == 'system' -%}{{turn.content}}"
    "{%- endfor -%}"
    "{% for turn in messages %}"
    "{%- if turn['role'] == 'tool' -%}"
    "{% if at.results == 0 %}{{mark('tool outputs begin')}}{% endif %}"
    "{%- set at.results = at.results + 1 -%}"
    "{{mark('tool output begin') + turn['content'] + mark('tool output end')}}"
    "{%- elif turn['role'] == 'user' -%}{%- set at.results = 0 -%}"
    "{{mark('User') + turn['content']}}"
    "{%- elif turn['role'] == 'assistant' -%}"
    "{{mark('tool outputs end') if at.results > 0 else mark('Assistant')}}{%- set at.results = 0 %}"
    "{% if turn['content'] is none %}{{mark('tool calls begin')}}"
    "{%- for call in turn['tool_calls']-%}{{'\\n' if not loop.first}}"
    "{{mark('tool call begin') + call['type'] + mark('tool sep') + call['function']['name']}}"
    "{{'\\n```json\\n' + call['function']['arguments']|tojson + '\\n```' + mark('tool call end')}}"
    "{%- endfor -%}{{mark('tool calls end')}}"
    "{% else %}{{turn['content'].split('</think>')[-1]}}{% endif %}{{mark('end of sentence')}}"
    "{%- endif %}{%- endfor -%}"
    "{% if at.results > 0 %}{{mark('tool outputs end')}}"
    "{% elif ask %}{{mark('Assistant') + '<think>\\n'}}{% endif %}")

QWEN3 = r"""{#- Thoughts stay after the last question; what a tool answers is none. -#}
{%- set question = namespace(at=-1) %}
{%- for turn in messages[::-1] %}
    {%- set text = turn.content if turn.content is string else '' %}
    {%- if turn.role == "user" %}
        {%- set fed = text.startswith('<tool_response>') and text.endswith('</tool_response>') %}
        {%- if not(fed) %}
            {%- set question.at = loop.revindex0 %}
            {%- break %}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- for turn in messages %}
    {%- set thought, said = turn.reasoning_content, turn.content|default('', true) %}
    {%- if turn.role == "assistant" and thought is not string and '</think>' in said %}
        {%- set halves = said.rsplit('</think>', 1) %}
        {%- set thought = halves[0].split('<think>', 1)[-1].lstrip('\n').rstrip('\n') %}
        {%- set said = halves[1].lstrip('\n') %}
    {%- endif %}
    {%- if turn.role != "tool" %}
        {{- '<|im_start|>' + turn.role }}
    {%- elif loop.index0 == 0 or messages[loop.index0 - 1].role != turn.role %}
        {{- '<|im_start|>user' }}
    {%- endif %}
    {{- '\n' }}
    {%- if turn.role == "assistant" and loop.index0 > question.at and (thought or loop.last) %}
        {{- '<think>\n' ~ thought ~ '\n</think>\n\n' }}
    {%- endif %}
    {%- if turn.role == "tool" %}
        {%- set said %}
<tool_response>
{{ said | trim('\n') }}
</tool_response>
        {%- endset %}
    {%- endif %}
    {{- said }}
    {%- if turn.role != "tool" or loop.last or messages[loop.index0 + 1].role != "tool" %}
        {{- '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {{- '<think>\n\n</think>\n\n' if enable_thinking|default(true) is false }}
{%- endif %}"""

MACROS = """{%- macro kind(schema, inner=false) -%}
    {%- if schema.enum is defined -%}
        one of {{ schema.enum|map('tojson')|join(', ') }}
    {%- elif schema.type is string and schema.type != 'array' -%}
        {{ schema.type + 's' if inner else 'a ' + schema.type }}
    {%- elif schema.type is string -%}
        {{ 'lists' if inner else 'a list' }} of {{ kind(schema['items'], inner=true) }}
    {%- else -%}
        {%- for name in schema.type -%}
            {{ '' if loop.first else ' or ' }}{{ kind({'type': name}, inner) }}
        {%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- macro card(tool, bullet="*", level=1) %}
{% set needed = tool.parameters.required|default([]) %}
{{ '#' * level }} {{ tool.name|upper }}

{{ tool.description|default('(not described)', true)|indent(2, first=true) }}
{% for name, schema in tool.parameters.properties|dictsort %}
{{ bullet }} {{ name }}{{ ' (needed)' if name in needed }}: {{ kind(schema) }}
{%- if not loop.last %};{% else %}.{% endif +%}
{% endfor %}
{%- endmacro %}
{% for tool in tools %}
{{ card(tool.function, level=2) }}
{% else %}
No tools today.
{% endfor %}"""

# What Llama 3.2's does: variables with defaults, the date, tools in the first question.
LLAMA32 = r"""{{- bos_token }}
{%- if own_tools is defined %}
    {%- set tools = own_tools %}
{%- endif %}
{%- if not tools_come_first is defined %}
    {%- set tools_come_first = false %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = 'year ' ~ strftime_now("%Y")|length if strftime_now is defined %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set rules = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set rules = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{{- "Today: " + date_string + "\n\n" }}
{%- if tools is not none and tools_come_first %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- rules }}
{{- "<|eot_id|>" }}
{%- if not tools_come_first and not tools is none %}
    {%- if messages | length == 0 %}
        {{- raise_exception("Nothing was asked, so no tool can go first.") }}
    {%- endif %}
    {%- set question = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
    {{- '<|start_header_id|>user<|end_header_id|>\n\n' }}
    {{- "Call one of these by JSON:\n\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) + "\n\n" }}
    {%- endfor %}
    {{- question + "<|eot_id|>" }}
{%- endif %}
{%- for turn in messages %}
    {%- if not (turn.role == 'ipython' or turn.role == 'tool' or 'tool_calls' in turn) %}
        {{- '<|start_header_id|>' + turn['role'] + '<|end_header_id|>\n\n' }}
        {{- turn['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in turn %}
        {%- if not turn.tool_calls|length == 1 %}
            {{- raise_exception("One call at a time.") }}
        {%- endif %}
        {%- set call = turn.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "' + call.name + '", ' }}
        {{- '"parameters": ' + call.arguments | tojson + "}<|eot_id|>" }}
    {%- elif turn.role == "tool" or turn.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if turn.content is mapping or turn.content is iterable %}
            {{- turn.content | tojson }}
        {%- else %}
            {{- turn.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}"""

# What SmolLM3's does: a mode by a variable or by a word in the system's message, thoughts left out.
SMOLLM3 = r"""{%- if enable_thinking is not defined %}
{%- set enable_thinking = true %}
{%- endif %}
{%- set ns = namespace(think=enable_thinking, said="", tools=[]) %}
{%- if messages[0].role == "system" %}
    {%- set system = messages[0].content %}
    {%- if "/no_think" in system %}
        {%- set ns.think = false %}
    {%- elif "/think" in system %}
        {%- set ns.think = true %}
    {%- endif %}
    {%- set ns.said = system.replace("/no_think", "").replace("/think", "").rstrip() %}
{%- endif %}
{{- "<|im_start|>system\n## Metadata\n\n" -}}
{%- if date_string is defined -%}
    {{- "Today: " ~ date_string ~ "\n" -}}
{%- else -%}
    {{- "Day of " ~ (strftime_now("%d")|length) ~ " letters\n" -}}
{%- endif -%}
{{- "Mode: " ~ ("/think" if ns.think else "/no_think") ~ "\n\n" -}}
{%- if ns.said %}{{- ns.said ~ "\n\n" -}}{%- endif %}
{%- if xml_tools or python_tools or tools -%}
    {%- for tool in (xml_tools or tools or []) -%}
        {%- set ns.tools = ns.tools + [tool | string | length > 0] -%}
        {{- (tool.function if tool.function is defined else tool) | tojson ~ "\n" -}}
    {%- endfor -%}
    {{- ns.tools | length ~ " tools\n" -}}
{%- endif -%}
{{- "<|im_end|>\n" -}}
{%- set loop_messages = messages[1:] if messages[0].role == "system" else messages -%}
{%- for message in loop_messages -%}
    {%- set content = message.content if message.content is string else "" -%}
    {%- if message.role == "user" -%}
        {{ "<|im_start|>" + message.role + "\n" + content + "<|im_end|>\n" }}
    {%- elif message.role == "assistant" -%}
        {%- generation -%}
        {%- if ns.think -%}
            {{ "<|im_start|>assistant\n" + content.lstrip("\n") + "<|im_end|>\n" }}
        {%- else -%}
            {{ "<|im_start|>assistant\n<think>\n\n</think>\n" }}
            {{- content.split("</think>")[-1].lstrip("\n") + "<|im_end|>\n" }}
        {%- endif -%}
        {%- endgeneration -%}
    {%- elif message.role == "tool" -%}
        {{ "<|im_start|>user\n" + content + "<|im_end|>\n" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ "<|im_start|>assistant\n" if ns.think else "<|im_start|>assistant\n<think>\n\n</think>\n" }}
{%- endif -%}"""

FAMILIES = {"chatml": CHATML, "llama2": LLAMA2, "llama3": LLAMA3, "mistral": MISTRAL,
            "gemma": GEMMA, "zephyr": ZEPHYR, "qwen2.5": QWEN, "phi3": PHI3,
            "deepseek": DEEPSEEK, "qwen3": QWEN3, "macros": MACROS,
            "llama3.2": LLAMA32, "smollm3": SMOLLM3}

SYSTEM = {"role": "system", "content": "Be brief. "}
TALK = [{"role": "user", "content": "Hi\nthere! "}, {"role": "assistant", "content": " Hello ✓"},
        {"role": "user", "content": "What is <1 + 1>?"}]
THOUGHT = TALK[:1] + [{"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes"}] + TALK[2:]
TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "Today's weather", "parameters": {
        "type": "object", "required": ["place"], "properties": {
            "place": {"type": "string", "description": "a town, \"Köln\""},
            "days": {"type": "array", "items": {"type": "integer"}},
            "unit": {"enum": ["C", "F"]}, "more": {"type": ["string", "null"]}}}}}]
CALL = {"role": "assistant", "content": None, "tool_calls": [
    {"type": "function", "function": {"name": "weather", "arguments": {"place": "Köln"}}}]}
TOOL = {"role": "tool", "content": "{\"sun\": true}"}

CONVERSATIONS = {
    "user": {"messages": TALK[:1], "add_generation_prompt": True},
    "talk": {"messages": TALK, "add_generation_prompt": True},
    "system": {"messages": [SYSTEM] + TALK, "add_generation_prompt": True},
    "whole": {"messages": TALK[:2], "add_generation_prompt": False},
    "thought": {"messages": THOUGHT, "add_generation_prompt": True, "enable_thinking": False},
    "tools": {"messages": TALK + [CALL, TOOL, TOOL], "tools": TOOLS, "add_generation_prompt": True},
    "offered": {"messages": [SYSTEM] + TALK, "tools": TOOLS, "add_generation_prompt": True,
                "date_string": "3 March"},
    "answered": {"messages": TALK + [CALL, TOOL, TALK[1]], "tools": TOOLS},
    "calls": {"messages": TALK + [dict(CALL, tool_calls=CALL["tool_calls"] * 2), TOOL]},
    "unthinking": {"messages": [{"role": "system", "content": "Be kind. /no_think "}] + THOUGHT,
                   "add_generation_prompt": True},
    "twice": {"messages": TALK[:1] * 2, "add_generation_prompt": True},
}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def rows():
    for text in EXPRESSIONS.strip("\n").split("\n"):
        yield text, "{{ " + text + " }}", VALUES
    for text in STATEMENTS:
        yield text, text, VALUES
    for family, template in FAMILIES.items():
        for name, variables in CONVERSATIONS.items():
            yield family + ": " + name, template, dict(variables, **TOKENS)


# ---- random expressions ----------------------------------------------------------------------

def draw(r, depth):
    """An expression that mostly makes sense."""
    if depth == 0 or r.random() < 0.15:
        return r.choice(["x", "f", "s", "e", "t", "n", "l", "w", "d", "m", "missing", "1", "0",
                         "-2", "2.5", "'a'", "' b c '", "[1, 'a']", "{'a': 1}", "u8", "m[0].role"])
    a, b = draw(r, depth - 1), draw(r, depth - 1)
    return r.choice([
        "({a} {op} {b})", "({a} {op} {b})", "({a} {cmp} {b})", "({a} {cmp} {b})",
        "({a} and {b})", "({a} or {b})", "(not {a})", "({a} if {b} else {a})", "({a} ~ {b})",
        "{a}|{filter}", "{a}|{filter}", "({a} is {test})", "{a}[{i}]", "({a}|string)[{k}:{j}]",
        "({a}|list)[::-1]", "{a}|string|length", "{a}|tojson", "[{a}, {b}]", "{{'k': {a}}}",
        "({a}|string).{method}"]).format(
            a=a, b=b, op=r.choice(["+", "-", "*", "/", "//"]),
            cmp=r.choice(["==", "!=", "<", "<=", ">", ">=", "in", "not in"]),
            filter=r.choice(["trim", "length", "upper", "lower", "title", "capitalize", "join(',')",
                             "replace('a', 'b')", "default('z')", "first", "last", "string", "int",
                             "float", "list", "reverse|list", "abs", "min", "max", "sum", "sort",
                             "unique|list", "round", "indent", "map('string')|list"]),
            test=r.choice(["defined", "none", "string", "mapping", "iterable", "number", "integer",
                           "true", "odd", "even", "sequence", "boolean"]),
            method=r.choice(["strip()", "split()", "split('a')", "title()", "upper()", "find('a')",
                             "replace('a', '')", "count('a')", "rsplit('a', 1)", "startswith('a')"]),
            i=r.choice(["0", "-1", "1", "'a'"]), j=r.choice(["1", "2", "-1"]), k=r.choice(["0", "-1", "1", ""]))


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.dra_template_destroy.argtypes = [ctypes.c_void_p]
        self.free = ctypes.CDLL(None).free
        self.free.argtypes = [ctypes.c_void_p]

    def render(self, template, variables):
        """The text, or None where it is refused."""
        text, bytes_ = ctypes.c_void_p(), ctypes.c_size_t()
        made, source = ctypes.c_void_p(), template.encode()
        if self.lib.dra_template_create(source, ctypes.c_size_t(len(source)), b"t",
                                        ctypes.byref(made), None):
            return None
        status = self.lib.dra_template_render(made, json.dumps(variables).encode(),
                                              ctypes.byref(text), ctypes.byref(bytes_), None)
        self.lib.dra_template_destroy(made)
        if status:
            return None
        found = ctypes.string_at(text, bytes_.value).decode()
        self.free(text)
        return found


def compare(path, count, seed):
    library, r, wrong = Library(path), random.Random(seed), 0
    for _ in range(count):
        template = "{{ " + draw(r, 3) + " }}"
        expected, found = render(template, VALUES).get("expected"), library.render(template, VALUES)
        if expected != found:
            wrong += 1
            print("%s\n  Jinja %r\n  dra   %r" % (template, expected, found))
    print("templates: %d random expressions, %d differ" % (count, wrong))
    return 1 if wrong else 0


def write_fixture():
    path = os.path.join(os.path.dirname(__file__), "..", "data", "chat-templates.json")
    templates, variables, cases = [], [], []
    for name, template, given in rows():
        if template not in templates:
            templates.append(template)
        if given not in variables:
            variables.append(given)
        cases.append(dict(name=name, template=templates.index(template),
                          variables=variables.index(given), **render(template, given)))
    with open(path, "w", encoding="utf-8") as out:
        json.dump({"made_by": "tests/parity/templates.py --fixture, jinja2 " + jinja2.__version__,
                   "templates": templates, "variables": variables, "cases": cases}, out,
                  ensure_ascii=False, indent=0)
        out.write("\n")
    return 0


def main():
    warnings.simplefilter("ignore", SyntaxWarning)
    parser = argparse.ArgumentParser()
    parser.add_argument("library", nargs="?")
    parser.add_argument("--fixture", action="store_true")
    parser.add_argument("--random", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.fixture:
        return write_fixture()
    return compare(options.library, options.random, options.seed)


sys.exit(main())
