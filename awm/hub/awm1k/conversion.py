"""Published things in our words: tools as specifications, tasks with a kind."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from typing import Any

from awm.env.results import ToolSignature
from awm.models import Parameter, TaskKind, Toolset, ToolSpec

__all__ = ["guessed_kind", "read_only_tools", "toolset"]

_READING = re.compile(
    r"\s*(?:please\s+)?(?:browse|check|compare|count|display|download|export|fetch|filter|find|generate|get|give|identify"
    r"|list|look\s+up|preview|read|report|retrieve|return|review|search|show|summari[sz]e|tell|view|what|which|who)\b",
    re.IGNORECASE,
)
_WRITING = re.compile(
    r"\b(?:accept|add|apply|approve|assign|book|cancel|change|create|delete|enable|enrol|mark|move|order|pay|post"
    r"|purchase|remove|request|save|schedule|send|set|submit|subscribe|update|upload)\b",
    re.IGNORECASE,
)


def guessed_kind(text: str) -> TaskKind:
    """Guess what a task asks of the environment, from its first verb and the others: nobody published it."""
    if _READING.match(text) and not _WRITING.search(text):
        return TaskKind.READ
    return TaskKind.WRITE


def read_only_tools(tools: Sequence[ToolSignature], source: str) -> set[str]:
    """Return the names of the tools that answer GET: by the method's meaning they change nothing."""
    getting = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                called = decorator.func if isinstance(decorator, ast.Call) else decorator
                if isinstance(called, ast.Attribute) and called.attr == "get":
                    getting.add(node.decorator_list[0].lineno)
    return {tool.name for tool in tools if tool.line in getting}


def toolset(slug: str, tools: Sequence[ToolSignature], source: str) -> Toolset:
    """Return the tools as a specification."""
    reading = read_only_tools(tools, source)
    return Toolset(slug=slug, tools=tuple(_specification(tool, tool.name in reading) for tool in tools))


def _specification(tool: ToolSignature, read_only: bool) -> ToolSpec:
    required = tool.parameters.get("required", [])
    definitions = tool.parameters.get("$defs", {})
    return ToolSpec(
        name=tool.name,
        description=tool.description,
        read_only=read_only,
        parameters=tuple(
            _parameter(name, schema, definitions, name in required)
            for name, schema in tool.parameters.get("properties", {}).items()
        ),
        result=_in_words(tool.result),
    )


def _parameter(name: str, schema: dict[str, Any], definitions: dict[str, Any], required: bool) -> Parameter:
    described = {key: value for key, value in schema.items() if key not in ("description", "example", "examples")}
    if '"$ref"' in json.dumps(described):
        described["$defs"] = definitions
    examples = schema.get("examples") or [schema.get("example")]
    return Parameter(
        name=name,
        description=schema.get("description", ""),
        json_schema=described,
        required=required,
        example=examples[0] if isinstance(examples, list) else None,
    )


def _in_words(schema: dict[str, Any]) -> str:
    """Say what a result holds."""
    definitions = schema.get("$defs", {})
    if "$ref" in schema:
        schema = definitions.get(schema["$ref"].rpartition("/")[2], {})
    if schema.get("type") == "array":
        return f"a list of {_in_words({**schema.get('items', {}), '$defs': definitions})}"
    fields = schema.get("properties")
    return f"an object with {', '.join(fields)}" if fields else str(schema.get("type", "any JSON"))
