"""Answers of LLMs as tables: what they hold, and why they hold nothing."""

import json
from enum import StrEnum

import pytest
from pydantic import BaseModel, ConfigDict, RootModel

from awm.llm.errors import LLMError
from awm.llm.parsing import MalformedAnswer, parse_code, parse_json, parse_model

JSON = {
    "bare object": ('{"a": 1}', {"a": 1}),
    "bare array": ("[1, 2]", [1, 2]),
    "bare scalars": ('"x"', "x"),
    "bare number": (" -1.5e3\n", -1500.0),
    "bare null": ("null", None),
    "byte order mark": ('\ufeff{"a": 1}', {"a": 1}),
    "json fence": ('Here:\n```json\n{"a": 1}\n```\nDone.', {"a": 1}),
    "fence without a tag": ('```\n{"a": 1}\n```', {"a": 1}),
    "tilde fence": ('~~~json\n{"a": 1}\n~~~', {"a": 1}),
    "fence on the same line": ('```json {"a": 1}```', {"a": 1}),
    "fence that is never closed": ('```json\n{"a": 1}\n', {"a": 1}),
    "prose around": ('Sure! {"a": [1]} Hope it helps.', {"a": [1]}),
    "brackets in prose": ('See [the note] and {x}: {"a": 1}', {"a": 1}),
    "longest of several in prose": ('An item is {"n": 1}. The list: {"items": [{"n": 1}]}', {"items": [{"n": 1}]}),
    "fence before prose": ('{"long": "aaaaaaaaaaaaaaaaa"} is wrong, so:\n```json\n{"a": 1}\n```', {"a": 1}),
    "last fence": ('```json\n{"a": 1}\n```\nBetter:\n```json\n{"a": 2}\n```', {"a": 2}),
    "the fence that parses": ('```json\n{"a": ...}\n```\nso:\n~~~\n{"a": 1}\n~~~', {"a": 1}),
    "the fence that parses, first": ('```json\n{"a": 1}\n```\nor:\n```json\n{"a": ..., "b": 2}\n```', {"a": 1}),
    "trailing commas": ('{"a": [1, 2,], "b": {"c": 3,},}', {"a": [1, 2], "b": {"c": 3}}),
    "extra brace at the end": ('{"a": {"b": 1}}}', {"a": {"b": 1}}),
    "extra bracket in a fence": ('```json\n[{"a": 1}]]\n```', [{"a": 1}]),
    "python literal": (
        "{'a': None, 'b': [True, False], 'c': 'it\\'s \"x\"'}",
        {"a": None, "b": [True, False], "c": 'it\'s "x"'},
    ),
    "escaped single quote": ('{"a": "it\\\'s"}', {"a": "it's"}),
    "line comments": (
        '{\n  // first\n  "a": 1, # second\n  "u": "http://x/#y" // third\n}',
        {"a": 1, "u": "http://x/#y"},
    ),
    "block comment": ('{"a": /* one */ 1}', {"a": 1}),
    "double smart quotes": ("{\u201ca\u201d: \u201cb \u201cc\u201d d\u201d}", {"a": "b \u201cc\u201d d"}),
    "single smart quotes": ("{\u2018a\u2019: \u2018it\u2019s\u2019, \u2018b\u2019: 1}", {"a": "it\u2019s", "b": 1}),
    "smart quotes as data": ('{"a": "\u201cx\u201d, \u2018y\u2019"}', {"a": "\u201cx\u201d, \u2018y\u2019"}),
    "line breaks in a string": ('{"sql": "SELECT\n\t1;\n"}', {"sql": "SELECT\n\t1;\n"}),
    "fence in a string": ('{"a": "```sql\\nSELECT 1;\\n```"}', {"a": "```sql\nSELECT 1;\n```"}),
    "fence in a string in a fence": (
        '```json\n{"a": "use `x`:\n```sql\nSELECT 1;\n```\n", "b": 2}\n```',
        {"a": "use `x`:\n```sql\nSELECT 1;\n```\n", "b": 2},
    ),
    "JSON in a string": ('{"a": "{\\"b\\": [1}"}', {"a": '{"b": [1}'}),
    "closing brace in a string": ('{"a": "}"} and', {"a": "}"}),
    "escapes": ('{"a": "\\u00e9\\ud83d\\ude00\\n\\\\d\\/"}', {"a": "é😀\n\\d/"}),
    "raw non-ASCII": ('{"ключ": "日本\u2028x"}', {"ключ": "日本\u2028x"}),
    "key twice with one value": ('{"a": 1, "a": 1}', {"a": 1}),
    "large integer": ('{"a": 123456789012345678901234567890}', {"a": 123456789012345678901234567890}),
    "thinking": ('<think>Maybe {"a": 0}?</think>\n{"a": 1}', {"a": 1}),
    "thinking, other tag and case": ('<Thinking>\n```json\n{"a": 0}\n```\n</Thinking>```json\n{"a": 1}\n```', {"a": 1}),
    "thinking twice": ('<think>a</think>\n\n<think>{"b": 0}</think> {"a": 1}', {"a": 1}),
    "thinking behind prose": ('Let me see. <think>{"b": 0}</think> {"a": 1}', {"a": 1}),
    "thinking opened in the prompt": ('So {"a": 0} is wrong.\n</think>\n\n{"a": 1}', {"a": 1}),
    "broken JSON in thinking": ('<think>{"a": [</think>{"a": 1}', {"a": 1}),
    "thinking tags in a string": ('{"a": "<think>x"}', {"a": "<think>x"}),
    "closing tag in a string": ('{"a": "x </think> y"}', {"a": "x </think> y"}),
    "one object twice": ('{"a": 1}\n{"a": 1}', {"a": 1}),
}


