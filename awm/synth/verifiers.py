"""Verifiers: for each task, code that compares initial and final state and the answer, tried on the untouched state."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from awm.config import SandboxConfig, VerifiersConfig
from awm.env.database import open_database, table_counts
from awm.env.errors import EnvironmentFault, ModuleError
from awm.env.host import Sandbox
from awm.env.sql import quote_identifier
from awm.models import Outcome, Scenario, Task, Toolset
from awm.synth.loop.step import Item, Problem
from awm.synth.tools import STANDARD_LIBRARY, Code, module_problems, read_python
from awm.verify.code import read_verdict, verdict_problem

__all__ = ["VerifierSubject", "VerifiersStep", "item_id", "table_rows", "verifier_items"]


@dataclass(frozen=True)
class VerifierSubject:
    """What a verifier is written for."""

    scenario: Scenario
    schema: str
    toolset: Toolset
    snapshot: bytes
    clock: str
    content_hash: str
    task: Task


@dataclass(frozen=True)
class TableRows:
    """The rows of a table as a request shows them."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    more: int


def item_id(slug: str, task: Task) -> str:
    """Id of a task's verifier: `slug/03`."""
    return f"{slug}/{task.number:02d}"


class VerifiersStep:
    """Asks for the verifier of one task. The answer is its source; its parts are the top-level definitions."""

    name = "verifiers"
    prompt = "verifiers"
    answer_model = None

    def __init__(self, config: VerifiersConfig, sandbox: Sandbox) -> None:
        self.config = config
        self.sandbox = sandbox

    def variables(self, item: Item) -> dict[str, Any]:
        """Values for the prompt file."""
        subject: VerifierSubject = item.subject
        return {
            "scenario": subject.scenario,
            "schema": subject.schema.strip(),
            "tables": table_rows(subject.snapshot, self.config.max_rows_shown),
            "clock": subject.clock,
            "toolset": subject.toolset,
            "task": subject.task,
            "allowed_imports": ("awm.env.verifier", *STANDARD_LIBRARY),
        }

    def read(self, content: str, item: Item, previous: str | None) -> str:
        """The verifier of the answer."""
        return read_python(content, previous)

    def check(self, answer: str, item: Item) -> list[Problem]:
        """Lint, then run on the untouched state without an answer: it must report, and must not say completed."""
        subject: VerifierSubject = item.subject
        try:
            result = self.sandbox.verify(answer, subject.snapshot, subject.snapshot, None, clock=subject.clock)
        except ModuleError as error:
            return module_problems(error, answer)
        except EnvironmentFault as fault:
            return [Problem("crash", f"the verifier ended its process: {fault}", "verify")]
        if (problem := verdict_problem(result)) is not None:
            return [
                Problem(result.kind if not result.ok else "shape", f"on the unchanged database: {problem}", "verify")
            ]
        if read_verdict(result).verdict is Outcome.COMPLETED:
            message = 'says "completed" on the unchanged database with no answer'
            return [Problem("passes_untouched", message, "verify")]
        return []

    def excerpt(self, answer: str, parts: Sequence[str]) -> str:
        """The whole verifier: they are short, and what fails in one function often has its cause in another."""
        return f"```python\n{answer.strip()}\n```"

    def artifact(self, answer: str, item: Item) -> Code:
        """The verifier as it was tried."""
        return Code(source=answer)


def table_rows(snapshot: bytes, limit: int) -> list[TableRows]:
    """The rows of every table in the order of their keys, at most `limit` each, with values as SQL literals."""
    connection = open_database(snapshot)
    try:
        return [_table_rows(connection, name, limit) for name in table_counts(connection)]
    finally:
        connection.close()


def _table_rows(connection: sqlite3.Connection, table: str, limit: int) -> TableRows:
    columns = connection.execute(f"PRAGMA table_xinfo({quote_identifier(table)})").fetchall()
    keys = [column["name"] for column in sorted(columns, key=lambda column: int(column["pk"])) if column["pk"]]
    order = ", ".join(quote_identifier(name) for name in keys or [column["name"] for column in columns])
    literals = ", ".join(f"quote({quote_identifier(column['name'])})" for column in columns)
    rows = connection.execute(f"SELECT {literals} FROM {quote_identifier(table)} ORDER BY {order}").fetchall()
    shown = tuple(", ".join(str(value) for value in row) for row in rows[:limit])
    return TableRows(table, tuple(column["name"] for column in columns), shown, max(0, len(rows) - limit))


def verifier_items(subjects: Sequence[VerifierSubject], config: VerifiersConfig, sandbox: SandboxConfig) -> list[Item]:
    """One item per task."""
    return [
        Item(
            item_id(subject.scenario.slug, subject.task),
            subject,
            [
                subject.scenario.model_dump(),
                subject.schema,
                subject.toolset.model_dump(mode="json"),
                subject.content_hash,
                subject.clock,
                subject.task.model_dump(mode="json"),
                config.model_dump(),
                sandbox.model_dump(),
            ],
        )
        for subject in subjects
    ]
