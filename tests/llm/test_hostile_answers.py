"""Answers that no model means, but that some model will give: each is refused, and soon."""

from __future__ import annotations

from contextlib import suppress

import pytest

from awm.llm.parsing import MalformedAnswer, parse_code, parse_json

PYTHON = {
    "minus signs": "x = " + "-" * 100_000 + "1",
    "attributes": "x = a" + ".a" * 20_000,
    "additions": "x = 1" + "+1" * 20_000,
    "brackets": "x = " + "(" * 5_000,
}


@pytest.mark.parametrize("code", PYTHON.values(), ids=PYTHON.keys())
def test_code_that_python_can_not_read_is_left_to_the_check(code):
    assert parse_code(f"```python\n{code}\n```\n", "python") == code + "\n"
    assert parse_code(f"import a\n{code}\n", "python") == f"import a\n{code}\n"


@pytest.mark.parametrize("character", ["\x00", "\ud800"])
@pytest.mark.parametrize(("language", "code"), [("python", "x = 1  # "), ("sql", "CREATE TABLE a(x); -- ")])
def test_characters_that_no_code_may_hold_are_refused_where_they_stand(character, language, code):
    with pytest.raises(MalformedAnswer, match="which no code may") as caught:
        parse_code(f"Here:\n```{language}\n{code}{character}\n```\n```{language}\n```\n", language)
    assert (caught.value.line, caught.value.column) == (3, len(code) + 1)


# Each of these took minutes or hours once; at these sizes a second reading of the rest for each part still would.
MANY = {
    "unclosed statements": "```sql\nCREATE TABLE a(x\n```\n" * 40_000,
    "unclosed functions": "```python\ndef f(\n```\n" * 40_000,
    "empty blocks": "```\n```\n" * 150_000,
    "small blocks": "```\nx\n```\n" * 100_000,
    "tagged fences": "```sql\n" * 150_000,
    "blank lines": "```sql\n" + "\n" * 1_500_000 + "SELECT 1;\n```",
    "selections": "SELECT \n" * 150_000,
    "a fence line that is none": "```" + " " * 500_000 + "`\n" + "~" * 500_000 + "`",
    "strings": "```python\n'''\n```\n" * 60_000,
}


@pytest.mark.parametrize("language", ["python", "sql"])
@pytest.mark.parametrize("text", MANY.values(), ids=MANY.keys())
def test_many_fences_end(text, language):
    with suppress(MalformedAnswer):
        assert parse_code(text, language)


BRACKETS = {
    "fences": "```json\n" * 160_000,
    "fences with an opener": "```json\n{\n" * 130_000,
    "fences with broken values": "```json\n[1 2]\n```\n" * 80_000,
    "fences with strings": '```json\n{"a" 1}\n```\n' * 70_000,
    "nested": ("[" * 90 + "x\n") * 14_000,
    "openers": "[ " * 600_000,
    "comments that never end": "[/*" * 400_000,
    "comments that end late": "[/*" * 400_000 + "*/ x",
    "comments that end, and one that does not": "[/*" * 1000 + "*/ /* " + "y" * 1_500_000,
    "typographic quotes": "[“”" * 400_000,
    "thinking": "<think>" * 200_000,
    "space": "[" + " " * 1_000_000 + "x" + "[ " * 200_000,
}


@pytest.mark.parametrize("text", BRACKETS.values(), ids=BRACKETS.keys())
def test_many_brackets_end(text):
    with pytest.raises(MalformedAnswer):
        parse_json(text)


def test_an_answer_that_is_too_long_is_refused_unread():
    with pytest.raises(MalformedAnswer, match="more than 2000000 characters"):
        parse_json("[" + "1," * 1_000_000 + "1]")
    with pytest.raises(MalformedAnswer, match="more than 2000000 characters"):
        parse_code("x = 1\n" * 400_000, "python")


def test_brackets_in_long_prose_are_no_reason_to_refuse():
    assert parse_json("see [note] and {x}; " * 20_000 + '{"a": 1}') == {"a": 1}


def test_the_end_of_code_with_many_fences_in_its_strings_is_found():
    code = 'S = """\n' + "```\ntext\n```\n" * 200 + '"""\n'
    assert parse_code(f"```python\n{code}```\nThat is it.\n", "python") == code
