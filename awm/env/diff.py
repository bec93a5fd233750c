"""What changed between two states of a database: rows added, removed and changed, per table."""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Iterable
from typing import Any

from awm.env.content import Table, query, tables
from awm.env.sql import quote_identifier

__all__ = ["state_diff"]

_Row = tuple[Any, ...]
_JsonRow = dict[str, Any]


def state_diff(initial: sqlite3.Connection, final: sqlite3.Connection) -> dict[str, dict[str, list[_JsonRow]]]:
    """Return what changed, by table, for tables with changes only; `{}` if nothing did.

    ```python
    {"orders": {"added": [{"id": 8, "status": "new"}],
                "removed": [],
                "changed": [{"key": {"id": 3}, "before": {"status": "new"}, "after": {"status": "cancelled"}}]}}
    ```

    Rows are matched by primary key. A table without one goes by rowid, and its key is `{"rowid": 5}`; so does a row
    with NULL in its primary key. `before` and `after` hold only the columns that changed, generated ones too. A row
    whose key changed is one removed and one added.

    Values are JSON's: blobs are given in hex, an infinite number as "inf" or "-inf". Numbers are compared by value,
    so 1 and 1.0 are the same. Tables come by name, rows by key. Full-text and other virtual tables count with their
    rows; the tables inside them, and full-text tables over another table's rows, don't. A table whose columns differ on
    the two sides counts as removed and added. Both connections may be read-only.
    """
    before = {table.name: table for table in tables(initial)}
    same_schema = _schema(initial) == _schema(final)
    after = before if same_schema else {table.name: table for table in tables(final)}
    found = {}
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        old_rows, new_rows = _rows(initial, old), _rows(final, new)
        if old == new and old_rows == new_rows:
            continue
        change = _change(old, new, old_rows, new_rows)
        if any(change.values()):
            found[name] = change
    return found


def _schema(connection: sqlite3.Connection) -> list[_Row]:
    return query(connection, "SELECT type, name, sql FROM sqlite_schema")


def _rows(connection: sqlite3.Connection, table: Table | None) -> list[_Row]:
    """Return the rows of a table, each with its rowid (or None) in front."""
    if table is None:
        return []
    return query(connection, f"SELECT {table.rowid or 'NULL'}, * FROM {quote_identifier(table.name)}")


def _change(
    old: Table | None, new: Table | None, old_rows: list[_Row], new_rows: list[_Row]
) -> dict[str, list[_JsonRow]]:
    if old is None or new is None or old.columns != new.columns or old.key != new.key:
        removed = [] if old is None else _as_dicts(old, old_rows)
        added = [] if new is None else _as_dicts(new, new_rows)
        return {"added": added, "removed": removed, "changed": []}
    old_keyed, new_keyed = _by_key(new, old_rows), _by_key(new, new_rows)
    has_key = bool(new.key) or new.rowid is not None
    if not has_key or len(old_keyed) < len(old_rows) or len(new_keyed) < len(new_rows):
        return _unkeyed_change(new, old_rows, new_rows)
    return _keyed_change(new, old_keyed, new_keyed)


def _unkeyed_change(table: Table, old_rows: list[_Row], new_rows: list[_Row]) -> dict[str, list[_JsonRow]]:
    old, new = Counter(old_rows), Counter(new_rows)
    return {
        "added": _as_dicts(table, (new - old).elements()),
        "removed": _as_dicts(table, (old - new).elements()),
        "changed": [],
    }


def _keyed_change(table: Table, old: dict[_Row, _Row], new: dict[_Row, _Row]) -> dict[str, list[_JsonRow]]:
    changed = [key for key in old.keys() & new.keys() if old[key][1:] != new[key][1:]]
    return {
        "added": [_as_dict(table, new[key]) for key in sorted(new.keys() - old.keys(), key=_order)],
        "removed": [_as_dict(table, old[key]) for key in sorted(old.keys() - new.keys(), key=_order)],
        "changed": [_changed_row(table, key, old[key], new[key]) for key in sorted(changed, key=_order)],
    }


def _by_key(table: Table, rows: list[_Row]) -> dict[_Row, _Row]:
    positions = [1 + table.columns.index(column) for column in table.key]
    keyed = {}
    for row in rows:
        key = tuple([row[position] for position in positions])
        if not key or None in key:
            key = (*key, row[0])
        keyed[key] = row
    return keyed


def _changed_row(table: Table, key: _Row, old: _Row, new: _Row) -> _JsonRow:
    names = table.key if len(key) == len(table.key) else (*table.key, "rowid")
    values = zip(table.columns, old[1:], new[1:], strict=True)
    differences = [(column, before, after) for column, before, after in values if before != after]
    return {
        "key": {name: _json(value) for name, value in zip(names, key, strict=True)},
        "before": {column: _json(before) for column, before, _ in differences},
        "after": {column: _json(after) for column, _, after in differences},
    }


def _as_dicts(table: Table, rows: Iterable[_Row]) -> list[_JsonRow]:
    return [_as_dict(table, row) for row in sorted(rows, key=_order)]


def _as_dict(table: Table, row: _Row) -> _JsonRow:
    return {column: _json(value) for column, value in zip(table.columns, row[1:], strict=True)}


def _json(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    return value


def _order(row: _Row) -> list[tuple[int, Any]]:
    """Sort as SQLite does: NULL, numbers, text, blobs."""
    return [
        (0, 0)
        if value is None
        else (3, value)
        if isinstance(value, bytes)
        else (2 if isinstance(value, str) else 1, value)
        for value in row
    ]
