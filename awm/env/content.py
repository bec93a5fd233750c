"""What a database holds: its tables and rows, their hash, and what is wrong with them.

Read-only, and usable on a read-only connection. Import these names from `awm.env.database`.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from awm.env.sql import quote_identifier

__all__ = [
    "DamagedDatabase",
    "Table",
    "dangling_rows",
    "dormant_problems",
    "hash_content",
    "integrity_problems",
    "naming_damage",
    "query",
    "table_counts",
    "tables",
]

_MAX_PROBLEMS = 100
_ROWID_NAMES = ("rowid", "_rowid_", "oid")
# A full-text table with this option holds an index of rows that are elsewhere, or nowhere.
_EXTERNAL_CONTENT = re.compile(r"\bUSING\s+fts[345]\b.*\bcontent\s*=", re.IGNORECASE | re.DOTALL)

_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class DamagedDatabase(ValueError):
    """Bytes that are no SQLite database, or one that can't be read; the message says what SQLite found."""


@contextmanager
def naming_damage() -> Iterator[None]:
    """Turn what reading a damaged database raises into DamagedDatabase; errors of another kind pass."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _DAMAGE:
            raise
        raise DamagedDatabase(f"the database is damaged ({error}): build it again") from error
    except UnicodeDecodeError as error:
        raise DamagedDatabase(f"the database is damaged (text that is not UTF-8: {error}): build it again") from error


@dataclass(frozen=True)
class Table:
    """A table that holds rows: an ordinary one, or a virtual one such as a full-text index.

    `columns` are all that `SELECT *` gives; `generated` are those among them that SQLite computes; `key` are the
    columns of the primary key, in its order. `rowid` is a name under which the rowid can be read, if there is one.
    """

    name: str
    virtual: bool
    columns: tuple[str, ...]
    generated: frozenset[str]
    key: tuple[str, ...]
    rowid: str | None


def tables(connection: sqlite3.Connection) -> list[Table]:
    """Return the tables that hold rows, by name.

    Left out are SQLite's own tables, the tables inside virtual tables, and full-text tables with a `content=` option,
    whose rows are another table's.
    """
    external = {
        name
        for name, sql in query(connection, "SELECT name, sql FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL%'")
        if _EXTERNAL_CONTENT.search(sql)
    }
    listed = query(connection, "PRAGMA table_list")
    found = sorted(
        (name, kind, without_rowid)
        for schema, name, kind, _, without_rowid, *_ in listed
        if schema == "main" and kind in ("table", "virtual") and not name.startswith("sqlite_") and name not in external
    )
    return [_table(connection, name, kind == "virtual", bool(without_rowid)) for name, kind, without_rowid in found]


@naming_damage()
def table_counts(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the number of rows of each table, by name; raise DamagedDatabase if they can't be read."""
    counts = {}
    for table in tables(connection):
        [(counts[table.name],)] = query(connection, f"SELECT count(*) FROM {quote_identifier(table.name)}")
    return counts


@naming_damage()
def integrity_problems(connection: sqlite3.Connection) -> list[str]:
    """Return what is wrong with a database: rows that point nowhere, and all that SQLite's integrity check finds.

    At most 100 of each; an empty list means it is sound. Raises DamagedDatabase if it can't even be read.
    """
    dangling = (problem for table in tables(connection) for problem in dangling_rows(connection, table.name))
    found = list(islice(dangling, _MAX_PROBLEMS))
    checked = query(connection, f"PRAGMA integrity_check({_MAX_PROBLEMS})")
    return found + [problem for (problem,) in checked if problem != "ok"]


def dangling_rows(connection: sqlite3.Connection, table: str) -> Iterator[str]:
    """Describe each row of a table that a foreign key of it does not find: column, value, parent, rowid."""
    quoted = quote_identifier(table)
    try:
        violations = query(connection, f"PRAGMA foreign_key_check({quoted})")
    except sqlite3.OperationalError as error:
        if not str(error).startswith("foreign key mismatch"):
            raise
        yield f"{error}: the columns it refers to are neither its primary key nor unique"
        return
    keys: dict[int, list[tuple[str, str | None]]] = {}
    for number, _, _, column, target, *_ in query(connection, f"PRAGMA foreign_key_list({quoted})"):
        keys.setdefault(number, []).append((column, target))
    for _, rowid, parent, number in violations:
        columns = [column for column, _ in keys[number]]
        targets = [target for _, target in keys[number] if target]
        place = parent + (f"({', '.join(targets)})" if targets else "")
        if rowid is None:
            yield f"{table}: a row's {', '.join(columns)} has no match in {place}"
            continue
        names = ", ".join(quote_identifier(column) for column in columns)
        [values] = query(connection, f"SELECT {names} FROM {quoted} WHERE rowid = ?", (rowid,))
        pairs = ", ".join(f"{column} = {value!r}" for column, value in zip(columns, values, strict=True))
        yield f"{table}, row {rowid}: {pairs} has no match in {place}"


