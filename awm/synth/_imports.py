"""Imports of two versions of a module, united. Part of `awm.synth.blocks`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

_NAME_IN_TEXT = re.compile(r"[A-Za-z_]\w*")


def united_imports(
    old: Iterable[ast.stmt], new: Sequence[ast.stmt], body: Sequence[ast.stmt], defined: set[str]
) -> list[tuple[ast.stmt, list[ast.alias]]]:
    """Return import statements, each with those of its names that are to be imported.

    All of the new module's, and those of the old one that the merged body uses and neither imports nor defines anew.
    """
    used = _used_names(body) - defined
    rebound = {alias.asname or alias.name: _imported(node, alias) for node, alias in aliases(new)}

    def is_wanted(node: ast.stmt, alias: ast.alias) -> bool:
        same = _imported(node, alias)
        bound = alias.asname or alias.name.partition(".")[0]
        unused = alias.name != "*" and not _is_future(node) and bound not in used
        return not unused and rebound.get(alias.asname or alias.name, same) == same

    seen: set[tuple[str, ...]] = set()
    united: list[tuple[ast.stmt, list[ast.alias]]] = []
    for node in old:
        _add(united, seen, node, [alias for _, alias in aliases([node]) if is_wanted(node, alias)])
    for node in new:
        _add(united, seen, node, [alias for _, alias in aliases([node])])
    return sorted(united, key=lambda pair: not _is_future(pair[0]))


def aliases(nodes: Iterable[ast.stmt]) -> Iterator[tuple[ast.stmt, ast.alias]]:
    """Each name that the import statements among the nodes import, with its statement."""
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((node, alias) for alias in node.names)


def imported(nodes: Iterable[ast.stmt]) -> set[tuple[str, ...]]:
    """What the import statements among the nodes import; equal imports are equal however they are grouped."""
    return {_imported(node, alias) for node, alias in aliases(nodes)}


def import_line(node: ast.stmt, names: list[ast.alias]) -> str:
    """The import statement with these names only."""
    if isinstance(node, ast.ImportFrom):
        return ast.unparse(ast.ImportFrom(module=node.module, names=names, level=node.level)) + "\n"
    return ast.unparse(ast.Import(names=names)) + "\n"


def _add(
    united: list[tuple[ast.stmt, list[ast.alias]]], seen: set[tuple[str, ...]], node: ast.stmt, names: list[ast.alias]
) -> None:
    fresh = [alias for alias in names if _imported(node, alias) not in seen]
    seen.update(_imported(node, alias) for alias in fresh)
    if fresh:
        united.append((node, fresh))


def _imported(node: ast.stmt, alias: ast.alias) -> tuple[str, ...]:
    if isinstance(node, ast.ImportFrom):
        return ("." * node.level + (node.module or ""), alias.name, alias.asname or alias.name)
    return (alias.name, alias.asname or "")


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _used_names(body: Iterable[ast.stmt]) -> set[str]:
    """Names that the statements read, those in quoted annotations included."""
    used: set[str] = set()
    for node in (inner for outer in body for inner in ast.walk(outer)):
        if isinstance(node, ast.Name):
            used.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value.strip():
            used.update(_NAME_IN_TEXT.findall(node.value))
    return used
