"""Shapes of the JSON answers that the steps ask for.

Kept apart from `awm.models`: an answer is what an LLM writes, an artifact is what is stored once the answer has passed.
Field descriptions are sent to servers that support structured output.
"""

# ruff: noqa: D101 - a docstring would become part of the request, and change every key

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from awm.models import TaskKind

__all__ = [
    "ClassAnswer",
    "ParameterAnswer",
    "ScenarioAnswer",
    "ScenariosAnswer",
    "TaskAnswer",
    "TasksAnswer",
    "ToolAnswer",
    "ToolsetAnswer",
]


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)


class ScenarioAnswer(_Answer):
    name: str
    description: str


class ScenariosAnswer(_Answer):
    scenarios: tuple[ScenarioAnswer, ...]
    remove: tuple[str, ...] = ()


class ClassAnswer(_Answer):
    creates: bool
    reads: bool
    updates: bool
    deletes: bool
    stateful: bool
    category: str
    reason: str


class TaskAnswer(_Answer):
    number: int
    kind: TaskKind
    text: str


class TasksAnswer(_Answer):
    tasks: tuple[TaskAnswer, ...]
    remove: tuple[int, ...] = ()


class ParameterAnswer(_Answer):
    name: str
    description: str
    json_schema: dict[str, Any] = Field(alias="schema", description="JSON Schema of the value")
    required: bool
    column: str | None = Field(default=None, description="table.column that valid values come from")
    example: Any = Field(default=None, description="a valid value, when there is no column")

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=False, populate_by_name=True)


class ToolAnswer(_Answer):
    name: str
    description: str
    read_only: bool
    parameters: tuple[ParameterAnswer, ...]
    result: str


class ToolsetAnswer(_Answer):
    tools: tuple[ToolAnswer, ...]
    remove: tuple[str, ...] = ()
