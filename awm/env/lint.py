"""Read generated source before it is loaded, and list everything that has no place in it.

This is a gate for quality, not for safety: it keeps out state between calls, input and output, and errors that vanish.
What a module can do at all is up to the sandbox.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from awm.env.errors import ModuleError
from awm.env.lint_signature import (
    is_connection,
    own_nodes,
    reserved_or_odd_name,
    signature_problems,
    verifier_problems,
)

__all__ = ["ALLOWED_MODULES", "ModuleKind", "Problem", "lint"]

ModuleKind = Literal["tools", "verifier"]
Problem = tuple[int, str]
"""Line and text."""

ALLOWED_MODULES = frozenset(
    """
    __future__ base64 bisect calendar collections collections.abc copy dataclasses datetime decimal difflib enum
    fractions functools hashlib heapq itertools json math numbers operator pydantic random re sqlite3 statistics string
    textwrap time typing typing_extensions unicodedata uuid zoneinfo
    """.split()
)
"""Modules that generated code may import, besides its own below."""

_OWN_MODULES = {
    "tools": {"awm.env.tool": {"Connection", "ToolError"}},
    "verifier": {"awm.env.verifier": {"Connection", "mentions", "state_diff"}},
}
_FORBIDDEN_NAMES = frozenset("__import__ breakpoint compile delattr eval exec globals input locals open".split())
_FORBIDDEN_MEMBERS = {
    "SystemRandom": "random numbers that differ from run to run",
    "cache": "results kept between calls",
    "cached_property": "results kept between calls",
    "lru_cache": "results kept between calls",
    "sleep": "waiting",
    "uuid1": "an id that depends on the machine",
}
_ALLOWED_DUNDERS = frozenset("__all__ __doc__ __init__ __members__ __name__ __post_init__ __slots__".split())
_MUTABLE_CALLS = frozenset("bytearray Counter count cycle defaultdict deque dict list OrderedDict set".split())
_MUTATORS = frozenset(
    """
    add append appendleft clear discard extend insert pop popitem popleft remove reverse setdefault sort update
    """.split()
)
_CONSTANT = re.compile(r"_{0,2}[A-Z][A-Z0-9_]*")
_MUTABLE_NODES = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_OUT_OF_PLACE_SQL = re.compile(
    r"\s*(BEGIN|COMMIT|END|ROLLBACK(?!\s+TO\b)|ATTACH|DETACH|VACUUM|CREATE|DROP|ALTER|REINDEX)\b", re.IGNORECASE
)
_TRANSACTIONS = {"BEGIN", "COMMIT", "END", "ROLLBACK"}


def lint(tree: ast.Module, kind: ModuleKind) -> list[Problem]:
    """Return all problems of a parsed module, in the order of its lines; raise ModuleError if it nests too deeply."""
    linter = _Linter(kind)
    try:
        linter.check(tree)
    except (RecursionError, MemoryError):
        raise ModuleError("syntax", ["line 1: the source is nested too deeply"], 1) from None
    return sorted(set(linter.problems))


@dataclass
class _Linter:
    kind: ModuleKind
    problems: list[Problem] = field(default_factory=list)
    shared: set[str] = field(default_factory=set)  # names at the module's level
    imported: set[str] = field(default_factory=set)
    connections: set[str] = field(default_factory=set)  # parameters that are one

    def report(self, node: ast.AST, text: str) -> None:
        self.problems.append((getattr(node, "lineno", 1), text))

    def check(self, tree: ast.Module) -> None:
        self._collect_names(tree)
        for position, statement in enumerate(tree.body):
            self._check_top_level(statement, first=position == 0)
        self._check_functions(tree)
        for node in ast.walk(tree):
            self._check_node(node)
        self._check_state(tree)

    def _collect_names(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                self.imported.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
            elif isinstance(node, ast.arg) and is_connection(node.annotation):
                self.connections.add(node.arg)

    # -- the module's level ------------------------------------------------------------------------------------------

    def _check_top_level(self, statement: ast.stmt, *, first: bool) -> None:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            return
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            self.shared.add(statement.name)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            self._check_assignment(statement)
        elif (first and _is_docstring(statement)) or _is_type_checking(statement) or _is_rebuild(statement):
            return
        else:
            self.report(statement, "only imports, definitions and constants may stand at the module's level")

    def _check_assignment(self, statement: ast.Assign | ast.AnnAssign) -> None:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        if any(isinstance(node, ast.Attribute | ast.Subscript) for target in targets for node in ast.walk(target)):
            self.report(statement, "only names may be assigned at the module's level, not attributes or items")
            return
        names = [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
        self.shared.update(names)
        if statement.value is None or not _is_mutable(statement.value):
            return
        for name in names:
            if not _CONSTANT.fullmatch(name) and name != "__all__":
                self.report(
                    statement,
                    f"'{name}' is a mutable object at the module's level, which would keep state between episodes; "
                    "store state in the database, or write a constant in UPPER_CASE",
                )

    def _check_functions(self, tree: ast.Module) -> None:
        functions = [node for node in tree.body if isinstance(node, _FUNCTIONS)]
        aliases = _aliases(tree)
        if self.kind == "verifier":
            self.problems += verifier_problems(functions)
            return
        public = [function for function in functions if not function.name.startswith("_")]
        if not public:
            self.report(tree, "the module defines no tool: a tool is a function whose name has no leading underscore")
        for function in public:
            self.problems += reserved_or_odd_name(function)
            self.problems += signature_problems(function, aliases)

    # -- anywhere ----------------------------------------------------------------------------------------------------

    def _check_node(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._check_module(node, alias.name)
        elif isinstance(node, ast.ImportFrom):
            self._check_import_from(node)
        elif isinstance(node, ast.Global):
            self.report(node, f"'global {', '.join(node.names)}' keeps state between calls; store it in the database")
        elif isinstance(node, ast.Name):
            self._check_name(node)
        elif isinstance(node, ast.Attribute):
            self._check_attribute(node)
        elif isinstance(node, ast.Call):
            self._check_call(node)
        elif isinstance(node, ast.ExceptHandler):
            self._check_handler(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._check_defaults(node)

    def _check_module(self, node: ast.AST, name: str) -> None:
        if name not in ALLOWED_MODULES and name not in _OWN_MODULES[self.kind]:
            own = ", ".join(_OWN_MODULES[self.kind])
            allowed = ", ".join(sorted(ALLOWED_MODULES))
            self.report(node, f"import of '{name}' is not allowed; allowed are {own}, {allowed}")

    def _check_import_from(self, node: ast.ImportFrom) -> None:
        if node.level:
            self.report(node, "relative imports are not allowed: the module stands alone")
            return
        module = node.module or ""
        self._check_module(node, module)
        known = _OWN_MODULES[self.kind].get(module)
        for alias in node.names:
            if alias.name == "*":
                self.report(node, f"'from {module} import *' is not allowed; name what is needed")
            elif known is not None and alias.name not in known:
                self.report(node, f"'{module}' offers {', '.join(sorted(known))}, not '{alias.name}'")
            elif alias.name in _FORBIDDEN_MEMBERS:
                self.report(node, f"'{alias.name}' is not allowed: {_FORBIDDEN_MEMBERS[alias.name]}")

    def _check_name(self, node: ast.Name) -> None:
        if node.id in _FORBIDDEN_NAMES or (_is_dunder(node.id) and node.id not in _ALLOWED_DUNDERS):
            self.report(node, f"'{node.id}' is not allowed")

    def _check_attribute(self, node: ast.Attribute) -> None:
        if _is_dunder(node.attr) and node.attr not in _ALLOWED_DUNDERS:
            self.report(node, f"the attribute '{node.attr}' is not allowed")
        elif node.attr in _FORBIDDEN_MEMBERS and isinstance(node.value, ast.Name) and node.value.id in ALLOWED_MODULES:
            self.report(node, f"'{node.value.id}.{node.attr}' is not allowed: {_FORBIDDEN_MEMBERS[node.attr]}")
        elif node.attr == "connect" and isinstance(node.value, ast.Name) and node.value.id == "sqlite3":
            self.report(node, "'sqlite3.connect' is not allowed: use the connection that is passed in")

    def _check_call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr", "setattr"):
            name = node.args[1] if len(node.args) > 1 else None
            if isinstance(name, ast.Constant) and isinstance(name.value, str) and _is_dunder(name.value):
                self.report(node, f"'{node.func.id}' of '{name.value}' is not allowed")
        if isinstance(node.func, ast.Attribute):
            self._check_method(node, node.func)

    def _check_method(self, node: ast.Call, method: ast.Attribute) -> None:
        if method.attr in ("commit", "rollback", "executescript"):
            self.report(
                node,
                f"'.{method.attr}()' is not allowed: each call runs in one transaction, which is committed when it "
                "returns and rolled back when it raises",
            )
        elif method.attr == "close" and isinstance(method.value, ast.Name) and method.value.id in self.connections:
            self.report(node, f"'{method.value.id}.close()' is not allowed: the connection stays open for later calls")
        elif method.attr in ("execute", "executemany") and node.args:
            self._check_sql(node, node.args[0])

    def _check_sql(self, node: ast.Call, sql: ast.expr) -> None:
        if isinstance(sql, ast.JoinedStr) and sql.values:
            sql = sql.values[0]
        if not isinstance(sql, ast.Constant) or not isinstance(sql.value, str):
            return
        match = _OUT_OF_PLACE_SQL.match(sql.value)
        if match:
            word = match.group(1).upper()
            why = "each call runs in one transaction already" if word in _TRANSACTIONS else "the schema is fixed"
            self.report(node, f"{word} is not allowed: {why}")

    def _check_handler(self, node: ast.ExceptHandler) -> None:
        caught = _caught(node)
        if not caught:
            self.report(node, "a bare 'except' hides errors; name the exception")
        for name in caught:
            if name == "BaseException":
                self.report(node, "'except BaseException' hides errors and time-outs; name the exception")
            elif self.kind == "verifier" and name == "Exception":
                self.report(node, "'except Exception' hides errors; a verifier must let them surface")
            elif self.kind == "verifier" and name.startswith("sqlite3."):
                self.report(node, f"'except {name}' hides database errors; a verifier must let them surface")

    def _check_defaults(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None and _is_mutable(default):
                self.report(default, f"'{node.name}' has a mutable default, which keeps state between calls; use None")

    # -- state between calls -----------------------------------------------------------------------------------------

    def _check_state(self, tree: ast.Module) -> None:
        for function in ast.walk(tree):
            if isinstance(function, _FUNCTIONS):
                local = _local_names(function)
                shared = self.shared - local
                for node in ast.walk(function):
                    name = _changed_name(node)
                    if name in shared:
                        self.report(node, f"'{name}' is changed inside a function, which keeps state between episodes")
                self._check_imported(ast.walk(function), self.imported - local)
            elif isinstance(function, ast.ClassDef):
                self._check_imported(own_nodes(function), self.imported)

    def _check_imported(self, nodes: Iterable[ast.AST], imported: set[str]) -> None:
        """Refuse an attribute set on what was imported: it would be another one for all code in the process."""
        for node in nodes:
            if _set_name(node) in imported:
                self.report(node, f"'{_set_name(node)}' was imported and may not be changed")


def _changed_name(node: ast.AST) -> str | None:
    """Return the name whose object a node changes in place."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MUTATORS:
        return _root_name(node.func.value)
    if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
        return _root_name(node.value)
    return None


def _set_name(node: ast.AST) -> str | None:
    """Return the name on whose object a node sets an attribute or item."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr" and node.args:
        return _root_name(node.args[0])
    return None if isinstance(node, ast.Call) else _changed_name(node)


def _root_name(target: ast.expr) -> str | None:
    while isinstance(target, ast.Subscript | ast.Attribute):
        target = target.value
    return target.id if isinstance(target, ast.Name) else None


def _local_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    arguments = {n.arg for n in ast.walk(function) if isinstance(n, ast.arg)}
    return stored | arguments


def _caught(node: ast.ExceptHandler) -> list[str]:
    if node.type is None:
        return []
    parts = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    return [ast.unparse(part) for part in parts]


def _aliases(tree: ast.Module) -> dict[str, ast.expr]:
    """Names that the module gives to types."""
    found: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            found.update((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            found[node.target.id] = node.value
    return found


def _is_mutable(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        return name in _MUTABLE_CALLS
    return isinstance(value, _MUTABLE_NODES)


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and len(name) > 4


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_type_checking(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and ast.unparse(statement.test).endswith("TYPE_CHECKING")


def _is_rebuild(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "model_rebuild"
