from __future__ import annotations

import json
from typing import Any

import pytest

from awm.config import ToolsetsConfig
from awm.models import Toolset
from awm.synth.design import Design
from awm.synth.loop.step import Item, Problem
from awm.synth.tools import tool_json
from awm.synth.toolsets import ToolsetsStep
from synth.library_environment import CLOCK, SCENARIO, SCHEMA, TASKS, TOOLSET

STEP = ToolsetsStep(ToolsetsConfig(min_tools=3, max_tools=4), CLOCK)
ITEM = Item(SCENARIO.slug, Design(SCENARIO, TASKS, SCHEMA), [])


def answer() -> dict[str, Any]:
    """The good toolset as an LLM would answer it."""
    tools: list[dict[str, Any]] = json.loads(json.dumps([tool_json(tool) for tool in TOOLSET.tools]))
    return {"tools": tools}


def check(value: dict[str, Any]) -> list[Problem]:
    return STEP.check(STEP.read(json.dumps(value), ITEM, None), ITEM)


def test_a_good_toolset_passes_and_is_stored_as_written() -> None:
    assert check(answer()) == []
    assert STEP.artifact(STEP.read(json.dumps(answer()), ITEM, None), ITEM) == TOOLSET


@pytest.mark.parametrize(
    ("change", "reason", "said"),
    [
        ({"name": "renewLoan"}, "naming", "not a snake_case name"),
        ({"name": "list_tools"}, "reserved", "list_tools is reserved"),
        ({"name": "verify"}, "reserved", "verify is reserved"),
        ({"name": "r" * 65}, "naming", "more than 64"),
        ({"name": "list_loans"}, "duplicate", "2 tools named list_loans"),
        ({"description": "Renews."}, "description", "needs a description"),
    ],
)
def test_a_tool_that_cannot_be_is_named(change: dict[str, Any], reason: str, said: str) -> None:
    value = answer()
    value["tools"][1] |= change
    problems = check(value)

    assert reason in {problem.reason for problem in problems}
    assert said in " ".join(problem.message for problem in problems)


@pytest.mark.parametrize(
    ("tool", "change", "reason", "said"),
    [
        (1, {"column": "loans.number"}, "column", "not a table.column"),
        (1, {"column": "loan.id"}, "column", "not a table.column"),
        (1, {"column": "loans"}, "column", "not a table.column"),
        (1, {"name": "class"}, "naming", "Python keyword"),
        (1, {"name": "current_user_id"}, "caller", "signed-in user"),
        (1, {"name": "db"}, "caller", "leave this parameter out"),
        (1, {"description": ""}, "description", "needs a description"),
        (1, {"schema": {"type": "int"}}, "schema", "not a JSON Schema"),
        (1, {"schema": {"type": ["integer", "null"]}}, "schema", 'single "type"'),
        (1, {"schema": {"type": "array"}}, "schema", '"items"'),
        (0, {"example": None}, "example", 'needs an "example"'),
        (0, {"example": "lost"}, "example", "does not fit"),
    ],
)
def test_a_parameter_that_cannot_be_tried_is_named(tool: int, change: dict[str, Any], reason: str, said: str) -> None:
    value = answer()
    value["tools"][tool]["parameters"][0] |= change
    problems = check(value)

    assert reason in {problem.reason for problem in problems}
    assert said in " ".join(problem.message for problem in problems)
    assert {problem.part for problem in problems} == {value["tools"][tool]["name"]}


def test_a_toolset_must_both_read_and_write_and_have_its_size() -> None:
    value = answer()
    for tool in value["tools"]:
        tool["read_only"] = True
    value["tools"].pop()

    assert [problem.message for problem in check(value)] == [
        "there are 2 tools; 3 to 4 are wanted",
        "no tool changes data",
    ]


def test_a_repair_replaces_adds_and_removes_tools_by_name() -> None:
    value = answer()
    previous = STEP.read(json.dumps(value), ITEM, None)
    changed = {**value["tools"][2], "description": "Return one of the open loans."}
    added = {**value["tools"][0], "name": "search_books"}

    repaired = STEP.read(json.dumps({"tools": [changed, added], "remove": ["renew_loan"]}), ITEM, previous)

    stored = STEP.artifact(repaired, ITEM)
    assert isinstance(stored, Toolset)
    assert [tool.name for tool in stored.tools] == ["list_loans", "return_loan", "search_books"]
    assert stored.tools[1].description == "Return one of the open loans."


def test_an_excerpt_shows_only_the_named_tools() -> None:
    previous = STEP.read(json.dumps(answer()), ITEM, None)

    shown = json.loads(STEP.excerpt(previous, ["renew_loan"]))
    assert [tool["name"] for tool in shown["tools"]] == ["renew_loan"]
    assert STEP.excerpt(previous, []) == "Tools: list_loans, renew_loan, return_loan"