@pytest.mark.parametrize(("text", "expected"), JSON.values(), ids=JSON.keys())
def test_json(text, expected):
    assert parse_json(text) == expected


NOT_JSON = {
    "nothing": ("", "there is no answer: the text is empty", 1, 1),
    "blank": (" \n\ufeff", "there is no answer: the text is empty", 1, 1),
    "prose": ("I can't do that.", "there is no JSON", 1, 1),
    "number in prose": ("42 is the answer", "there is no JSON object or array", 1, 1),
    "unclosed thinking": ('<think>so {"a": 1}', "never left its thinking block", 1, 19),
    "nothing behind thinking": ("<think>x</think>\n", "nothing follows the thinking block", 1, 17),
    "cut off in an array": (
        '{"a": [1, {"b": 2},',
        "cut off: the text ends where the ']' of the array that opens in line 1",
        1,
        20,
    ),
    "cut off in a string": ('[\n"a', "cut off: the text ends inside the string that opens in line 2", 2, 3),
    "cut off behind a key": ('[{"a": 1}, {"b"', "cut off: the text ends where ':' is expected", 1, 16),
    "cut off in a literal": ("[tru", "expected a JSON value, found 'tru'", 1, 2),
    "cut off behind a whole element": ('[{"a": 1}', "cut off", 1, 10),
    "cut off in the last fence": ('```json\n{"a": 1}\n```\nNow:\n```json\n{"a": 1, "b', "cut off", 6, 12),
    "fence closed too early": (
        '```json\n{"a": {"b": 1}\n```',
        "expected ',' or the '}' of the object that opens in line 2",
        3,
        1,
    ),
    "closing bracket too many": ('{"a": {"b": 1}}, "c": 2}', "closed too early", 1, 16),
    "closing bracket too many, array": ('{"a": [1]], "c": 2}', "expected ',' or the '}'", 1, 10),
    "one object a line": ('{"a": 1}\n{"a": 2}', "several JSON values follow each other", 2, 1),
    "one object a line in a fence": ('```json\n{"a": 1}\n{"a": 2}\n```', "several JSON values follow each other", 3, 1),
    "elements without an array": ('{"a": 1}, {"a": 2}', "several JSON values follow each other", 1, 11),
    "last of two in prose broken": ('Draft {"a": 1}, final {"a": 2, oops}', "expected a key in double quotes", 1, 32),
    "never a part of a broken value": ('{"items": [{"a": 1}, {"a": 2}] "b": 3}', "expected ','", 1, 32),
    "missing comma": ('{"a": 1 "b": 2}', "expected ','", 1, 9),
    "two commas": ("[1,, 2]", "expected a JSON value, found ','", 1, 4),
    "unquoted key": ("{a: 1}", "expected a key in double quotes", 1, 2),
    "unescaped quote": ('{"a": "say "x" now"}', "expected ','", 1, 13),
    "ellipsis": ('{"a": [1, ...]}', "expected a JSON value, found '.'", 1, 11),
    "unknown escape": ('{"re": "\\d+"}', "the escape \\d is not JSON", 1, 9),
    "NaN": ('{"a": NaN}', "NaN is not a JSON number", 1, 7),
    "bare NaN": ("NaN", "NaN is not a JSON number", 1, 1),
    "infinity": ("[-Infinity]", "-Infinity is not a JSON number", 1, 2),
    "overflow": ("[1e999]", "a number is too large", 1, 2),
    "too many digits": (f"[{'9' * 5000}]", "too many digits", 1, 2),
    "leading zero": ("[1, 01]", "expected a JSON value", 1, 5),
    "half a surrogate pair": ('["\\ud83d"]', "half of a surrogate pair", 1, 3),
    "key twice": ('{"a": 1, "a": 2}', "the key 'a' is given twice", 1, 10),
    "nested too deep": ("[" * 5000 + "]" * 5000, "nested more than 100 deep", 1, 102),
}


