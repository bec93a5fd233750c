"""Load generated source: check it, run it once, and find the tools or the verifier in it."""

from __future__ import annotations

import ast
import gc
import inspect
import marshal
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import CodeType, ModuleType, TracebackType
from typing import Any

from pydantic import ValidationError

from awm.env.arguments import Arguments, describe_errors, result_schema
from awm.env.deadline import SoftTimeout
from awm.env.errors import ModuleError
from awm.env.lint import ModuleKind, lint

__all__ = [
    "Tool",
    "compile_module",
    "describe_exception",
    "find_tools",
    "line_of",
    "load_module",
    "run_module",
    "signatures",
]

_MAX_MESSAGE = 2000
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")
_LINK = re.compile(r"\s*(?:For further information visit \S+|\(Background on this error at: [^)]*\))")


@dataclass
class Tool:
    """One public function of a tool module."""

    name: str
    function: Callable[..., Any]
    line: int

    @cached_property
    def arguments(self) -> Arguments:
        """The tool's parameters; made when first needed."""
        arguments = Arguments(self.function)
        gc.collect(0)  # what was made on the way holds on to itself, and is a hundred times as large
        return arguments


def load_module(source: str, kind: ModuleKind, *, checked: bool = False) -> ModuleType:
    """Run a module's source and return it; raise ModuleError with all that the first failing phase found.

    :param checked: Leave out the lint.
    """
    return run_module(compile_module(source, kind, checked=checked), kind)


def compile_module(source: str, kind: ModuleKind, *, checked: bool = False) -> bytes:
    """Check and compile a module's source, for `run_module` in this process or another of the same Python.

    Raises ModuleError with all that the first failing phase found.

    :param checked: Leave out the lint.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise ModuleError("syntax", [f"line {error.lineno or 1}: {error.msg}"], error.lineno or 1) from None
    except (ValueError, RecursionError, MemoryError) as error:
        why = str(error) or "it is nested too deeply"
        raise ModuleError("syntax", [f"line 1: the source can't be parsed: {why}"], 1) from None
    problems = [] if checked else lint(tree, kind)
    if problems:
        raise ModuleError("lint", [f"line {line}: {text}" for line, text in problems], problems[0][0])
    try:
        code = compile(tree, _file_name(kind), "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        why = getattr(error, "msg", str(error)) or "it is nested too deeply"
        raise ModuleError("syntax", [f"line {line}: the source can't be compiled: {why}"], line) from None
    return marshal.dumps(code)


def run_module(code: bytes, kind: ModuleKind) -> ModuleType:
    """Run what `compile_module` gave and return the module; raise ModuleError if it fails.

    The bytes are as dangerous as the source: only for a process that would run that too.
    """
    module = ModuleType(kind)
    sys.modules[kind] = module  # dataclasses and pydantic look their module up
    try:
        compiled: CodeType = marshal.loads(code)
        exec(compiled, module.__dict__)
    except SoftTimeout:
        raise
    except BaseException as error:
        line = line_of(error, module)
        where = f"line {line}: " if line else ""
        raise ModuleError("import", [where + describe_exception(error)], line) from None
    return module


def find_tools(module: ModuleType) -> dict[str, Tool]:
    """Return the module's tools by name, in the order of their lines."""
    tools = [
        Tool(name, value, value.__code__.co_firstlineno)
        for name, value in vars(module).items()
        if inspect.isfunction(value) and (value.__module__, value.__name__) == (module.__name__, name)
        if not name.startswith("_")
    ]
    return {tool.name: tool for tool in sorted(tools, key=lambda tool: tool.line)}


def signatures(tools: Mapping[str, Tool]) -> list[dict[str, Any]]:
    """Describe all tools as plain data; raise ModuleError for signatures that can't be described."""
    described, problems = [], []
    for tool in tools.values():
        try:
            described.append(_signature(tool))
        except Exception as error:  # whatever annotations can raise when they are evaluated
            why = describe_exception(error)
            problems.append((tool.line, f"line {tool.line}: the signature of '{tool.name}': {why}"))
    if problems:
        raise ModuleError("signature", [text for _, text in problems], problems[0][0])
    return described


def _signature(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": inspect.getdoc(tool.function) or "",
        "parameters": tool.arguments.schema,
        "result": result_schema(tool.function),
        "line": tool.line,
    }


def _file_name(name: str) -> str:
    return f"<{name}>"


def line_of(error: BaseException, module: ModuleType | None) -> int | None:
    """Return the innermost line of the module that an exception passed through."""
    line = None
    step: TracebackType | None = error.__traceback__
    while step is not None and module is not None:
        if step.tb_frame.f_code.co_filename == _file_name(module.__name__):
            line = step.tb_lineno
        step = step.tb_next
    return line


def describe_exception(error: BaseException) -> str:
    """Say what an exception says, in words that are the same in each run."""
    if isinstance(error, ValidationError):
        problems = describe_errors(error.errors(include_url=False, include_context=False), what="field")
        text = f"ValidationError: {error.title}: {problems}"
    else:
        try:
            text = f"{type(error).__name__}: {error}"
        except Exception:
            text = type(error).__name__
    text = text[: 4 * _MAX_MESSAGE]  # a message may be as long as a value, and the patterns below read all of it
    return _LINK.sub("", _ADDRESS.sub("0x...", text))[:_MAX_MESSAGE]
