"""Answers made of named parts, so that a repair may return only the parts that change.

A Python module is made of imports and named blocks (functions, classes, assignments); an SQL script of the statements
for each table. Merging keeps the text of everything that the patch does not name.
"""

from __future__ import annotations

import ast
import io
import re
import sqlite3
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from awm.env.sql import Statement, split_statements, statement_table
from awm.synth._imports import aliases, import_line, imported, united_imports

__all__ = [
    "PythonParts",
    "merge_python",
    "merge_sql",
    "outline",
    "part_source",
    "split_python",
]


@dataclass(frozen=True)
class PythonParts:
    """A module, cut up.

    `header`: docstring, imports, assignments, other statements, and comments at the end. `definitions`: functions and
    classes by name, each with its decorators and the comments before it; a name defined twice has both sources.
    """

    header: str
    definitions: dict[str, str]


@dataclass(frozen=True)
class _Block:
    """A run of lines that stay together. Blocks with the same key replace each other."""

    key: str
    text: str
    nodes: tuple[ast.stmt, ...] = ()

    @property
    def is_import(self) -> bool:
        return all(isinstance(node, ast.Import | ast.ImportFrom) for node in self.nodes)

    @property
    def is_definition(self) -> bool:
        return isinstance(self.nodes[0], ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)

    @property
    def is_elided(self) -> bool:
        """Whether the block is a function or class whose body is only `...`, maybe behind a docstring."""
        node = self.nodes[0]
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return False
        last = node.body[-1]
        dots = isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant) and last.value.value is Ellipsis
        return dots and (len(node.body) == 1 or (len(node.body) == 2 and ast.get_docstring(node) is not None))


# --- Python ---------------------------------------------------------------------------------------------------------


def split_python(source: str) -> PythonParts:
    """Cut a module into its header and its definitions. Raises ValueError with the line of a syntax error."""
    blocks, tail = _python_blocks(source)
    definitions: dict[str, str] = {}
    for block in blocks:
        if block.is_definition:
            definitions[block.key] = definitions.get(block.key, "") + block.text
    header = "".join(block.text for block in blocks if not block.is_definition)
    return PythonParts(header + tail, definitions)


def part_source(source: str, name: str) -> str:
    """Return the source of a function, class or assignment with its decorators and the comments before it.

    Returns "" when the module has no such part or does not compile: what is shown here is often wrong already.
    """
    try:
        blocks, _ = _python_blocks(source)
    except ValueError:
        return ""
    found = "".join(block.text for block in blocks if block.key == name).strip("\r\n")
    return f"{found}\n" if found else ""


def outline(source: str) -> str:
    """Return one line per top-level name, in order: signatures of functions, fields of classes, names of assignments.

    Of a module that does not compile, the lines that start functions and classes.
    """
    try:
        blocks, _ = _python_blocks(source)
    except ValueError:
        return "".join(f"{line.rstrip()}\n" for line in source.split("\n") if _DEFINITION.match(line))
    lines = [_signature(node) for block in blocks if _is_named(block) for node in block.nodes]
    return "".join(f"{line}\n" for line in lines)


def merge_python(previous: str, patch: str) -> str:
    """Put the parts that `patch` defines into `previous`.

    - A function, class or assignment replaces the one of the same name, in its place; a new one comes before the next
      one that the patch lists after it and `previous` has, else at the end. A definition whose body is only `...`
      stands for "as before" and replaces nothing.
    - Imports are united, each once. Those of `previous` that nothing uses any more are dropped: else a patch could
      never get rid of a forbidden one.
    - A patch with all names of `previous` is a full replacement; only imports that it uses and lacks are taken over. So
      is any patch when `previous` does not compile.

    Raises ValueError with the line when the patch does not compile.
    """
    new, new_tail = _python_blocks(patch)
    try:
        old, old_tail = _python_blocks(previous)
    except ValueError:
        return patch
    old_names = {block.key for block in old if _is_named(block)}
    new = [block for block in new if not (block.is_elided and block.key in old_names)]
    body = [block for block in new if not block.is_import]
    if old_names <= {block.key for block in body}:
        merged, tail = body, new_tail
        imports = _imports(old, new, merged)
        if imported(_nodes(imports)) <= imported(_nodes(new)):
            return patch
    else:
        merged, tail = _merged([block for block in old if not block.is_import], body), old_tail
        imports = _imports(old, new, merged)
    docstring = [block for block in merged[:1] if block.key == _DOCSTRING]
    return _laid_out([*docstring, *imports, *merged[len(docstring) :]], tail)