@pytest.mark.parametrize(("text", "what", "line", "column"), NOT_JSON.values(), ids=NOT_JSON.keys())
def test_no_json(text, what, line, column):
    with pytest.raises(MalformedAnswer) as caught:
        parse_json(text)
    error = caught.value
    assert what in str(error)
    assert (error.line, error.column) == (line, column)
    assert error.excerpt.replace(" <<HERE>> ", "") in text
    assert len(error.excerpt) <= 200
    assert isinstance(error, ValueError) and isinstance(error, LLMError)


def test_every_beginning_of_a_json_answer_is_refused():
    answer = json.dumps({"tools": [{"name": "a", "n": -1.5, "ok": True, "none": None}, {"name": 'é\n"q"'}]}, indent=1)
    for end in range(1, len(answer)):
        for text in (answer[:end], f"```json\n{answer[:end]}", f"Here it is: {answer[:end]}"):
            with pytest.raises(MalformedAnswer):
                parse_json(text)


def test_json_that_python_writes_is_read_back():
    value = {
        "text": 'a "b" \\ \n\t\u2028 ´`´ </x> // # /* {[',
        "n": [0, -0.0, 1e-7, 2**64, None, True],
        "": {},
        "e": [],
    }
    for written in (
        json.dumps(value),
        json.dumps(value, ensure_ascii=False, indent=2),
        f"x:\n```json\n{json.dumps(value)}\n```",
    ):
        assert parse_json(written) == value
    assert parse_json(str({"a": ["it's", 'say "x"', None, True, 1.5]})) == {"a": ["it's", 'say "x"', None, True, 1.5]}


class Kind(StrEnum):
    READ = "read"
    WRITE = "write"