def dormant_problems(connection: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Find what would fail only when used: the name of the table, view or trigger, and what is wrong with it."""
    names = {table.name for table in tables(connection)}
    known = {name.lower() for name in names}
    for name in sorted(names):
        for _, _, parent, *_ in query(connection, f"PRAGMA foreign_key_list({quote_identifier(name)})"):
            if parent.lower() not in known:
                yield name, f"no such table: {parent}, which {name} refers to"
    for kind, name, target in query(connection, "SELECT type, name, tbl_name FROM sqlite_schema ORDER BY type, name"):
        if kind not in ("view", "trigger"):
            continue
        for statement in _trial_statements(connection, kind, target):
            try:
                query(connection, statement)
            except sqlite3.OperationalError as error:
                if kind == "trigger" and str(error).startswith("cannot modify"):
                    continue  # a view without a trigger for this event
                yield name, f"{kind} {name} can never run: {error}"
                break


def _trial_statements(connection: sqlite3.Connection, kind: str, target: str) -> list[str]:
    """Return statements that compile a view, or all triggers of a table, and change nothing."""
    quoted = quote_identifier(target)
    if kind == "view":
        return [f"EXPLAIN SELECT * FROM {quoted}"]
    columns = [quote_identifier(row[1]) for row in query(connection, f"PRAGMA table_xinfo({quoted})") if row[6] == 0]
    assignments = ", ".join(f"{column} = {column}" for column in columns)
    return [
        f"EXPLAIN INSERT INTO {quoted} DEFAULT VALUES",
        f"EXPLAIN UPDATE {quoted} SET {assignments}",
        f"EXPLAIN DELETE FROM {quoted}",
    ]


def query(connection: sqlite3.Connection, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return all rows of a query as plain tuples, whatever the connection's row factory."""
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor.execute(sql, values).fetchall()


@naming_damage()
def hash_content(connection: sqlite3.Connection) -> str:
    """Return the hash that `awm.env.database.content_hash` documents."""
    digest = hashlib.sha256(b"awm-content-1\n")
    found = tables(connection)
    for part in _schema_objects(connection):
        digest.update(b"o" + _encode_row(part))
    text_factory = connection.text_factory
    connection.text_factory = bytearray  # tells text from blobs without decoding it
    try:
        for table in found:
            digest.update(b"t" + _encode_row((bytearray(table.name.encode()),)))
            for encoded in sorted(map(_encode_row, query(connection, _stored_rows(table)))):
                digest.update(b"r" + encoded)
        for row in _counters(connection):
            digest.update(b"s" + _encode_row(row))
    finally:
        connection.text_factory = text_factory
    return digest.hexdigest()


def _schema_objects(connection: sqlite3.Connection) -> list[tuple[bytearray, ...]]:
    shadows = {row[1] for row in query(connection, "PRAGMA table_list") if row[2] == "shadow"}
    rows = query(
        connection, "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    )
    kept = sorted(row for row in rows if row[2] not in shadows)
    return [tuple(bytearray(value.encode()) for value in row) for row in kept]


def _stored_rows(table: Table) -> str:
    names = [quote_identifier(column) for column in table.columns if column not in table.generated]
    if table.virtual:
        names.insert(0, "rowid")
    return f"SELECT {', '.join(names)} FROM {quote_identifier(table.name)}"


def _counters(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    if not query(connection, "SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_sequence'"):
        return []
    return sorted(query(connection, "SELECT name, seq FROM sqlite_sequence WHERE seq > 0"))


def _encode_row(row: tuple[Any, ...]) -> bytes:
    return b"%d;" % len(row) + b"".join(map(_encode, row))


def _encode(value: int | float | bytes | bytearray | None) -> bytes:
    if value is None:
        return b"n"
    if isinstance(value, int):
        return b"i%d;" % value
    if isinstance(value, float):
        return b"f" + struct.pack(">d", value + 0.0)  # + 0.0 makes -0.0 the 0.0 that it equals
    return b"%c%d;" % (b"x" if isinstance(value, bytes) else b"s", len(value)) + value


def _table(connection: sqlite3.Connection, name: str, virtual: bool, without_rowid: bool) -> Table:
    # hidden: 0 ordinary, 1 a virtual table's own, 2 and 3 generated
    info = [row for row in query(connection, f"PRAGMA table_xinfo({quote_identifier(name)})") if row[6] != 1]
    columns = tuple(row[1] for row in info)
    taken = {column.lower() for column in columns}
    free = next((alias for alias in _ROWID_NAMES if alias not in taken), None)
    return Table(
        name=name,
        virtual=virtual,
        columns=columns,
        generated=frozenset(row[1] for row in info if row[6] in (2, 3)),
        key=tuple(row[1] for row in sorted((row for row in info if row[5]), key=lambda row: row[5])),
        rowid=None if without_rowid else free,
    )