def _python_blocks(source: str) -> tuple[list[_Block], str]:
    """The blocks of a module and what follows the last one; all texts together are the source."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(source)
        except SyntaxError as error:
            shown = f": {error.text.strip()[:100]}" if error.text else ""
            raise ValueError(f"line {error.lineno}: {error.msg}{shown}") from None
        except (ValueError, RecursionError, MemoryError) as error:
            raise ValueError(f"line 1: the code can't be parsed: {error}") from None
    # Not str.splitlines, which also cuts at form feeds and other characters that are no line ends to Python.
    lines = list(io.StringIO(source, newline=""))
    spans: list[tuple[int, list[ast.stmt]]] = []
    for node in tree.body:
        first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
        end = node.end_lineno or node.lineno
        if spans and first <= spans[-1][0]:  # a; b
            spans[-1] = (end, [*spans[-1][1], node])
        else:
            spans.append((end, [node]))
    blocks: list[_Block] = []
    start = 0
    for end, nodes in spans:
        blocks.append(_Block(_key(nodes, first=not blocks), "".join(lines[start:end]), tuple(nodes)))
        start = end
    return blocks, "".join(lines[start:])


_DEFINITION = re.compile(r"(?:async def|def|class) \w+")

# Keys that no name of a program can be.
_UNNAMED = "\0"
_DOCSTRING = "\0docstring"


def _is_named(block: _Block) -> bool:
    return not block.is_import and not block.key.startswith(_UNNAMED)


def _key(nodes: Sequence[ast.stmt], *, first: bool) -> str:
    if first and _is_text(nodes[0]):
        return _DOCSTRING
    names = [name for node in nodes for name in _names(node)]
    return ", ".join(dict.fromkeys(names)) or _UNNAMED + " ".join(ast.dump(node) for node in nodes)


def _names(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.Assign():
            return [ast.unparse(target) for target in node.targets]
        case ast.AnnAssign() | ast.AugAssign():
            return [ast.unparse(node.target)]
        case _:
            alias = getattr(node, "name", None)  # of Python 3.12's `type X = ...`
            return [ast.unparse(alias)] if isinstance(alias, ast.Name) else []


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _signature(node: ast.stmt) -> str:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            prefix = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
            result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
            return f"{prefix} {node.name}({ast.unparse(node.args)}){result}"
        case ast.ClassDef():
            bases = ", ".join(ast.unparse(base) for base in node.bases)
            fields = [ast.unparse(entry.target) for entry in node.body if isinstance(entry, ast.AnnAssign)]
            return f"class {node.name}({bases})".replace("()", "") + (f": {', '.join(fields)}" if fields else "")
        case _:
            return ", ".join(_names(node))


def _nodes(blocks: Sequence[_Block]) -> list[ast.stmt]:
    return [node for block in blocks for node in block.nodes]


def _imports(old: Sequence[_Block], new: Sequence[_Block], body: Sequence[_Block]) -> list[_Block]:
    """Unite the imports of both modules: the blocks themselves where all of them is wanted, else new lines."""
    blocks = {node: block for block in (*old, *new) if block.is_import for node in block.nodes}
    defined = {block.key for block in body}
    united = united_imports(_nodes(old), _nodes(new), _nodes(body), defined)
    return [
        blocks[node]
        if blocks[node].nodes == (node,) and len(names) == len(list(aliases([node])))
        else _Block(blocks[node].key, import_line(node, names), (node,))
        for node, names in united
    ]


def _laid_out(blocks: Sequence[_Block], tail: str) -> str:
    """The blocks as one source: two empty lines around definitions, otherwise the blocks' own spacing."""
    texts: list[str] = []
    before: _Block | None = None
    for block in blocks:
        bare = block.text.lstrip("\r\n")
        own = len(block.text) - len(bare)
        if before is None:
            gap = 0
        elif block.is_definition or before.is_definition:
            gap = 2
        elif block.is_import == before.is_import:
            gap = min(own, 2)
        else:
            gap = max(own, 1)
        texts.append("\n" * gap + bare + "\n" * (not bare.endswith("\n")))
        before = block
    return "".join(texts) + (tail if tail.strip() else "")


