"""The part of the lint that looks at functions: a tool's name and signature, a verifier's entry point."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "RESERVED_NAMES",
    "is_connection",
    "own_nodes",
    "reserved_or_odd_name",
    "signature_problems",
    "verifier_problems",
]

RESERVED_NAMES = frozenset({"call_tool", "done", "list_tools", "reset", "verify"})
"""Names that agents' protocols use themselves."""

_TOOL_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_CONNECTIONS = frozenset({"Connection", "sqlite3.Connection"})
_VERIFIER_PARAMETERS = ["initial", "final", "answer"]

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Problem = tuple[int, str]


def reserved_or_odd_name(function: _Function) -> Iterator[_Problem]:
    """Check a tool's name."""
    if function.name in RESERVED_NAMES:
        yield function.lineno, f"'{function.name}' is a reserved name; call the tool something else"
    elif not _TOOL_NAME.fullmatch(function.name):
        yield function.lineno, f"'{function.name}' is no name for a tool: use lower-case letters, digits and '_'"


def signature_problems(function: _Function, aliases: Mapping[str, ast.expr]) -> Iterator[_Problem]:
    """Check what a tool declares, following the module's own names for types."""
    line, name = function.lineno, function.name
    if isinstance(function, ast.AsyncFunctionDef):
        yield line, f"'{name}' is async; tools are plain functions"
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in own_nodes(function)):
        yield line, f"'{name}' is a generator; return a list"
    if function.decorator_list:
        yield line, f"'{name}' has a decorator; tools are plain functions"
    if not ast.get_docstring(function):
        yield line, f"'{name}' has no docstring; agents read it as the tool's description"
    arguments = function.args
    if arguments.vararg or arguments.kwarg or arguments.posonlyargs:
        yield line, f"'{name}' may not use *args, **kwargs or positional-only parameters"
    if not arguments.args:
        yield line, f"'{name}' needs the database as its first parameter: db: Connection"
        return
    yield from _connection_problems(function)
    for parameter in [*arguments.args[1:], *arguments.kwonlyargs]:
        if not _is_described(parameter.annotation, aliases):
            yield (
                parameter.lineno,
                f"parameter '{parameter.arg}' of '{name}' needs a type and a description: "
                f'{parameter.arg}: Annotated[T, Field(description="...")]',
            )


def _connection_problems(function: _Function) -> Iterator[_Problem]:
    first = function.args.args[0]
    annotation = _text(first.annotation) if first.annotation else "Connection"
    if annotation not in _CONNECTIONS:
        yield first.lineno, f"the first parameter of '{function.name}' is the database; its type is Connection"
    if len(function.args.defaults) == len(function.args.args):
        yield first.lineno, f"the first parameter of '{function.name}' is always passed and takes no default"


def is_connection(annotation: ast.expr | None) -> bool:
    """Tell whether a parameter's annotation makes it a database."""
    return isinstance(annotation, ast.Name | ast.Attribute | ast.Constant) and _text(annotation) in _CONNECTIONS


def _is_described(annotation: ast.expr | None, aliases: Mapping[str, ast.expr]) -> bool:
    for _ in range(5):  # names of names
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            annotation = _parsed(annotation.value)
        elif isinstance(annotation, ast.Name) and annotation.id in aliases:
            annotation = aliases[annotation.id]
        else:
            break
    if not isinstance(annotation, ast.Subscript) or _text(annotation.value).split(".")[-1] != "Annotated":
        return False
    parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else []
    return any(_is_field_with_description(part) for part in parts[1:])


def _is_field_with_description(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or _text(node.func).split(".")[-1] != "Field":
        return False
    descriptions = [keyword.value for keyword in node.keywords if keyword.arg == "description"]
    return bool(descriptions) and not (isinstance(descriptions[0], ast.Constant) and not descriptions[0].value)


def _parsed(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ast.unparse(node)


def own_nodes(function: _Function | ast.ClassDef) -> Iterator[ast.AST]:
    """Walk a function or class without the functions defined in it."""
    stack: list[ast.AST] = list(function.body)
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            stack.extend(ast.iter_child_nodes(node))


def verifier_problems(functions: Sequence[_Function]) -> Iterator[_Problem]:
    """Check that a verifier has its one entry point: `verify(initial, final, answer)`."""
    entry = next((function for function in functions if function.name == "verify"), None)
    if entry is None:
        yield 1, "there must be a function verify(initial: Connection, final: Connection, answer: str | None) -> dict"
        return
    names = [argument.arg for argument in entry.args.args]
    if isinstance(entry, ast.AsyncFunctionDef) or entry.decorator_list:
        yield entry.lineno, "'verify' is a plain function, neither async nor decorated"
    if names != _VERIFIER_PARAMETERS or entry.args.kwonlyargs or entry.args.vararg or entry.args.kwarg:
        yield entry.lineno, "the parameters of 'verify' are initial, final, answer"
