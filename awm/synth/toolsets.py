"""Toolsets: the specification of a scenario's tools, before there is code for them."""

from __future__ import annotations

import keyword
import re
import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError

from awm.config import ToolsetsConfig
from awm.env.clock import FrozenClock
from awm.env.database import build, open_database
from awm.env.lint_signature import RESERVED_NAMES
from awm.env.sql import quote_identifier, split_statements
from awm.llm.parsing import parse_model
from awm.models import Parameter, Toolset, ToolSpec
from awm.synth.answers import ParameterAnswer, ToolAnswer, ToolsetAnswer
from awm.synth.design import Design
from awm.synth.loop.step import Item, Problem

__all__ = ["ToolsetsStep"]

MAX_NAME = 64
_SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*\Z")
_CALLERS = {"current_user_id", "acting_user_id", "caller_id", "signed_in_user_id", "logged_in_user_id"}


class ToolsetsStep:
    """Asks for the toolset of one scenario. The answer's parts are the tools."""

    name = "toolsets"
    prompt = "toolsets"
    answer_model = ToolsetAnswer

    def __init__(self, config: ToolsetsConfig, clock: str) -> None:
        self.config = config
        self.clock = clock

    def variables(self, item: Item) -> dict[str, Any]:
        """Values for the prompt file."""
        design: Design = item.subject
        return {**design.variables(), **self.config.model_dump()}

    def read(self, content: str, item: Item, previous: ToolsetAnswer | None) -> ToolsetAnswer:
        """The tools of the answer; a repair replaces those of the same name."""
        answer = parse_model(content, ToolsetAnswer)
        if previous is None:
            return answer
        merged = {tool.name: tool for tool in (*previous.tools, *answer.tools)}
        return ToolsetAnswer(tools=tuple(tool for name, tool in merged.items() if name not in answer.remove))

    def check(self, answer: ToolsetAnswer, item: Item) -> list[Problem]:
        """Names, parameters, columns and examples, against the schema of the database."""
        columns = self._columns(item.subject.schema)
        problems = self._size(answer.tools)
        names = Counter(tool.name for tool in answer.tools)
        problems += [
            Problem("duplicate", f"there are {n} tools named {name}", name) for name, n in names.items() if n > 1
        ]
        for tool in answer.tools:
            problems += _tool_problems(tool, columns)
        return problems

    def excerpt(self, answer: ToolsetAnswer, parts: Sequence[str]) -> str:
        """The named tools as JSON; only the names of all tools when none is named."""
        kept = tuple(tool for tool in answer.tools if tool.name in parts)
        if not kept:
            return "Tools: " + ", ".join(tool.name for tool in answer.tools)
        return ToolsetAnswer(tools=kept).model_dump_json(by_alias=True, exclude_defaults=True)

    def artifact(self, answer: ToolsetAnswer, item: Item) -> Toolset:
        """The specification in the order of the answer."""
        return Toolset(slug=item.id, tools=tuple(_spec(tool) for tool in answer.tools))

    def _columns(self, schema: str) -> dict[str, set[str]]:
        """Column names by table."""
        connection = open_database(build(split_statements(schema), FrozenClock(self.clock)))
        try:
            return _columns(connection)
        finally:
            connection.close()

    def _size(self, tools: Sequence[ToolAnswer]) -> list[Problem]:
        problems = []
        if not self.config.min_tools <= len(tools) <= self.config.max_tools:
            wanted = f"{self.config.min_tools} to {self.config.max_tools}"
            problems.append(Problem("size", f"there are {len(tools)} tools; {wanted} are wanted"))
        for read_only, kind in ((True, "reads"), (False, "changes")):
            if not any(tool.read_only is read_only for tool in tools):
                problems.append(Problem("size", f"no tool only {kind} data" if read_only else f"no tool {kind} data"))
        return problems


def _columns(connection: sqlite3.Connection) -> dict[str, set[str]]:
    tables = [row["name"] for row in connection.execute("PRAGMA table_list") if row["schema"] == "main"]
    return {
        table: {row["name"] for row in connection.execute(f"PRAGMA table_xinfo({quote_identifier(table)})")}
        for table in tables
        if not table.startswith("sqlite_")
    }


def _tool_problems(tool: ToolAnswer, columns: dict[str, set[str]]) -> list[Problem]:
    problems = [Problem("naming", message, tool.name) for message in _name_problems(tool.name)]
    if tool.name in RESERVED_NAMES:
        problems.append(Problem("reserved", f"the name {tool.name} is reserved", tool.name))
    if len(tool.description.split()) < 3:
        problems.append(Problem("description", "needs a description that an agent can act on", tool.name))
    parameters = Counter(parameter.name for parameter in tool.parameters)
    problems += [
        Problem("duplicate", f"parameter {name} stands there {n} times", tool.name)
        for name, n in parameters.items()
        if n > 1
    ]
    for parameter in tool.parameters:
        problems += [
            Problem(reason, f"parameter {parameter.name}: {message}", tool.name)
            for reason, message in _parameter_problems(parameter, columns)
        ]
    return problems


def _name_problems(name: str) -> list[str]:
    problems = []
    if not _SNAKE.match(name):
        problems.append(f"{name!r} is not a snake_case name")
    if keyword.iskeyword(name):
        problems.append(f"{name!r} is a Python keyword")
    if len(name) > MAX_NAME:
        problems.append(f"{name!r} has more than {MAX_NAME} characters")
    return problems


def _parameter_problems(parameter: ParameterAnswer, columns: dict[str, set[str]]) -> list[tuple[str, str]]:
    problems = [("naming", message) for message in _name_problems(parameter.name)]
    if parameter.name in _CALLERS or parameter.name == "db":
        problems.append(("caller", "tools act for the signed-in user; leave this parameter out"))
    if not parameter.description.strip():
        problems.append(("description", "needs a description"))
    if parameter.column is not None:
        table, _, column = parameter.column.partition(".")
        if column not in columns.get(table, ()):
            problems.append(("column", f'"column" {parameter.column!r} is not a table.column of the schema'))
    return problems + _schema_problems(parameter)


def _schema_problems(parameter: ParameterAnswer) -> list[tuple[str, str]]:
    schema = parameter.json_schema
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return [("schema", f'"schema" is not a JSON Schema: {error.message}')]
    if not isinstance(schema.get("type"), str):
        return [("schema", '"schema" needs a single "type"')]
    if schema["type"] == "array" and "type" not in schema.get("items", {}):
        return [("schema", '"schema" of an array needs "items" with a "type"')]
    if parameter.column is not None:
        return []
    if parameter.example is None:
        return [("example", 'needs an "example" (or a "column")')]
    try:
        Draft202012Validator(schema).validate(parameter.example)
    except ValidationError as error:
        return [("example", f"the example does not fit the schema: {error.message}")]
    return []


def _spec(tool: ToolAnswer) -> ToolSpec:
    return ToolSpec(
        name=tool.name,
        description=tool.description,
        read_only=tool.read_only,
        parameters=tuple(Parameter(**parameter.model_dump()) for parameter in tool.parameters),
        result=tool.result,
    )