# --- merging --------------------------------------------------------------------------------------------------------


def _merged(previous: Sequence[_Block], patch: Sequence[_Block]) -> list[_Block]:
    """Replace by key, in place; put what is new before its successor in the patch, else at the end."""
    groups: dict[str, list[_Block]] = {}
    for block in patch:
        groups.setdefault(block.key, []).append(block)
    merged: dict[str, list[_Block]] = {}
    order: list[tuple[str, _Block | None]] = []  # None stands for the patch's whole group
    for block in previous:
        if block.key not in groups:
            order.append((block.key, block))
        elif block.key not in merged:
            merged[block.key] = groups[block.key]
            order.append((block.key, None))
    keys = list(groups)
    for index in range(len(keys) - 1, -1, -1):
        if keys[index] in merged:
            continue
        merged[keys[index]] = groups[keys[index]]
        successor = keys[index + 1] if index + 1 < len(keys) else None
        at = next((place for place, (key, _) in enumerate(order) if key == successor), len(order))
        order.insert(at, (keys[index], None))
    return [entry for key, block in order for entry in ([block] if block is not None else merged[key])]


# --- SQL ------------------------------------------------------------------------------------------------------------

_VIEW = re.compile(r"\s*CREATE\s+(?:TEMP\s+|TEMPORARY\s+)?VIEW\s+(?:IF\s+NOT\s+EXISTS\s+)?([^\s(]+)", re.IGNORECASE)


def merge_sql(previous: str, patch: str) -> str:
    """Put the statements of the tables that `patch` names into `previous`.

    All statements of such a table (CREATE TABLE, CREATE INDEX, INSERT alike) make room for the patch's, where the first
    of them stood. The statements of a new table come before those of the next table that the patch lists after it and
    `previous` has, else at the end. A patch with all tables of `previous` is a full replacement. Views go by their
    name; other statements without a table (a PRAGMA, say) are added unless they are there. Comments between statements
    are lost.

    Raises ValueError with the line when the last statement of the patch is cut off.
    """
    old = [_sql_block(statement) for statement in split_statements(previous)]
    statements = split_statements(patch)
    for statement in statements[-1:]:
        if not sqlite3.complete_statement(statement.text + "\n;"):
            raise ValueError(f"line {statement.line}: the statement is cut off: {statement.text[:100]}")
    new = [_sql_block(statement) for statement in statements]
    tables = {block.key for block in old if not block.key.startswith(_UNNAMED)}
    merged = new if tables <= {block.key for block in new} else _merged(old, new)
    return "".join(f"{block.text}\n" for block in merged)


def _sql_block(statement: Statement) -> _Block:
    table = statement_table(statement.text)
    # A comment at the end of an unterminated statement would swallow a semicolon on its line.
    ends = (";", "\n;") if not statement.terminated else ("",)
    text = next(
        (statement.text + end for end in ends if sqlite3.complete_statement(statement.text + end)), statement.text
    )
    if table is not None:
        return _Block(table.casefold(), text)
    view = _VIEW.match(statement.text)
    return _Block(f"view {view.group(1).casefold()}" if view else _UNNAMED + " ".join(text.split()), text)
