"""Tools: the Python module that implements a toolset, loaded and tried in the sandbox before it is kept."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from awm.config import SandboxConfig, ToolsConfig
from awm.env.errors import EnvironmentFault, ModuleError
from awm.env.host import Sandbox
from awm.env.lint import ALLOWED_MODULES
from awm.env.results import ToolSignature
from awm.llm.parsing import MalformedAnswer, parse_code
from awm.models import Artifact, Parameter, Scenario, Toolset, ToolSpec
from awm.store import pretty_json
from awm.synth.blocks import merge_python, outline, part_source
from awm.synth.loop.step import CheckFailure, Item, Problem
from awm.synth.trial import Trials, try_module

__all__ = ["Code", "Module", "ToolsStep", "ToolsSubject", "module_problems", "read_python", "tools_items"]

STANDARD_LIBRARY = tuple(sorted(name for name in ALLOWED_MODULES if not name.startswith(("awm", "pydantic"))))


class Code(Artifact):
    """The source of a Python module."""

    source: str


class Module(Code):
    """A tool module that was tried."""

    unreached: tuple[str, ...] = Field(description="Tools that never succeeded: no state that they accept was reached")


@dataclass(frozen=True)
class ToolsSubject:
    """What a tool module is written for."""

    scenario: Scenario
    schema: str
    toolset: Toolset
    snapshot: bytes
    clock: str
    content_hash: str


def read_python(content: str, previous: str | None) -> str:
    """The Python of an answer; a repair replaces the definitions of the same name.

    Source that doesn't parse is no answer to lay a repair over: CheckFailure, and the whole is asked for again.
    """
    source = parse_code(content, "python")
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise CheckFailure([_syntax_problem(error)]) from None
    try:
        return merge_python(previous, source) if previous is not None else source.strip() + "\n"
    except ValueError as error:
        raise MalformedAnswer(str(error)) from None


def _syntax_problem(error: Exception) -> Problem:
    if isinstance(error, SyntaxError):
        return Problem("syntax", f"line {error.lineno}: {error.msg}: {(error.text or '').strip()[:120]}")
    return Problem("syntax", str(error) or f"nested too deeply ({type(error).__name__})")


def module_problems(error: ModuleError, source: str) -> list[Problem]:
    """The problems of a module that can't be used, each with the definition that it stands in."""
    return [Problem(error.phase, message, _part_of(message, source)) for message in error.problems]


def _part_of(message: str, source: str) -> str | None:
    """Name of the top-level definition that holds the line which a message names."""
    found = re.match(r"line (\d+)", message)
    try:
        body = ast.parse(source).body if found else []
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and found:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first <= int(found.group(1)) <= (node.end_lineno or first):
                return node.name
    return None


class ToolsStep:
    """Asks for the tool module of one scenario. The answer is its source; its parts are the top-level definitions."""

    name = "tools"
    prompt = "tools"
    answer_model = None

    def __init__(self, config: ToolsConfig, sandbox: Sandbox) -> None:
        self.config = config
        self.sandbox = sandbox
        self._trials: dict[tuple[str, str], Trials] = {}

    def variables(self, item: Item) -> dict[str, Any]:
        """Values for the prompt file."""
        subject: ToolsSubject = item.subject
        tools = [tool_json(tool) for tool in subject.toolset.tools]
        return {
            "scenario": subject.scenario,
            "schema": subject.schema.strip(),
            "toolset": pretty_json(tools).strip(),
            "allowed_imports": STANDARD_LIBRARY,
        }

    def read(self, content: str, item: Item, previous: str | None) -> str:
        """The module of the answer."""
        return read_python(content, previous)

    def check(self, answer: str, item: Item) -> list[Problem]:
        """Load the module, hold it against the toolset, then try every tool."""
        subject: ToolsSubject = item.subject
        try:
            with self.sandbox.worker() as worker:
                signatures = worker.load(answer)
        except ModuleError as error:
            return module_problems(error, answer)
        except EnvironmentFault as fault:
            return [Problem("load", f"loading the module ended the process: {fault}")]
        if problems := signature_problems(subject.toolset, signatures):
            return problems
        trials = self._try(answer, subject)
        allowed = int(self.config.max_unreached * len(subject.toolset.tools))
        return trials.problems or (trials.unreached if len(trials.unreached) > allowed else [])

    def excerpt(self, answer: str, parts: Sequence[str]) -> str:
        """The named definitions, and the names of the others."""
        sources = [source for part in parts if (source := part_source(answer, part))]
        return "```python\n" + "\n\n".join([*sources, f"# the module's outline:\n{outline(answer)}"]) + "\n```"

    def artifact(self, answer: str, item: Item) -> Module:
        """The module as it was tried."""
        unreached = self._try(answer, item.subject).unreached
        return Module(source=answer, unreached=tuple(problem.part for problem in unreached if problem.part))

    def _try(self, source: str, subject: ToolsSubject) -> Trials:
        key = (subject.scenario.slug, source)
        if key not in self._trials:
            self._trials[key] = try_module(
                self.sandbox,
                source,
                subject.toolset,
                subject.snapshot,
                subject.clock,
                valid_calls=self.config.valid_calls,
                seed=self.config.seed,
            )
        return self._trials[key]


