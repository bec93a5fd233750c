"""Arguments for trying tools: valid ones drawn from real rows, ids that don't exist, and malformed values.

A parameter that names an existing row says so in the toolset (`column`). Values for several such parameters
are drawn from rows that belong together: a child row and the parent that it refers to, before any two rows at random.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from awm.env.database import open_database
from awm.env.sql import quote_identifier
from awm.models import Parameter, ToolSpec

__all__ = ["Rows", "changed_rows", "draw_arguments", "malformed_arguments", "missing_id_arguments"]

USER_ID = 1
MISSING_ID = 987_654_321
MISSING_TEXT = "no-such-value-987654321"

_WRONG_TYPE: dict[str, tuple[Any, ...]] = {
    "string": (12345, ["x"]),
    "integer": ("abc", 1.5, [1]),
    "number": ("abc", [1]),
    "boolean": ("perhaps", [True]),
    "array": ("abc", {"a": 1}),
    "object": ("abc", [1]),
}
_ODD: dict[str, tuple[Any, ...]] = {
    "string": (
        "",
        "   ",
        "x" * 5000,
        "O'Brien\"; DROP TABLE users; --",
        "not-a-date",
        "2026-02-30",
        "%",
        "ünïcödé \u2603",
    ),
    "integer": (0, -1, 10**12),
    "number": (0, -1.5, 1e12),
    "boolean": (),
    "array": ([],),
    "object": ({},),
}


@dataclass(frozen=True)
class _Reference:
    """A foreign key of one column."""

    column: str
    parent: str
    parent_column: str


class Rows:
    """The rows of an initial state and how they refer to each other, read once."""

    def __init__(self, snapshot: bytes) -> None:
        connection = open_database(snapshot)
        try:
            names = [
                row["name"]
                for row in connection.execute("PRAGMA table_list")
                if row["schema"] == "main" and row["type"] == "table" and not row["name"].startswith("sqlite_")
            ]
            self.rows = {name: _rows(connection, name) for name in sorted(names)}
            self.references = {name: _references(connection, name) for name in sorted(names)}
            self.keys = {name: _primary_key(connection, name) for name in sorted(names)}
        finally:
            connection.close()
        self._own: dict[str, list[dict[str, Any]]] = {}

    def source(self, column: str) -> tuple[str, str]:
        """Table and column that valid values come from: a foreign key stands for the key that it refers to."""
        table, _, name = column.partition(".")
        for reference in self.references[table]:
            if reference.column == name:
                return reference.parent, reference.parent_column
        return table, name

    def own(self, table: str) -> list[dict[str, Any]]:
        """The signed-in user's rows of a table, by their own reference to `users` or their parents'."""
        if table not in self._own:
            self._own[table] = [row for row in self.rows[table] if self._owner(table, row) == USER_ID]
        return self._own[table]

    def _owner(self, table: str, row: dict[str, Any], depth: int = 0) -> Any:
        """User that a row belongs to; None when there is none."""
        if table == "users":
            return row.get("id")
        direct = [row[reference.column] for reference in self.references[table] if reference.parent == "users"]
        if direct:
            return USER_ID if USER_ID in direct else direct[0]
        for reference in self.references[table] if depth < 3 else ():
            for parent in self.rows[reference.parent]:
                if parent[reference.parent_column] == row[reference.column]:
                    owner = self._owner(reference.parent, parent, depth + 1)
                    if owner is not None:
                        return owner
        return None

    def names_a_row(self, column: str) -> bool:
        """Whether values of a column are primary keys, so that an unknown one is a mistake and no empty filter."""
        table, name = self.source(column)
        return self.keys[table] == [name]


def _rows(connection: sqlite3.Connection, table: str) -> list[dict[str, Any]]:
    found = [dict(row) for row in connection.execute(f"SELECT * FROM {quote_identifier(table)}")]
    return sorted(found, key=repr)


def _references(connection: sqlite3.Connection, table: str) -> list[_Reference]:
    keys = connection.execute(f"PRAGMA foreign_key_list({quote_identifier(table)})").fetchall()
    composite = {key["id"] for key in keys if key["seq"] > 0}
    references = []
    for key in keys:
        if key["id"] in composite:
            continue
        target = key["to"] or next(iter(_primary_key(connection, key["table"])), "rowid")
        references.append(_Reference(key["from"], key["table"], target))
    return sorted(references, key=repr)


def _primary_key(connection: sqlite3.Connection, table: str) -> list[str]:
    columns = connection.execute(f"PRAGMA table_xinfo({quote_identifier(table)})").fetchall()
    return [column["name"] for column in sorted(columns, key=lambda column: int(column["pk"])) if column["pk"]]


def changed_rows(before: Rows, after: Rows) -> dict[str, dict[str, Any]]:
    """For each table that differs, the first row that is new or not as it was."""
    changed = {}
    for table, rows in after.rows.items():
        known = {repr(row) for row in before.rows[table]}
        if fresh := next((row for row in rows if repr(row) not in known), None):
            changed[table] = fresh
    return changed


def draw_arguments(
    tool: ToolSpec, rows: Rows, seed: str, pinned: Mapping[str, dict[str, Any]] | None = None
) -> Iterator[dict[str, Any]]:
    """Endless valid arguments, the plainest first: required parameters alone, then all, then any mixture.

    `pinned` rows, by table, are taken before any other row of their table.
    """
    rng = random.Random(f"{seed}/{tool.name}")
    optional = [parameter for parameter in tool.parameters if not parameter.required]
    required = [parameter for parameter in tool.parameters if parameter.required]
    turn = 0
    while True:
        if turn % 3 == 0:
            chosen = required
        elif turn % 3 == 1:
            chosen = list(tool.parameters)
        else:
            chosen = required + [parameter for parameter in optional if rng.random() < 0.5]
        yield _draw(chosen, rows, rng, pinned or {}, plain=turn < 2)
        turn += 1


def _draw(
    parameters: Sequence[Parameter],
    rows: Rows,
    rng: random.Random,
    pinned: Mapping[str, dict[str, Any]],
    *,
    plain: bool,
) -> dict[str, Any]:
    chosen: dict[str, dict[str, Any]] = {}
    drawn: dict[str, Any] = {}
    order = [parameter for parameter in parameters if parameter.column]
    rng.shuffle(order)
    own = rng.random() < 0.7
    for parameter in order:
        assert parameter.column is not None
        table, column = rows.source(parameter.column)
        if table in pinned and table not in chosen:
            chosen[table] = pinned[table]
            value = pinned[table][column]
        else:
            value = _row_value(table, column, rows, chosen, rng, own=own)
        if value is not None:
            drawn[parameter.name] = _shaped(value, parameter, table, column, rows, rng)
    for parameter in parameters:
        if parameter.name not in drawn and not parameter.column:
            drawn[parameter.name] = _free_value(parameter, rng, plain=plain)
    return {parameter.name: drawn[parameter.name] for parameter in parameters if parameter.name in drawn}


def _row_value(
    table: str, column: str, rows: Rows, chosen: dict[str, dict[str, Any]], rng: random.Random, *, own: bool
) -> Any:
    """A value of a row that goes with the rows chosen so far, most of the time; None when the table has none."""
    candidates = _related(table, rows, chosen) if rng.random() < 0.8 else []
    if not candidates:
        candidates = (own and rows.own(table)) or rows.rows[table]
    candidates = [row for row in candidates if row[column] is not None]
    if not candidates:
        return None
    row = rng.choice(candidates)
    if table not in chosen:
        chosen[table] = row
    return row[column]


def _related(table: str, rows: Rows, chosen: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a table that go with a chosen row; none when the tables have nothing to do with each other.

    That is, in this order: what the chosen row refers to, what refers to it, and what a third table links it to.
    """
    if table in chosen:
        return [row for row in rows.rows[table] if row != chosen[table]]
    for name, row in chosen.items():
        for reference in rows.references[name]:
            if reference.parent == table and row[reference.column] is not None:
                return [
                    parent for parent in rows.rows[table] if parent[reference.parent_column] == row[reference.column]
                ]
    for reference in rows.references[table]:
        if reference.parent in chosen:
            value = chosen[reference.parent][reference.parent_column]
            return [row for row in rows.rows[table] if row[reference.column] == value]
    return [row for name in chosen for row in _linked(table, name, rows, chosen[name])]


