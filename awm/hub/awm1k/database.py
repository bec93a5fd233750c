"""Build a published environment's database: statement by statement, mending what can be mended, noting what is lost.

Foreign keys are off while the rows go in, as where the data comes from: rows that point nowhere are kept, and noted.
The clock is the frozen one, so that `datetime('now', '-3 days')` gives the same rows at every import.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

from awm.env.authorizer import authorize_build
from awm.env.clock import FrozenClock, install
from awm.env.content import dangling_rows, query, tables
from awm.env.database import PAGE_SIZE
from awm.env.sql import quote_identifier, split_statements, statement_kind
from awm.hub.awm1k.reading import TableData, TableSchema
from awm.hub.awm1k.repair import Repair, insert_repairs, table_repairs
from awm.hub.awm1k.report import Finding

__all__ = ["PublishedDatabase"]

_MAX_MB = 15
_STATEMENT_MAX_STEPS = 3_000_000
_STEPS_PER_CHECK = 1_000_000
_SHOWN = 300
_ALLOWED = frozenset({"INSERT", "INSERT OR IGNORE", "INSERT OR REPLACE", "REPLACE", "UPDATE", "DELETE"})
_SYNTAX = re.compile(r"syntax error|unrecognized token|incomplete input|values for \d+ columns|unterminated")


@dataclass
class PublishedDatabase:
    """A database that grows, first by its schema, then by its rows.

    Use `create` first; `snapshot` and `adopt` let the module add the tables of its models that are missing; `insert`
    then fills them.
    """

    clock: FrozenClock
    findings: list[Finding] = field(default_factory=list)
    missing: list[tuple[TableSchema, str]] = field(default_factory=list)
    """Tables whose DDL does not run, with the reason."""

    def __post_init__(self) -> None:
        """Start empty."""
        self.clock.restart()
        self._steps = 0
        self.connection = self._open(b"")

    def create(self, schema: Iterable[TableSchema]) -> None:
        """Make the tables, then their indexes."""
        schema = list(schema)
        for table in schema:
            error = self._try_each(table.ddl)
            if error is None:
                continue
            if "already exists" in error:
                self._note("left out", "schema", error, table.name, None, table.ddl)
                continue
            repair = self._first_that_runs(table_repairs(table.ddl))
            if repair is None:
                self.missing.append((table, error))
            else:
                self._note("repaired", "schema", f"{error}: {repair.change}", table.name, None, table.ddl)
        for table in schema:
            for index in table.indexes:
                if not any(table is broken for broken, _ in self.missing):
                    error = self._try_each(index)
                    if error is not None:
                        self._note("left out", "schema", error, table.name, None, index)

    def snapshot(self) -> bytes:
        """Return the database as it is now."""
        return self.connection.serialize()

    def lacks(self, sample: Iterable[TableData]) -> bool:
        """Tell whether a table is missing that there are rows for, or that the schema should have given."""
        known = {table.name.lower() for table in tables(self.connection)}
        return bool(self.missing) or any(table.table_name.lower() not in known for table in sample)

    def adopt(self, started: bytes) -> None:
        """Take over the tables, without rows, that the module makes when it starts.

        :param started: This database after the module started on it; b"" if the module does not start.
        """
        broken = {table.name.lower(): (table, error) for table, error in self.missing}
        for name, statements in _new_tables(self.connection, started).items():
            if self._try_each("\n".join(statements)) is None:
                schema, error = broken.pop(name.lower(), (None, "the published schema lacks it"))
                text = schema.ddl if schema else None
                self._note("repaired", "schema", f"{error}: made from the module's model", name, None, text)
        for schema, error in broken.values():
            self._note("left out", "schema", error, schema.name, None, schema.ddl)
        self.missing = []

    def insert(self, sample: Iterable[TableData]) -> None:
        """Fill the tables, each row that can't be mended left out."""
        for table in sample:
            for row, statement in enumerate(table.insert_statements, 1):
                error = self._try_each(statement)
                if error is None:
                    continue
                repair = self._first_that_runs(insert_repairs(statement)) if _SYNTAX.search(error) else None
                if repair is None:
                    self._note("left out", "sample", error, table.table_name, row, statement)
                else:
                    self._note("repaired", "sample", f"{error}: {repair.change}", table.table_name, row, statement)

    def finish(self) -> bytes:
        """Note the rows that point nowhere, and return the database."""
        for table in tables(self.connection):
            rows = [row[1] for row in self._dangling(table.name)]
            for number, problem in enumerate(dangling_rows(self.connection, table.name)):
                row = rows[number] if number < len(rows) else None
                self._note("kept", "sample", problem, table.name, row, None)
        self.connection.set_authorizer(None)
        self.connection.set_progress_handler(None, 0)
        with closing(self.connection) as connection:
            connection.execute("VACUUM")
            return connection.serialize()

    def _dangling(self, table: str) -> list[tuple[object, ...]]:
        try:
            return query(self.connection, f"PRAGMA foreign_key_check({quote_identifier(table)})")
        except sqlite3.OperationalError:  # the foreign key itself is wrong, which `dangling_rows` says
            return []

    def _open(self, snapshot: bytes) -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:", isolation_level=None)
        if snapshot:
            connection.deserialize(snapshot)
        connection.execute(f"PRAGMA page_size={PAGE_SIZE}")
        connection.execute("PRAGMA temp_store=MEMORY")
        connection.execute(f"PRAGMA max_page_count={(_MAX_MB << 20) // PAGE_SIZE}")
        connection.set_progress_handler(self._count_steps, _STEPS_PER_CHECK)
        connection.set_authorizer(authorize_build)
        install(connection, self.clock)
        return connection

    def _count_steps(self) -> bool:
        self._steps += _STEPS_PER_CHECK
        return self._steps > _STATEMENT_MAX_STEPS

    def _try_each(self, text: str) -> str | None:
        """Run the statements of a text, all or none; return what is wrong."""
        self._steps = 0
        self.connection.execute("SAVEPOINT statement")
        error = next(self._failures(text), None)
        if error is not None and self.connection.in_transaction:
            self.connection.execute("ROLLBACK TO statement")
        if self.connection.in_transaction:
            self.connection.execute("RELEASE statement")
        return error

    def _failures(self, text: str) -> Iterator[str]:
        statements = split_statements(text)
        if not statements:
            yield "there is no statement"
        for statement in statements:
            kind = statement_kind(statement.text)
            if kind not in _ALLOWED and not kind.startswith("CREATE "):
                yield f"{kind} has no place here"
                continue
            try:
                self.connection.execute(statement.text).fetchall()
            except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
                yield str(error)

    def _first_that_runs(self, repairs: Iterable[Repair]) -> Repair | None:
        return next((repair for repair in repairs if self._try_each(repair.text) is None), None)

    def _note(self, action: str, part: str, reason: str, table: str | None, row: object, statement: str | None) -> None:
        if statement is not None and len(statement) > _SHOWN:
            statement = statement[:_SHOWN] + "..."
        values = {"action": action, "part": part, "reason": reason, "table": table, "row": row, "statement": statement}
        self.findings.append(Finding.model_validate(values))


def _new_tables(connection: sqlite3.Connection, started: bytes) -> dict[str, list[str]]:
    """Return the SQL of the tables, with their indexes, that a database has and a connection lacks."""
    known = {table.name.lower() for table in tables(connection)}
    found: dict[str, list[str]] = {}
    if not started:
        return found
    with closing(sqlite3.connect(":memory:")) as other:
        other.deserialize(started)
        schema = "SELECT tbl_name, sql FROM sqlite_schema WHERE type IN ('table', 'index') AND sql IS NOT NULL"
        for name, sql in query(other, f"{schema} ORDER BY type = 'index', rowid"):
            if name.lower() not in known and not name.startswith("sqlite_"):
                found.setdefault(name, []).append(f"{sql};")
    return found
