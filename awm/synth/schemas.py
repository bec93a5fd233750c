"""Schemas: the SQLite DDL of a scenario, executed with foreign keys on before it is kept."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from typing import Any

from awm.config import SchemasConfig
from awm.env.clock import FrozenClock
from awm.env.database import StatementError, open_database, try_build
from awm.env.sql import quote_identifier, split_statements, statement_kind, statement_table
from awm.llm.parsing import MalformedAnswer, parse_code
from awm.models import Artifact, Scenario, TaskSet
from awm.synth.blocks import merge_sql
from awm.synth.loop.step import Item, Problem

__all__ = ["SchemasStep", "Sql", "SqlStep", "read_sql", "schema_items", "sql_excerpt", "statement_problems"]

_SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*\Z")
EXCERPT_WITHOUT_PARTS = 4000


class Sql(Artifact):
    """A script of SQL statements."""

    sql: str


def read_sql(content: str, previous: str | None) -> str:
    """The SQL of an answer; a repair replaces the statements of the tables that it names."""
    sql = parse_code(content, "sql")
    try:
        return merge_sql(previous, sql) if previous is not None else sql.strip() + "\n"
    except ValueError as error:
        raise MalformedAnswer(str(error)) from None


def sql_excerpt(sql: str, parts: Sequence[str]) -> str:
    """The statements for the named tables, as one code block; the script's beginning when none is named."""
    statements = [entry.text for entry in split_statements(sql) if statement_table(entry.text) in parts]
    return "```sql\n" + ("\n".join(statements) if statements else sql[:EXCERPT_WITHOUT_PARTS]) + "\n```"


def statement_problems(sql: str, kinds: tuple[str, ...]) -> list[Problem]:
    """Statements of another kind than allowed, and a last statement that was cut off."""
    problems = []
    for statement in split_statements(sql):
        part = statement_table(statement.text)
        if not statement.terminated:
            problems.append(Problem("unfinished", f"line {statement.line}: the last statement has no end", part))
        elif (kind := statement_kind(statement.text)) not in kinds:
            allowed = " and ".join(kinds)
            problems.append(Problem("statement", f"line {statement.line}: {kind} is not allowed, only {allowed}", part))
    return problems


class SqlStep:
    """What the steps whose answer is a script share. The answer is its SQL text; its parts are the tables."""

    answer_model = None

    def read(self, content: str, item: Item, previous: str | None) -> str:
        """The statements of the answer."""
        return read_sql(content, previous)

    def excerpt(self, answer: str, parts: Sequence[str]) -> str:
        """The statements for the named tables."""
        return sql_excerpt(answer, parts)

    def artifact(self, answer: str, item: Item) -> Sql:
        """The script as it was executed."""
        return Sql(sql=answer)


class SchemasStep(SqlStep):
    """Asks for the schema of one scenario."""

    name = "schemas"
    prompt = "schemas"

    def __init__(self, config: SchemasConfig, clock: str) -> None:
        self.config = config
        self.clock = clock

    def variables(self, item: Item) -> dict[str, Any]:
        """Values for the prompt file."""
        scenario, tasks = item.subject
        return {"scenario": scenario, "tasks": tasks.tasks, **self.config.model_dump()}

    def check(self, answer: str, item: Item) -> list[Problem]:
        """Execute every statement, then look at the tables that came of it."""
        problems = statement_problems(answer, ("CREATE TABLE", "CREATE INDEX"))
        result = try_build(split_statements(answer), FrozenClock(self.clock))
        problems += [
            Problem("sql", f"line {error.line}: {error.message}", _table_of(error)) for error in result.problems
        ]
        if problems or result.snapshot is None:
            return problems
        connection = open_database(result.snapshot)
        try:
            return self._tables(connection)
        finally:
            connection.close()

    def _tables(self, connection: sqlite3.Connection) -> list[Problem]:
        tables = {row["name"]: row for row in connection.execute("PRAGMA table_list") if _is_own(row)}
        problems = []
        if not self.config.min_tables <= len(tables) <= self.config.max_tables:
            wanted = f"{self.config.min_tables} to {self.config.max_tables}"
            problems.append(Problem("size", f"there are {len(tables)} tables; {wanted} are wanted"))
        if "users" not in tables:
            problems.append(Problem("users", 'there is no table "users"'))
        for name in sorted(tables):
            problems += _table_problems(connection, name)
        return problems


def _table_of(error: StatementError) -> str | None:
    """The table that an error concerns; a mismatched reference shows only once all statements are through."""
    mismatch = re.search(r'foreign key mismatch - "(\w+)"', error.message)
    return mismatch.group(1) if mismatch else statement_table(error.statement)


def _is_own(row: sqlite3.Row) -> bool:
    return row["schema"] == "main" and row["type"] == "table" and not row["name"].startswith("sqlite_")


def _table_problems(connection: sqlite3.Connection, table: str) -> list[Problem]:
    columns = connection.execute(f"PRAGMA table_xinfo({quote_identifier(table)})").fetchall()
    keys = [column["name"] for column in columns if column["pk"]]
    problems = []
    if not keys:
        problems.append(Problem("primary_key", f"table {table} has no primary key", table))
    if table == "users" and keys != ["id"]:
        problems.append(Problem("users", 'the primary key of "users" must be "id"', table))
    problems += [
        Problem("naming", f"{name!r} is not snake_case", table)
        for name in (table, *(column["name"] for column in columns))
        if not _SNAKE.match(name)
    ]
    return problems


def schema_items(scenarios: Sequence[Scenario], tasks: dict[str, TaskSet], step: SchemasStep) -> list[Item]:
    """One item per scenario that has tasks."""
    return [
        Item(
            scenario.slug,
            (scenario, tasks[scenario.slug]),
            [
                scenario.model_dump(),
                tasks[scenario.slug].model_dump(mode="json"),
                step.config.model_dump(),
                step.clock,
            ],
        )
        for scenario in scenarios
        if scenario.slug in tasks
    ]