def _linked(table: str, other: str, rows: Rows, row: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of a table that some third table links to a row of another one."""
    for link, references in rows.references.items():
        there = next((reference for reference in references if reference.parent == other), None)
        here = next((reference for reference in references if reference.parent == table), None)
        if there is None or here is None or "users" in (table, other):
            continue
        values = [entry[here.column] for entry in rows.rows[link] if entry[there.column] == row[there.parent_column]]
        if found := [entry for entry in rows.rows[table] if entry[here.parent_column] in values]:
            return found
    return []


def _shaped(value: Any, parameter: Parameter, table: str, column: str, rows: Rows, rng: random.Random) -> Any:
    """The value as the parameter takes it: itself, or a list of a few where an array is wanted."""
    if parameter.json_schema["type"] != "array":
        return value
    others = [row[column] for row in rows.rows[table] if row[column] not in (None, value)]
    return [value, *rng.sample(others, min(len(others), rng.choice((0, 0, 1, 2))))]


def _free_value(parameter: Parameter, rng: random.Random, *, plain: bool) -> Any:
    schema = parameter.json_schema
    if plain:
        return parameter.example
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if schema["type"] == "boolean":
        return rng.random() < 0.5
    if schema["type"] == "integer" and rng.random() < 0.5:
        return rng.choice((1, 2, 3, 5, 10, 60))
    return parameter.example


def missing_id_arguments(
    tool: ToolSpec, rows: Rows, valid: dict[str, Any]
) -> Iterator[tuple[Parameter, dict[str, Any]]]:
    """For each parameter that names a row by its primary key: the valid arguments with an id that doesn't exist."""
    for parameter in tool.parameters:
        if parameter.column and rows.names_a_row(parameter.column):
            table, column = rows.source(parameter.column)
            sample = rows.rows[table][0][column] if rows.rows[table] else 0
            value: Any = MISSING_TEXT if isinstance(sample, str) else MISSING_ID
            if parameter.json_schema["type"] == "array":
                value = [value]
            elif parameter.json_schema["type"] == "string" and not isinstance(value, str):
                value = str(value)
            yield parameter, {**valid, parameter.name: value}


def malformed_arguments(tool: ToolSpec, valid: dict[str, Any]) -> Iterator[tuple[str, bool, dict[str, Any]]]:
    """For each parameter: the valid arguments with a value that doesn't fit.

    Yields (what is wrong, whether it must be refused, arguments). A value of the wrong type must be refused; an odd one
    of the right type may be refused or not, but must not crash the tool.
    """
    for parameter in tool.parameters:
        kind = parameter.json_schema["type"]
        for value in _WRONG_TYPE.get(kind, ()):
            yield f"{parameter.name} = {value!r}", True, {**valid, parameter.name: value}
        if "enum" in parameter.json_schema:
            yield f"{parameter.name} = 'no-such-choice'", True, {**valid, parameter.name: "no-such-choice"}
        for value in _ODD.get(kind, ()):
            shown = repr(value) if len(repr(value)) < 60 else f"a text of {len(value)} characters"
            yield f"{parameter.name} = {shown}", False, {**valid, parameter.name: value}
        if parameter.required:
            yield f"without {parameter.name}", True, {k: v for k, v in valid.items() if k != parameter.name}