def tool_json(tool: ToolSpec) -> dict[str, Any]:
    """A tool as its request shows it: without what isn't there."""
    parameters = []
    for parameter in tool.parameters:
        entry: dict[str, Any] = {"name": parameter.name, "description": parameter.description}
        entry |= {"schema": parameter.json_schema, "required": parameter.required}
        entry |= {"column": parameter.column} if parameter.column else {"example": parameter.example}
        parameters.append(entry)
    return {
        "name": tool.name,
        "description": tool.description,
        "read_only": tool.read_only,
        "parameters": parameters,
        "result": tool.result,
    }


def signature_problems(toolset: Toolset, signatures: Sequence[ToolSignature]) -> list[Problem]:
    """Where the functions differ from the specification."""
    found = {signature.name: signature for signature in signatures}
    wanted = {tool.name: tool for tool in toolset.tools}
    problems = [Problem("missing", f"the function {name} is missing", name) for name in wanted if name not in found]
    problems += [
        Problem("extra", f"{name} is public but no tool of the toolset; start its name with an underscore", name)
        for name in found
        if name not in wanted
    ]
    for name, tool in wanted.items():
        if name in found:
            problems += [Problem("signature", message, name) for message in _differences(tool, found[name].parameters)]
    return problems


def _differences(tool: ToolSpec, schema: dict[str, Any]) -> list[str]:
    """Differences of one function's parameters from the specification."""
    properties: dict[str, Any] = schema.get("properties", {})
    required = set(schema.get("required", ()))
    wanted = {parameter.name: parameter for parameter in tool.parameters}
    messages = [f"parameter {name} is missing" for name in wanted if name not in properties]
    messages += [f"parameter {name} is not in the toolset" for name in properties if name not in wanted]
    for name, parameter in wanted.items():
        if name not in properties:
            continue
        if parameter.required != (name in required):
            state = "required" if parameter.required else "optional (give it a default)"
            messages.append(f"parameter {name} must be {state}")
        messages += _type_difference(parameter, properties[name], schema.get("$defs", {}))
    return messages


def _type_difference(parameter: Parameter, found: dict[str, Any], definitions: dict[str, Any]) -> list[str]:
    """Whether type and choices of a parameter agree; an optional parameter may also be null."""
    branches = [_resolved(branch, definitions) for branch in found.get("anyOf", [found])]
    branches = [branch for branch in branches if branch.get("type") != "null"]
    kinds = {str(branch.get("type")) for branch in branches}
    wanted = parameter.json_schema["type"]
    if kinds != {wanted}:
        return [f"parameter {parameter.name} is {' or '.join(sorted(kinds))}, the toolset says {wanted}"]
    if "enum" in parameter.json_schema:
        choices = [value for branch in branches for value in branch.get("enum", [branch.get("const")])]
        if sorted(map(str, choices)) != sorted(map(str, parameter.json_schema["enum"])):
            return [f"parameter {parameter.name} must be Literal{parameter.json_schema['enum']}"]
    return []


def _resolved(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """A schema with its own reference followed, such as that of an enumeration class."""
    reference = schema.get("$ref", "")
    resolved: dict[str, Any] = definitions.get(reference.rpartition("/")[2], schema)
    return resolved


def tools_items(subjects: Sequence[ToolsSubject], config: ToolsConfig, sandbox: SandboxConfig) -> list[Item]:
    """One item per scenario that has a toolset and an initial state."""
    return [
        Item(
            subject.scenario.slug,
            subject,
            [
                subject.scenario.model_dump(),
                subject.schema,
                subject.toolset.model_dump(mode="json"),
                subject.content_hash,
                subject.clock,
                config.model_dump(),
                sandbox.model_dump(),
            ],
        )
        for subject in subjects
    ]
