"""The environment's database: built from SQL text, opened from a snapshot, checked and hashed.

A snapshot is the bytes of one SQLite database file. Episodes restore it into memory, so that nothing they do reaches a
file or another episode. Needs SQLite 3.37 or later.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from mmap import mmap
from time import monotonic

from awm.env.authorizer import authorize_build, authorize_reads, authorize_writes
from awm.env.clock import FrozenClock, install
from awm.env.content import (
    DamagedDatabase,
    Table,
    dangling_rows,
    dormant_problems,
    hash_content,
    integrity_problems,
    naming_damage,
    query,
    table_counts,
    tables,
)
from awm.env.sql import SCHEMA_KINDS, Statement, build_refusal, quote_identifier, statement_kind, statement_table

__all__ = [
    "BuildResult",
    "DamagedDatabase",
    "StatementError",
    "Table",
    "build",
    "content_hash",
    "integrity_problems",
    "open_database",
    "page_limit",
    "table_counts",
    "tables",
    "try_build",
]

MAX_PROBLEMS = 20
PAGE_SIZE = 4096
BUILD_MAX_MB = 64
BUILD_MAX_STATEMENTS = 2_000
BUILD_MAX_CHARACTERS = 4_000_000
# For all statements together. A database of 30 tables and 600 rows takes a hundredth of it; an endless recursive query
# ends within seconds, and at the same step on every machine.
BUILD_MAX_STEPS = 3_000_000

_STEPS_PER_CHECK = 1_000
_BUILD_MAX_VALUE_BYTES = 1 << 20
_BUILD_MAX_PATTERN_BYTES = 1_000
_STEPS_PER_DEADLINE_CHECK = 20_000
_MAX_VALUE_BYTES = 16 << 20
_MAX_SQL_BYTES = 1 << 20

_HEADER = b"SQLite format 3\0"
# Journal versions, change counter, schema cookie, version-valid-for, library version: they count writes, not content.
_HEADER_FIELDS = {18: b"\1\1", 24: b"\0\0\0\1", 40: b"\0\0\0\1", 92: b"\0\0\0\1", 96: (3_040_000).to_bytes(4, "big")}

_FULL = "database or disk is full"
_ONCE = ("foreign key mismatch", "no such table: ")  # faults of the schema, which each INSERT would show again


class StatementError(Exception):
    """A statement that can't be part of a database.

    :param index: Position of the statement, from 0; the number of statements if the problem shows only at the end.
    :param line: Line of the statement in its script.
    :param statement: Its text.
    :param message: What is wrong.
    """

    def __init__(self, index: int, line: int, statement: str, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.index = index
        self.line = line
        self.statement = statement
        self.message = message


@dataclass(frozen=True)
class BuildResult:
    """What a build gave: a snapshot, or else the problems that stand in its way, at most 20."""

    snapshot: bytes | None
    problems: list[StatementError]


def build(statements: Iterable[Statement], clock: FrozenClock) -> bytes:
    """Return the snapshot of the database that the statements make: equal statements, equal bytes.

    The statements run one by one in one transaction, with foreign keys on, under the clock from its start. Bytes are
    equal under one version of SQLite; across versions compare `content_hash`.

    Only CREATE TABLE, INDEX, VIEW, TRIGGER and VIRTUAL TABLE and plain INSERT are allowed. Raises StatementError for
    the first statement that is not, or that fails, and for what no single statement shows: dangling references, views
    and triggers that could never run. Also for a build that is too large: more than 2,000 statements, 4 million
    characters of SQL, 64 MiB of rows, or 3 million steps of SQLite's.
    """
    result = _Build(statements, clock, max_problems=1).run()
    if result.snapshot is None:
        raise result.problems[0]
    return result.snapshot


def try_build(statements: Iterable[Statement], clock: FrozenClock) -> BuildResult:
    """Build as `build` does, but go on after a failing statement, to report all problems at once.

    Errors that only follow from an earlier one, such as an INSERT into a table that could not be made, are left out.
    """
    return _Build(statements, clock, max_problems=MAX_PROBLEMS).run()


class _BuildStopped(Exception):
    pass


@dataclass
class _Build:
    """One run over the statements."""

    statements: Iterable[Statement]
    clock: FrozenClock
    max_problems: int
    problems: list[StatementError] = field(default_factory=list)
    makers: dict[str, int] = field(default_factory=dict)  # which statement made a table, view, index or trigger
    missing: set[str] = field(default_factory=set)  # tables that could not be made
    steps: int = 0
    last_object: int = 0  # rowid in the schema's table of what was made last

    def run(self) -> BuildResult:
        self.statements = list(islice(self.statements, BUILD_MAX_STATEMENTS + 1))
        excess = _excess(self.statements)
        if excess is not None:
            return BuildResult(None, [excess])
        self.clock.restart()
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as self.connection:
            self._prepare()
            try:
                for index, statement in enumerate(self.statements):
                    self._execute(index, statement)
                self._check_whole()
            except _BuildStopped:
                pass
            if self.problems:
                return BuildResult(None, sorted(self.problems, key=lambda problem: problem.index))
            return BuildResult(self._finish(), [])

    def _prepare(self) -> None:
        self.connection.execute(f"PRAGMA page_size={PAGE_SIZE}")
        self.connection.execute("PRAGMA temp_store=MEMORY")
        self.connection.execute("PRAGMA foreign_keys=ON")
        self.connection.execute(f"PRAGMA max_page_count={(BUILD_MAX_MB << 20) // PAGE_SIZE}")
        self.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _BUILD_MAX_VALUE_BYTES)
        self.connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, _BUILD_MAX_PATTERN_BYTES)
        self.connection.set_progress_handler(self._count_steps, _STEPS_PER_CHECK)
        self.connection.set_authorizer(authorize_build)
        install(self.connection, self.clock)
        self.connection.execute("BEGIN")

    def _count_steps(self) -> bool:
        self.steps += _STEPS_PER_CHECK
        return self.steps > BUILD_MAX_STEPS

    def _execute(self, index: int, statement: Statement) -> None:
        kind = statement_kind(statement.text)
        refusal = build_refusal(kind, statement.text)
        if refusal:
            self._report(index, statement, refusal)
            return
        try:
            self.connection.execute(statement.text).fetchall()
            if kind in SCHEMA_KINDS:
                self._note_object(index, statement)
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            self._report_failure(index, statement, kind, error)

    def _note_object(self, index: int, statement: Statement) -> None:
        made = query(self.connection, "SELECT rowid, name FROM sqlite_schema WHERE rowid > ?", (self.last_object,))
        if not made:
            self._report(index, statement, "this name is taken: IF NOT EXISTS would hide that nothing is made")
            return
        self.last_object = max(rowid for rowid, _ in made)
        self.makers.update((name, index) for _, name in made)

    def _report_failure(self, index: int, statement: Statement, kind: str, error: Exception) -> None:
        message = str(error)
        table = statement_table(statement.text)
        if self.steps > BUILD_MAX_STEPS:
            message = f"stopped after {BUILD_MAX_STEPS} steps in all: a query has no end, or makes far too many rows"
        elif message == _FULL:
            message = f"more than {BUILD_MAX_MB} MiB of rows: write fewer or shorter rows"
        elif message == "string or blob too big":
            message = f"a value of more than {_BUILD_MAX_VALUE_BYTES >> 20} MiB: write shorter values"
        elif message == "not authorized":
            message = "not allowed: nothing temporary, no attached database, no file"
        elif message == "FOREIGN KEY constraint failed" and table:
            message = self._dangling_reference(statement, table) or message
        if kind in ("CREATE TABLE", "CREATE VIRTUAL TABLE") and table:
            self.missing.add(table.lower())
        elif message.startswith("no such table: "):
            name = message.removeprefix("no such table: ").removeprefix("main.")
            if name.lower() in self.missing:
                return
        if message.startswith(_ONCE) and any(known.message == message for known in self.problems):
            return
        self._report(index, statement, message)
        # Where all is used up, or SQLite undid everything, later errors would only follow from this one.
        if self.steps > BUILD_MAX_STEPS or str(error) == _FULL or not self.connection.in_transaction:
            raise _BuildStopped

    def _dangling_reference(self, statement: Statement, table: str) -> str:
        """Run a failing statement again with its check put off, to see which row points nowhere."""
        self.connection.execute("SAVEPOINT explanation")
        self.connection.execute("PRAGMA defer_foreign_keys=ON")
        try:
            self.connection.execute(statement.text).fetchall()
            problems = list(islice(dangling_rows(self.connection, table), 3))
        except sqlite3.Error:
            problems = []
        if not self.connection.in_transaction:  # stopped half-way, or undone by a trigger
            return ""
        self.connection.execute("ROLLBACK TO explanation")
        self.connection.execute("RELEASE explanation")
        self.connection.execute("PRAGMA defer_foreign_keys=OFF")
        return "FOREIGN KEY constraint failed: " + "; ".join(problems) if problems else ""

    def _check_whole(self) -> None:
        """Look for what shows only when all statements have run."""
        self.connection.set_progress_handler(None, 0)  # reading what is there has an end
        statements = list(self.statements)
        end = Statement("COMMIT", statements[-1].line if statements else 1)
        for name, message in dormant_problems(self.connection):
            index = self.makers[name]
            if not any(known.message == message for known in self.problems):
                self._report(index, statements[index], message)
        if not self.problems:
            for message in integrity_problems(self.connection):
                self._report(len(statements), end, message)
        if not self.problems:
            self._check_without_clock(len(statements), end)

    def _check_without_clock(self, index: int, end: Statement) -> None:
        """Check that SQLite itself accepts the schema: it refuses the current time in constraints and indexes."""
        self.connection.execute("COMMIT")
        if not self.makers:
            return
        try:
            with closing(open_database(self.connection.serialize(), read_only=True)) as plain:
                query(plain, "PRAGMA integrity_check")
                for table in tables(plain):
                    query(plain, f"SELECT * FROM {quote_identifier(table.name)}")
        except (sqlite3.Error, DamagedDatabase) as error:
            self._report(index, end, str(error))

    def _finish(self) -> bytes:
        if not self.makers:
            return b""  # SQLite has no pages to give for an empty database, and an empty file is one
        self.connection.set_authorizer(None)  # VACUUM attaches a database of its own
        self.connection.execute("VACUUM")
        snapshot = bytearray(self.connection.serialize())
        for offset, value in _HEADER_FIELDS.items():
            snapshot[offset : offset + len(value)] = value
        return bytes(snapshot)

    def _report(self, index: int, statement: Statement, message: str) -> None:
        self.problems.append(StatementError(index, statement.line, statement.text, message))
        if len(self.problems) >= self.max_problems:
            raise _BuildStopped


def _excess(statements: list[Statement]) -> StatementError | None:
    """Return where the statements become more than a build may have, or None."""
    characters = 0
    for index, statement in enumerate(statements):
        characters += len(statement.text)
        if index == BUILD_MAX_STATEMENTS or characters > BUILD_MAX_CHARACTERS:
            most = f"{BUILD_MAX_STATEMENTS} statements or {BUILD_MAX_CHARACTERS} characters of SQL"
            message = f"more than {most}: write fewer or shorter rows, and several in one INSERT"
            return StatementError(index, statement.line, statement.text, message)
    return None


def open_database(
    snapshot: bytes | mmap,
    *,
    clock: FrozenClock | None = None,
    read_only: bool = False,
    max_mb: int | None = 64,
    deadline: Callable[[], float] | None = None,
) -> sqlite3.Connection:
    """Return a connection to an in-memory copy of a snapshot.

    To reset, close it and open another: restoring into a connection that still has a cursor crashes Python.

    Rows are `sqlite3.Row`; transactions are the caller's; foreign keys are on. The schema can't be changed, nor
    another file attached, nor any setting made by PRAGMA. That guards against SQL in arguments, not against code that
    holds the connection.

    :param clock: What `datetime('now')` and its kin give; None leaves SQLite's own clock.
    :param read_only: Refuse all writes.
    :param max_mb: Most MiB the database may grow to; more is "database or disk is full". None sets no limit, and saves
        reading the schema, which is most of the work; `page_limit` sets it later.
    :param deadline: Gives the moment, in seconds of `time.monotonic()`, after which a running statement is interrupted.

    Raises DamagedDatabase for bytes that are no SQLite database, or only a part of one.
    """
    connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=256)
    try:
        with naming_damage():
            _restore(connection, snapshot)
            _limit(connection)
            if max_mb is not None:
                connection.execute(page_limit(snapshot, max_mb))
    except BaseException:
        connection.close()
        raise
    if read_only:
        connection.execute("PRAGMA query_only=ON")
    connection.row_factory = sqlite3.Row
    if clock is not None:
        install(connection, clock)
    if deadline is not None:
        connection.set_progress_handler(lambda: monotonic() > deadline(), _STEPS_PER_DEADLINE_CHECK)
    connection.set_authorizer(authorize_reads if read_only else authorize_writes)
    return connection


def content_hash(db: bytes | sqlite3.Connection) -> str:
    """Return a SHA-256, in hex, of what a database means: equal for equal schema and rows, under any SQLite.

    Order of creation and insertion, page layout and rowids of ordinary tables don't count. Hashed are, one after the
    other, each with a tag of its own and lengths before its parts:

    - each table, index, view and trigger, by type and name: its SQL as it was written, without those that SQLite makes
      itself (names that start with `sqlite_`, the tables inside virtual tables);
    - each table that `tables` gives, by name, and its rows, sorted by their encoding: the stored columns, so without
      generated ones; for virtual tables the rowid before them. An inverted index is not part of it;
    - the AUTOINCREMENT counters above zero, by table.

    Values are encoded with their type: NULL, 1, 1.0, '1' and x'31' differ. Raises DamagedDatabase where they can't be
    read.
    """
    if isinstance(db, sqlite3.Connection):
        return hash_content(db)
    with closing(open_database(db, read_only=True)) as connection:
        return hash_content(connection)


def _restore(connection: sqlite3.Connection, snapshot: bytes | mmap) -> None:
    if not snapshot:
        return
    if snapshot[: len(_HEADER)] != _HEADER:
        raise DamagedDatabase("the snapshot is not a SQLite database: build it again")
    if len(snapshot) % _page_size(snapshot) or len(snapshot) < _page_size(snapshot) * _page_count(snapshot):
        raise DamagedDatabase(f"the snapshot was cut off after {len(snapshot)} bytes: build it again")
    if snapshot[18:20] != _HEADER_FIELDS[18]:  # WAL mode can't be restored into memory
        snapshot = snapshot[:18] + _HEADER_FIELDS[18] + snapshot[20:]
    connection.deserialize(snapshot)


def page_limit(snapshot: bytes | mmap, max_mb: int) -> str:
    """Return the statement that limits how many MiB a database from this snapshot may grow to."""
    return f"PRAGMA max_page_count={(max_mb << 20) // _page_size(snapshot)}"


def _limit(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA temp_store=MEMORY")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, _MAX_SQL_BYTES)


def _page_size(snapshot: bytes | mmap) -> int:
    size = int.from_bytes(snapshot[16:18], "big") or PAGE_SIZE
    return 65536 if size == 1 else size


def _page_count(snapshot: bytes | mmap) -> int:
    """The number of pages as the header says it, 0 if it does not: old versions of SQLite leave it out of date."""
    return int.from_bytes(snapshot[28:32], "big") if snapshot[24:28] == snapshot[92:96] else 0
