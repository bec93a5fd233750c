"""Which of the project's modules a module imports, and a digest of their code.

The digest is a step's version: when the code that makes or checks an item changes, the item is made and
checked again; when only comments or layout change, it is not. The same closure is held against `dvc.yaml` by a test.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from pathlib import Path

import awm

__all__ = ["code_digest", "import_closure", "module_path"]

PACKAGE_PARENT = Path(awm.__file__).resolve().parent.parent

RUN_BY_NAME = {"awm.env.host": ("awm.env.zygote",)}
"""Modules that a module starts as a process of its own, which no import statement shows."""


def module_path(module: str) -> Path | None:
    """Source file of a module of this project; None for anything else."""
    base = PACKAGE_PARENT.joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


@functools.cache
def import_closure(module: str) -> tuple[str, ...]:
    """Names of the project's modules that a module reaches by import, itself included, sorted.

    Packages on the way are included, since importing a module runs them.
    """
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in found or module_path(name) is None:
            continue
        found.add(name)
        waiting += _imported(name)
    return tuple(sorted(found))


def _imported(module: str) -> list[str]:
    path = module_path(module)
    assert path is not None
    names = list(RUN_BY_NAME.get(module, ()))
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    parts = [name.split(".") for name in names if name.split(".")[0] in ("awm", "stages")]
    return [".".join(part[:length]) for part in parts for length in range(1, len(part) + 1)]


@functools.cache
def code_digest(module: str) -> str:
    """SHA-256 over the syntax trees of a module and all that it imports from this project."""
    total = hashlib.sha256()
    for name in import_closure(module):
        path = module_path(name)
        assert path is not None
        total.update(f"{name}\0{ast.dump(ast.parse(path.read_text(encoding='utf-8')))}\0".encode())
    return total.hexdigest()
