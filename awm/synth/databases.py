"""Databases: the sample data of a scenario, and the initial state that it makes.

Every statement runs with foreign keys on under the environment's frozen clock; no row may be lost, and user 1
must exist.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from awm.config import DatabasesConfig
from awm.env.clock import FrozenClock
from awm.env.database import build, content_hash, integrity_problems, open_database, table_counts, try_build
from awm.env.sql import split_statements, statement_table
from awm.models import DatabaseSummary
from awm.store import Layout, StoreError
from awm.synth.design import Design
from awm.synth.loop.step import Item, Problem
from awm.synth.schemas import SqlStep, statement_problems

__all__ = ["DatabasesStep", "initial_state", "read_snapshot", "summarise"]


def initial_state(schema: str, data: str, clock: str) -> bytes:
    """The database of a schema and its sample data, as bytes; StatementError for the first statement that fails."""
    return build(split_statements(f"{schema.rstrip()}\n{data}"), FrozenClock(clock))


def read_snapshot(layout: Layout, summary: DatabaseSummary) -> bytes:
    """The initial state of an environment as it was stored; StoreError when it is not what its summary says."""
    snapshot = layout.read_bytes("databases", summary.slug, ".db")
    try:
        found = content_hash(snapshot)
    except (ValueError, KeyError, sqlite3.Error):
        found = ""
    if found != summary.content_hash:
        path = layout.file("databases", summary.slug, ".db")
        raise StoreError(f"{path}: damaged, it is not the database that was built; run `dvc repro -f databases`")
    return snapshot


def summarise(slug: str, snapshot: bytes, clock: str) -> DatabaseSummary:
    """Figures of an initial state."""
    connection = open_database(snapshot)
    try:
        return DatabaseSummary(
            slug=slug, clock=clock, tables=table_counts(connection), content_hash=content_hash(connection)
        )
    finally:
        connection.close()


class DatabasesStep(SqlStep):
    """Asks for the sample data of one scenario."""

    name = "databases"
    prompt = "databases"

    def __init__(self, config: DatabasesConfig) -> None:
        self.config = config

    def variables(self, item: Item) -> dict[str, Any]:
        """Values for the prompt file."""
        design: Design = item.subject
        return {**design.variables(), **self.config.model_dump()}

    def check(self, answer: str, item: Item) -> list[Problem]:
        """Execute every statement on the schema, then look at the rows that came of it."""
        schema = split_statements(item.subject.schema)
        data = split_statements(answer)
        problems = statement_problems(answer, ("INSERT",))
        result = try_build([*schema, *data], FrozenClock(self.config.clock))
        for error in result.problems:
            if error.index < len(schema):
                raise StoreError(f"data/schemas/{item.id}.sql does not execute ({error}); run `dvc repro -f schemas`")
            problems.append(Problem("sql", error.message, statement_table(error.statement)))
        if problems or result.snapshot is None:
            return problems
        connection = open_database(result.snapshot)
        try:
            return self._rows(connection)
        finally:
            connection.close()

    def _rows(self, connection: sqlite3.Connection) -> list[Problem]:
        counts = table_counts(connection)
        problems = [Problem("integrity", message) for message in integrity_problems(connection)]
        problems += [
            Problem("empty_table", f"table {name} is empty", name) for name, count in counts.items() if not count
        ]
        if (total := sum(counts.values())) < self.config.min_rows:
            problems.append(Problem("size", f"there are {total} rows; at least {self.config.min_rows} are wanted"))
        if connection.execute("SELECT 1 FROM users WHERE id = 1").fetchone() is None:
            problems.append(Problem("users", "there is no user with id 1", "users"))
        return problems
