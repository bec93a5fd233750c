"""SQL that does not parse: mended where only one reading makes sense, and left alone elsewhere."""

from __future__ import annotations

import pytest

from awm.env.clock import FrozenClock
from awm.hub.awm1k.database import PublishedDatabase
from awm.hub.awm1k.reading import TableData, TableSchema
from awm.hub.awm1k.report import Finding

CLOCK = "2026-02-01 12:00:00"


def build(ddl: str, *inserts: str, table: str = "t") -> tuple[list[tuple[object, ...]], list[Finding]]:
    """Build one table; return its rows and what was found."""
    database = PublishedDatabase(FrozenClock(CLOCK))
    database.create([TableSchema(name=table, ddl=ddl)])
    database.adopt(b"")
    sample = [TableData(table_name=table, insert_statements=list(inserts))]
    database.insert(sample)
    try:
        rows = database.connection.execute(f"SELECT * FROM {table}").fetchall()
    except Exception:
        rows = []
    database.finish()
    return rows, database.findings


@pytest.mark.parametrize(
    ("insert", "text"),
    [
        ("INSERT INTO t VALUES ('I'll wait', 1);", "I'll wait"),
        ("INSERT INTO t VALUES ('Don't say it can't', 1);", "Don't say it can't"),
        (r"INSERT INTO t VALUES ('didn\'t', 1);", "didn't"),
        (r"INSERT INTO t VALUES ('Maya\'s and Ben's', 1);", "Maya's and Ben's"),
        ("INSERT INTO t VALUES ('O''Hara's', 1);", "O'Hara's"),
        ("INSERT INTO t VALUES ('I'll, he'll (she'll)', 1);", "I'll, he'll (she'll)"),
    ],
)
def test_apostrophes_in_texts_are_doubled(insert: str, text: str) -> None:
    rows, [finding] = build("CREATE TABLE t (a TEXT, b INTEGER);", insert)

    assert rows == [(text, 1)]
    assert (finding.action, finding.table, finding.row, finding.statement) == ("repaired", "t", 1, insert)


@pytest.mark.parametrize(
    ("insert", "reason"),
    [
        ("INSERT INTO t VALUES ('the students' books', 1);", "syntax error"),
        ("INSERT INTO t VALUES ('I'll', 1, 2);", "syntax error"),
        ("INSERT INTO t VALUES ('a');", "1 values were supplied"),
        ("INSERT INTO nowhere VALUES (1);", "no such table: nowhere"),
        ("INSERT INTO t VALUES (NULL, 1);", "NOT NULL constraint failed: t.a"),
        ("ATTACH 'x.db' AS x;", "ATTACH has no place here"),
        ("DROP TABLE t;", "DROP has no place here"),
        ("", "there is no statement"),
        ("INSERT INTO t VALUES ('a', 1); INSERT INTO t VALUES (NULL, 2);", "NOT NULL"),
    ],
)
def test_what_has_no_single_reading_is_left_out(insert: str, reason: str) -> None:
    rows, [finding] = build("CREATE TABLE t (a TEXT NOT NULL, b INTEGER);", "INSERT INTO t VALUES ('ok', 1);", insert)

    assert rows == [("ok", 1)]
    assert (finding.action, finding.row, finding.statement) == ("left out", 2, insert)
    assert reason in finding.reason


def test_a_blob_is_no_apostrophe() -> None:
    rows, [finding] = build("CREATE TABLE t (a TEXT, b BLOB);", "INSERT INTO t VALUES ('Ben's', x'00ff');")

    assert rows == [("Ben's", b"\x00\xff")]
    assert finding.action == "repaired"


def test_a_bracket_left_open_in_a_line_is_closed_there() -> None:
    ddl = "CREATE TABLE t (\n  id INTEGER PRIMARY KEY,\n  a TEXT CHECK (a IN ('x','(y'),\n  b INTEGER\n);"

    rows, findings = build(ddl, "INSERT INTO t VALUES (1, '(y', 2);", "INSERT INTO t VALUES (2, 'z', 2);")

    assert rows == [(1, "(y", 2)]
    assert [(finding.action, finding.part) for finding in findings] == [("repaired", "schema"), ("left out", "sample")]
    assert "the bracket left open in line 3 was closed at its end" in findings[0].reason


def test_a_table_that_stays_broken_is_listed_with_its_reason() -> None:
    rows, [schema, sample] = build("CREATE TABLE t (id INTEGER,, a TEXT);", "INSERT INTO t VALUES (1, 'a');")

    assert rows == []
    assert (schema.action, schema.part, schema.table) == ("left out", "schema", "t")
    assert "syntax error" in schema.reason
    assert sample.reason == "no such table: t"


def test_rows_that_point_nowhere_are_kept_and_listed() -> None:
    ddl = "CREATE TABLE t (id INTEGER PRIMARY KEY, up INTEGER REFERENCES t(id));"

    rows, [finding] = build(ddl, "INSERT INTO t VALUES (5, 6);")

    assert rows == [(5, 6)]
    assert (finding.action, finding.table, finding.row) == ("kept", "t", 5)
    assert finding.reason == "t, row 5: up = 6 has no match in t(id)"


def test_time_stands_still_and_a_second_build_gives_the_same() -> None:
    ddl = "CREATE TABLE t (a TEXT DEFAULT CURRENT_TIMESTAMP, b INTEGER);"
    insert = "INSERT INTO t (b) VALUES (abs(random()) % 1000), (2);"

    assert build(ddl, insert) == build(ddl, insert)
    assert build(ddl, insert)[0][0][0] == CLOCK


def test_an_endless_statement_is_stopped() -> None:
    endless = "INSERT INTO t WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x FROM c) SELECT max(x), 1 FROM c;"

    rows, [finding] = build("CREATE TABLE t (a TEXT, b INTEGER);", endless)

    assert rows == []
    assert finding.reason == "interrupted"