class Tool(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: Kind
    number: int = 1


class Tools(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    tools: tuple[Tool, ...]


TOOL = '{"tools": [{"name": "a", "kind": "read"}]}'
MODELS = {
    "plain": TOOL,
    "the fence that fits": f'```json\n{TOOL}\n```\nCalled like this:\n```json\n{{"name": "a", "arguments": {{}}}}\n```',
    "the value in prose that fits": f'{TOOL} is called as {{"tool": "a", "arguments": {{"some": "{"long " * 20}"}}}}',
    "thinking": f'<think>{{"tools": []}}</think>{TOOL}',
}


@pytest.mark.parametrize("text", MODELS.values(), ids=MODELS.keys())
def test_model(text):
    assert parse_model(text, Tools) == Tools(tools=(Tool(name="a", kind=Kind.READ),))


def test_model_of_an_array():
    assert parse_model("[1, 2]", RootModel[tuple[int, ...]]).root == (1, 2)


def test_model_from_one_object_a_line_is_refused():
    with pytest.raises(MalformedAnswer, match="several JSON values"):
        parse_model('{"name": "a", "kind": "read"}\n{"name": "b", "kind": "read"}', Tool)


def test_what_does_not_fit_is_said_in_short_lines():
    text = '{"tools": [{"kind": "read"}, {"name": 5, "kind": "both", "extra": [1]}], "x": 1}'
    with pytest.raises(MalformedAnswer) as caught:
        parse_model(text, Tools)
    assert str(caught.value).splitlines() == [
        "the JSON does not fit Tools (5 problems):",
        "tools.0.name: Field required",
        "tools.1.name: Input should be a valid string (got 5)",
        "tools.1.kind: Input should be 'read' or 'write' (got \"both\")",
        "tools.1.extra: Extra inputs are not permitted",
        "x: Extra inputs are not permitted (got 1)",
    ]


def test_at_most_ten_problems_are_listed():
    text = json.dumps({"tools": [{"name": "x" * 500, "kind": "k" * 500}] * 25})
    with pytest.raises(MalformedAnswer) as caught:
        parse_model(text, Tools)
    lines = str(caught.value).splitlines()
    assert len(lines) == 12
    assert lines[-1] == "and 15 more"
    assert all(len(line) < 200 for line in lines)


def test_an_array_instead_of_an_object():
    with pytest.raises(MalformedAnswer, match=r"\(top level\): Input should be"):
        parse_model("[1]", Tools)


PYTHON = {
    "fence": ("Here:\n```python\nx = 1\n```\nDone.", "x = 1\n"),
    "short tag": ("```py\nx = 1\n```", "x = 1\n"),
    "tag in capitals with a title": ("```Python title=tools.py\nx = 1\n```", "x = 1\n"),
    "tilde fence": ("~~~python\nx = 1\n~~~", "x = 1\n"),
    "long fence": ('````python\nx = """\n```\n"""\n````', 'x = """\n```\n"""\n'),
    "closing fence behind the code": ("```python\nx = 1```", "x = 1\n"),
    "no tag": ("```\nimport re\n```", "import re\n"),
    "tag before no tag": ("```\nimport re\nimport json\n```\n```python\nx = 1\n```", "x = 1\n"),
    "indentation stays": ("```python\n\n    x = 1\n      \n```", "    x = 1\n"),
    "longest that compiles": (
        "```python\ndef f():\n    return 1\n```\nUse it:\n```python\nf()\n```",
        "def f():\n    return 1\n",
    ),
    "one that compiles before a longer one": (
        "```python\ndef f(:\n    return 1000\n```\n```python\nx = 1\n```",
        "x = 1\n",
    ),
    "last among equals": ("```python\nx = 1\n```\n```python\nx = 2\n```", "x = 2\n"),
    "code that does not compile": ("```python\ndef f(:\n```", "def f(:\n"),
    "other languages around": ("```sql\nSELECT 1;\n```\n```python\nx = 1\n```\n```json\n{}\n```", "x = 1\n"),
    "fence in a docstring": (
        '```python\ndef f():\n    """Like\n\n```\nf()\n```\n    """\n    return 1\n```\nBye ```x``` now.',
        'def f():\n    """Like\n\n```\nf()\n```\n    """\n    return 1\n',
    ),
    "tagged fence in a string": (
        '```python\nS = """\n```json\n{}\n```\n"""\n```\n',
        'S = """\n```json\n{}\n```\n"""\n',
    ),
    "fence in a docstring, code that does not compile": (
        '```python\ndef f(:\n    """\n```\n    """\n```\nBye',
        'def f(:\n    """\n```\n    """\n',
    ),
    "invalid escape": ('```python\nP = "\\d"\n```', 'P = "\\d"\n'),
    "no fence": ("\n\ndef f():\n    return 1\n\n", "def f():\n    return 1\n"),
    "no fence, with a docstring": ('"""Tools."""\n\nimport re\n', '"""Tools."""\n\nimport re\n'),
    "no fence, behind prose": ("Here is the module:\n\nimport re\nx = 1\n", "import re\nx = 1\n"),
    "no fence, does not compile": ("import re\ndef f(:\n", "import re\ndef f(:\n"),
    "thinking": ("<think>\n```python\ndraft = 'a long, long draft'\n```\n</think>\n```python\nx = 1\n```", "x = 1\n"),
    "thinking tags in the code": ("Here:\n```python\nx = '<think></think>'\n```", "x = '<think></think>'\n"),
    "windows line ends": ("```python\r\nx = 1\r\ny = 2\r\n```\r\n", "x = 1\ny = 2\n"),
    "whole fence beside one that is cut off": ("```python\nx = 1\n```\nUse:\n```python\nf(", "x = 1\n"),
}


@pytest.mark.parametrize(("text", "expected"), PYTHON.values(), ids=PYTHON.keys())
def test_python(text, expected):
    assert parse_code(text, "python") == expected


SQL = {
    "fence": ("```sql\nCREATE TABLE a (x);\n```", "CREATE TABLE a (x);\n"),
    "sqlite fence": ("```sqlite\nCREATE TABLE a (x);\n```", "CREATE TABLE a (x);\n"),
    "no tag": ("```\nINSERT INTO a VALUES (1);\n```", "INSERT INTO a VALUES (1);\n"),
    "fence in a string": (
        "```sql\nINSERT INTO a VALUES ('x\n```\nit''s');\n-- it's\n```\nBye",
        "INSERT INTO a VALUES ('x\n```\nit''s');\n-- it's\n",
    ),
    "trigger": (
        "```sql\nCREATE TRIGGER t AFTER INSERT ON a BEGIN\n  SELECT 1;\nEND;\n```",
        "CREATE TRIGGER t AFTER INSERT ON a BEGIN\n  SELECT 1;\nEND;\n",
    ),
    "no semicolon at the end": ("```sql\nCREATE TABLE a (x)\n```", "CREATE TABLE a (x)\n"),
    "no fence": ("-- Tables\ncreate table a (x);\n", "-- Tables\ncreate table a (x);\n"),
    "no fence, behind prose": ("The tables:\n\nCREATE TABLE a (x);\n", "CREATE TABLE a (x);\n"),
}


@pytest.mark.parametrize(("text", "expected"), SQL.values(), ids=SQL.keys())
def test_sql(text, expected):
    assert parse_code(text, "sql") == expected


NO_CODE = {
    "nothing": ("", "python", "the text is empty"),
    "one word": ("Sorry", "python", "there is no python code"),
    "prose": ("I would import the module and define a class for it.", "python", "there is no python code"),
    "prose like code": ("from the user's point of view, it is fine.", "python", "there is no python code"),
    "other language": ('```json\n{"a": 1}\n```', "python", "there is no python code"),
    "empty fence": ("```python\n\n```", "python", "there is no python code"),
    "prose in a fence": ("```\nnothing here\n```", "python", "there is no python code"),
    "cut off": ("Here:\n```python\ndef f():\n    return 1", "python", "cut off: its fence is never closed"),
    "cut off behind other code": ("```json\n{}\n```\n```python\nx = 1\n", "python", "cut off"),
    "in thinking": ("<think>\n```python\nx = 1\n```\n", "python", "never left its thinking block"),
    "SQL in words": ("Create a table for each entity; then select one.", "sql", "there is no sql code"),
    "python instead of SQL": ("```python\nx = 1\n```", "sql", "there is no sql code"),
}


@pytest.mark.parametrize(("text", "language", "what"), NO_CODE.values(), ids=NO_CODE.keys())
def test_no_code(text, language, what):
    with pytest.raises(MalformedAnswer, match=what):
        parse_code(text, language)
