"""Databases built from text, opened from snapshots, checked and hashed."""

import sqlite3
import time
from collections.abc import Callable

import pytest

from awm.env.clock import FrozenClock
from awm.env.database import (
    BUILD_MAX_CHARACTERS,
    BUILD_MAX_STATEMENTS,
    DamagedDatabase,
    StatementError,
    build,
    content_hash,
    integrity_problems,
    open_database,
    table_counts,
    try_build,
)
from awm.env.sql import Statement, split_statements

START = "2026-03-05 09:00:00"
SHOP = """
CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, at TEXT DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id INTEGER NOT NULL REFERENCES users(id),
    total REAL CHECK (total >= 0),
    token BLOB DEFAULT (randomblob(8)),
    doubled REAL GENERATED ALWAYS AS (total * 2) STORED
);
CREATE INDEX orders_user ON orders(user_id);
CREATE VIEW totals AS SELECT user_id, sum(total) AS total FROM orders GROUP BY user_id;
CREATE TABLE audit (line TEXT);
CREATE TRIGGER orders_audit AFTER INSERT ON orders BEGIN INSERT INTO audit VALUES ('order; ' || new.id); END;
CREATE VIRTUAL TABLE search USING fts5(body);
INSERT INTO users (id, name) VALUES (1, 'Ada'), (2, 'Bob');
INSERT INTO orders (user_id, total) SELECT id, id * 10 FROM users;
INSERT INTO search VALUES ('hello world'), ('hello moon');
"""


def make(sql: str, start: str = START) -> bytes:
    return build(split_statements(sql), FrozenClock(start))


def problems(sql: str) -> list[tuple[int, str]]:
    result = try_build(split_statements(sql), FrozenClock(START))
    assert (result.snapshot is None) == bool(result.problems)
    return [(problem.index, problem.message) for problem in result.problems]


@pytest.fixture(scope="module")
def shop() -> bytes:
    return make(SHOP)


# build


def test_equal_statements_give_equal_bytes(shop: bytes) -> None:
    clock = FrozenClock(START)
    clock.advance()
    clock.random.random()
    assert build(split_statements(SHOP), clock) == shop
    assert build(iter(split_statements(SHOP)), clock) == shop


def test_what_was_built_holds_the_rows(shop: bytes) -> None:
    connection = open_database(shop)
    assert table_counts(connection) == {"audit": 2, "orders": 2, "search": 2, "users": 2}
    rows = [tuple(row) for row in connection.execute("SELECT id, user_id, total, doubled FROM orders")]
    assert rows == [(1, 1, 10.0, 20.0), (2, 2, 20.0, 40.0)]
    assert [row["at"] for row in connection.execute("SELECT at FROM users")] == [START, START]
    assert [row["line"] for row in connection.execute("SELECT line FROM audit")] == ["order; 1", "order; 2"]
    assert len(connection.execute("SELECT * FROM search WHERE search MATCH 'hello'").fetchall()) == 2
    assert integrity_problems(connection) == []


def test_a_snapshot_is_a_plain_database_file(shop: bytes, tmp_path) -> None:
    path = tmp_path / "shop.db"
    path.write_bytes(shop)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA page_size").fetchone() == (4096,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert connection.execute("SELECT count(*) FROM orders").fetchone() == (2,)


def test_no_statements_make_an_empty_database() -> None:
    assert make("") == b""
    connection = open_database(b"")
    assert table_counts(connection) == {}
    assert integrity_problems(connection) == []


def test_build_raises_the_first_problem() -> None:
    with pytest.raises(StatementError, match=r"^line 3: UNIQUE constraint failed: a\.id$") as caught:
        make("CREATE TABLE a (id INTEGER PRIMARY KEY);\n\nINSERT INTO a VALUES (1), (1);\nINSERT INTO nope VALUES (1);")
    error = caught.value
    assert (error.index, error.line, error.statement) == (1, 3, "INSERT INTO a VALUES (1), (1);")


A = "CREATE TABLE a (id INTEGER PRIMARY KEY, x TEXT NOT NULL UNIQUE);"
B = "CREATE TABLE b (id INTEGER PRIMARY KEY, a_id INTEGER REFERENCES a(id));"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("CREATE TABLE a (id INTEGER PRIMARY KEY, )", [(0, 'near ")": syntax error')]),
        ("CREATE TABLE a (id INTEGER", [(0, "incomplete input")]),
        ("CREATE TABLE a (x, y GENERATED ALWAYS AS (nope))", [(0, "no such column: nope")]),
        (f"{A} {A}", [(1, "table a already exists")]),
        (
            f"{A} CREATE TABLE IF NOT EXISTS a (y)",
            [(1, "this name is taken: IF NOT EXISTS would hide that nothing is made")],
        ),
        (f"{A} INSERT INTO a VALUES (1, NULL)", [(1, "NOT NULL constraint failed: a.x")]),
        (f"{A} INSERT INTO a VALUES (1)", [(1, "table a has 2 columns but 1 values were supplied")]),
        (
            f"{A} {B} INSERT INTO b VALUES (5, 7), (6, NULL)",
            [(2, "FOREIGN KEY constraint failed: b, row 5: a_id = 7 has no match in a(id)")],
        ),
        # All problems at once, without those that only follow
        (
            "CREATE TABLE a (id INTEGER PRIMARY KEY,); INSERT INTO a VALUES (1); INSERT INTO c VALUES (1);"
            "CREATE TABLE b (id); INSERT INTO b VALUES (1, 2); INSERT INTO c VALUES (2); CREATE INDEX i ON b(z);",
            [
                (0, 'near ")": syntax error'),
                (2, "no such table: c"),
                (4, "table b has 1 columns but 2 values were supplied"),
                (6, "no such column: z"),
            ],
        ),
        # What no statement shows
        (
            "CREATE TABLE b (x REFERENCES nope(id))",
            [(0, "no such table: nope, which b refers to")],
        ),
        (
            f"{A} CREATE TABLE b (id REFERENCES a(nope))",
            [
                (
                    2,
                    'foreign key mismatch - "b" referencing "a": the columns it refers to are neither its primary key '
                    "nor unique",
                )
            ],
        ),
        (
            f"{A} CREATE TABLE b (id INTEGER PRIMARY KEY, a_id REFERENCES a(id) DEFERRABLE INITIALLY DEFERRED);"
            "INSERT INTO b VALUES (1, 4)",
            [(3, "b, row 1: a_id = 4 has no match in a(id)")],
        ),
        ("CREATE VIEW v AS SELECT * FROM nope", [(0, "view v can never run: no such table: main.nope")]),
        (
            f"{A} CREATE TRIGGER t AFTER DELETE ON a BEGIN INSERT INTO log VALUES (old.id); END;",
            [(1, "trigger t can never run: no such table: main.log")],
        ),
        (
            f"{A} CREATE TRIGGER t AFTER UPDATE OF x ON a BEGIN UPDATE a SET nope = 1; END;",
            [(1, "trigger t can never run: no such column: nope")],
        ),
        (
            "CREATE TABLE a (t CHECK (t <= datetime('now'))); INSERT INTO a VALUES ('2020-01-01')",
            [(2, "non-deterministic use of datetime() in a CHECK constraint")],
        ),
        (
            "CREATE TABLE a (x, age AS (julianday('now') - x)); INSERT INTO a (x) VALUES (2460000)",
            [(2, "non-deterministic use of julianday() in a generated column")],
        ),
    ],
)
def test_problems(sql: str, expected: list[tuple[int, str]]) -> None:
    assert problems(sql) == expected


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("INSERT OR IGNORE INTO a VALUES (1, 'x')", "INSERT OR IGNORE hides rows"),
        ("INSERT OR REPLACE INTO a VALUES (1, 'x')", "INSERT OR REPLACE hides rows"),
        ("REPLACE INTO a VALUES (1, 'x')", "REPLACE hides rows"),
        ("INSERT INTO a VALUES (1, 'x') ON CONFLICT DO NOTHING", "ON CONFLICT hides rows"),
        ("CREATE TABLE c (x UNIQUE ON CONFLICT IGNORE)", "ON CONFLICT in a constraint"),
        ("PRAGMA foreign_keys=OFF", "PRAGMA is not allowed"),
        ("BEGIN", "BEGIN is not allowed: all statements run in one transaction"),
        ("COMMIT", "COMMIT is not allowed"),
        ("UPDATE a SET x = 1", "UPDATE is not allowed: use only CREATE TABLE, CREATE INDEX"),
        ("DELETE FROM a", "DELETE is not allowed"),
        ("DROP TABLE a", "DROP is not allowed"),
        ("ALTER TABLE a ADD COLUMN y", "ALTER is not allowed"),
        ("SELECT 1", "SELECT is not allowed"),
        ("ATTACH ':memory:' AS other", "ATTACH is not allowed"),
        ("VACUUM", "VACUUM is not allowed"),
        ("CREATE TEMP TABLE t (x)", "CREATE TEMP TABLE is not allowed"),
        ("CREATE TABLE temp.t (x)", "not allowed: nothing temporary"),
        ("INSERT INTO sqlite_schema VALUES (1,2,3,4,5)", "table sqlite_master may not be modified"),
        ("INSERT INTO a VALUES (1, load_extension('x'))", "not authorized to use function: load_extension"),
    ],
)
def test_refused_statements(statement: str, reason: str) -> None:
    [(index, message)] = problems(f"{A} {statement};")
    assert index == 1
    assert message.startswith(reason)


def test_a_view_needs_no_trigger_for_each_event() -> None:
    view = "CREATE VIEW v AS SELECT id FROM a;"
    trigger = "CREATE TRIGGER t INSTEAD OF DELETE ON v BEGIN DELETE FROM {} WHERE id = old.id; END;"
    assert problems(A + view + trigger.format("a")) == []
    assert problems(A + view + trigger.format("nope")) == [(2, "trigger t can never run: no such table: main.nope")]


def test_a_trigger_that_undoes_everything_ends_the_build() -> None:
    trigger = "CREATE TRIGGER t BEFORE INSERT ON a BEGIN SELECT RAISE(ROLLBACK, 'no'); END;"
    assert problems(A + trigger + "INSERT INTO a VALUES (1, 'x'); INSERT INTO a VALUES (2, 'y');") == [(2, "no")]


ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) INSERT INTO c SELECT max(n) FROM r;"


def test_at_most_20_problems() -> None:
    assert len(problems(A + "INSERT INTO a VALUES (1);" * 50)) == 20


def test_an_endless_statement_is_stopped() -> None:
    [(index, message)] = problems(f"CREATE TABLE c (n); {ENDLESS} INSERT INTO c VALUES (1, 2);")
    assert index == 1
    assert message == "stopped after 3000000 steps in all: a query has no end, or makes far too many rows"


def test_all_statements_share_one_budget() -> None:
    large = ENDLESS.replace("FROM r)", "FROM r WHERE n < 50000)")
    assert problems("CREATE TABLE c (n);" + large * 2) == []
    small = ENDLESS.replace("FROM r)", "FROM r WHERE n < 40)")
    assert problems("CREATE TABLE c (n);" + small * 500) == []
    [first] = problems("CREATE TABLE c (n);" + large * 60)
    assert first[0] < 20
    assert first[1].startswith("stopped after 3000000 steps")
    assert problems("CREATE TABLE c (n);" + large * 60) == [first]


def test_a_failing_statement_is_explained_within_the_budget() -> None:
    rows = ENDLESS.replace("INTO c SELECT max(n)", "INTO b SELECT n, n").replace("FROM r)", "FROM r WHERE n < 10000)")
    found = problems(A + B + rows * 20)
    assert found[0][1].startswith("FOREIGN KEY constraint failed: b, row 1: a_id = 1 has no match in a(id)")
    assert len(found) < 10


def test_a_script_has_a_most_of_statements_and_characters() -> None:
    inserts = "INSERT INTO c VALUES (1);" * BUILD_MAX_STATEMENTS
    [(index, message)] = problems("CREATE TABLE c (n);" + inserts)
    assert index == BUILD_MAX_STATEMENTS
    assert message.startswith("more than 2000 statements or 4000000 characters of SQL: write fewer or shorter rows")
    assert problems("CREATE TABLE c (n);" + inserts[: -len("INSERT INTO c VALUES (1);")]) == []
    text = "x" * (BUILD_MAX_CHARACTERS // 5)
    [(index, _)] = problems("CREATE TABLE c (n);" + f"INSERT INTO c VALUES ('{text}');" * 5)
    assert index == 5


def test_rows_have_a_most_of_bytes() -> None:
    rows = ENDLESS.replace("max(n)", "randomblob(900000)").replace("FROM r)", "FROM r WHERE n < 50)")
    assert problems("CREATE TABLE c (n);" + rows * 3) == [(2, "more than 64 MiB of rows: write fewer or shorter rows")]
    value = "INSERT INTO c VALUES (zeroblob(2000000));"
    assert problems("CREATE TABLE c (n);" + value) == [(1, "a value of more than 1 MiB: write shorter values")]


@pytest.mark.parametrize("odd", ["\0", "\0;", ";\0;", "'\0", "\ud800", "CREATE TABLE z (\0)"])
def test_characters_that_no_sql_has_are_problems_wherever_they_stand(odd: str) -> None:
    script = f"{A}\n{B}\nINSERT INTO a VALUES (1, 'x');"
    for place in range(0, len(script), 7):
        problems(script[:place] + odd + script[place:])
    assert problems(f"{A}{odd}")


def test_a_nul_is_named() -> None:
    assert problems(f"{A} \0") == [(1, "there is a NUL character (U+0000) in the statement: take it out")]


def test_statements_that_python_refuses_are_problems() -> None:
    result = try_build([Statement("CREATE TABLE a (x); CREATE TABLE b (x)", 1)], FrozenClock(START))
    assert "one statement at a time" in result.problems[0].message
    assert try_build([Statement("CREATE TABLE a (x \0)", 1)], FrozenClock(START)).snapshot is None


# open_database


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO users (id, name) VALUES (3, 'Cleo')",
        "UPDATE users SET name = 'Ava' WHERE id = 1",
        "DELETE FROM orders",
        "INSERT INTO search VALUES ('more')",
        "WITH RECURSIVE r(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r",
        "SELECT * FROM search WHERE search MATCH 'hello' ORDER BY rank",
        "SELECT * FROM totals",
        "PRAGMA table_info(users)",
        "PRAGMA foreign_keys",
        "PRAGMA foreign_keys = ON",
        "SAVEPOINT s",
    ],
)
def test_allowed_at_run_time(shop: bytes, sql: str) -> None:
    open_database(shop).execute(sql).fetchall()


DENIED = [
    "DROP TABLE orders",
    "CREATE TABLE t (x)",
    "CREATE TEMP TABLE t (x)",
    "CREATE INDEX i ON users(at)",
    "CREATE VIEW v AS SELECT 1",
    "CREATE VIRTUAL TABLE v USING fts5(x)",
    "ALTER TABLE users ADD COLUMN y",
    "ATTACH ':memory:' AS other",
    "DETACH main",
    "VACUUM INTO 'copy.db'",
    "REINDEX",
    "ANALYZE",
    "SELECT load_extension('x')",
    "PRAGMA foreign_keys=OFF",
    "PRAGMA writable_schema=ON",
    "PRAGMA journal_mode=WAL",
    "PRAGMA user_version=5",
    "PRAGMA max_page_count=1000000000",
    "UPDATE sqlite_schema SET sql = ''",
]
WRITES = [
    "INSERT INTO users (id, name) VALUES (3, 'Cleo')",
    "UPDATE users SET name = 'Ava'",
    "DELETE FROM orders",
    "INSERT INTO search VALUES ('more')",
    "REPLACE INTO audit VALUES ('x')",
    "PRAGMA query_only=OFF",
]


@pytest.mark.parametrize("sql", DENIED)
def test_denied_at_run_time(shop: bytes, sql: str) -> None:
    connection = open_database(shop)
    before = connection.serialize()
    with pytest.raises(sqlite3.DatabaseError, match=r"not authorized|denied|may not be modified"):
        connection.execute(sql)
    assert connection.serialize() == before


@pytest.mark.parametrize("sql", DENIED + WRITES)
def test_denied_read_only(shop: bytes, sql: str) -> None:
    connection = open_database(shop, read_only=True)
    with pytest.raises(sqlite3.DatabaseError):
        connection.execute(sql)
    assert connection.serialize() == shop


def test_reading_is_enough_for_all_checks(shop: bytes) -> None:
    connection = open_database(shop, read_only=True)
    assert integrity_problems(connection) == []
    assert content_hash(connection) == content_hash(shop)
    assert table_counts(connection)["search"] == 2
    assert len(connection.execute("SELECT * FROM search WHERE search MATCH 'moon'").fetchall()) == 1


def test_a_copy_is_the_snapshot_and_changes_nothing_else(shop: bytes) -> None:
    one, two = open_database(shop), open_database(shop)
    assert one.serialize() == shop
    one.execute("DELETE FROM orders")
    assert two.serialize() == open_database(shop).serialize() == shop
    one.close()
    with pytest.raises(sqlite3.ProgrammingError):
        one.execute("SELECT 1")


def test_foreign_keys_hold_and_transactions_are_the_callers(shop: bytes) -> None:
    connection = open_database(shop)
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute("INSERT INTO orders (user_id) VALUES (99)")
    connection.execute("DELETE FROM audit")
    assert not connection.in_transaction
    connection.execute("BEGIN")
    connection.execute("INSERT INTO audit VALUES ('x')")
    connection.execute("ROLLBACK")
    assert table_counts(connection)["audit"] == 0


def test_the_clock_is_the_connections(shop: bytes) -> None:
    clock = FrozenClock("2030-01-01 00:00:00")
    connection = open_database(shop, clock=clock)
    clock.advance()
    connection.execute("INSERT INTO users (id, name) VALUES (3, 'Cleo')")
    assert connection.execute("SELECT at FROM users WHERE id = 3").fetchone()["at"] == "2030-01-01 00:00:01"


def test_size_is_bounded(shop: bytes) -> None:
    connection = open_database(shop, max_mb=1)
    with pytest.raises(sqlite3.OperationalError, match="full"):
        connection.execute("INSERT INTO audit VALUES (hex(zeroblob(1000000)))")
    with pytest.raises(sqlite3.DataError, match="too big"):
        connection.execute("SELECT length(zeroblob(100000000))")
    assert table_counts(connection)["audit"] == 2


def test_a_deadline_stops_an_endless_query(shop: bytes) -> None:
    moment = time.monotonic() + 3600
    connection = open_database(shop, deadline=lambda: moment)
    assert connection.execute("SELECT count(*) FROM users").fetchone()[0] == 2
    moment = 0.0
    with pytest.raises(sqlite3.OperationalError, match="interrupted"):
        connection.execute("WITH RECURSIVE r(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r")


def test_snapshots_of_other_makers_open(tmp_path) -> None:
    path = tmp_path / "wal.db"
    maker = sqlite3.connect(path)
    maker.executescript("PRAGMA page_size=1024; PRAGMA journal_mode=WAL; CREATE TABLE a (x); INSERT INTO a VALUES (1);")
    maker.close()
    connection = open_database(path.read_bytes(), max_mb=1)
    assert table_counts(connection) == {"a": 1}
    assert connection.execute("PRAGMA page_count").fetchone()[0] > 0
    assert table_counts(open_database(b"")) == {}


@pytest.mark.parametrize("snapshot", [b"hello", b"SQLite format 3", b"\0" * 4096])
def test_other_bytes_are_refused(snapshot: bytes) -> None:
    with pytest.raises(DamagedDatabase, match="not a SQLite database"):
        open_database(snapshot)


@pytest.mark.parametrize("length", [16, 20, 99, 100, 1000, 4096, 8192, 20480, -4096, -1])
@pytest.mark.parametrize("read", [open_database, content_hash])
def test_a_part_of_a_snapshot_is_refused(shop: bytes, length: int, read: Callable[[bytes], object]) -> None:
    with pytest.raises(DamagedDatabase, match="build it again"):
        read(shop[:length])


def test_pages_that_were_overwritten_are_damage(shop: bytes) -> None:
    for page in range(len(shop) // 4096):
        broken = bytearray(shop)
        broken[page * 4096 + 100 * (not page) : page * 4096 + 600] = b"\xff" * (600 - 100 * (not page))
        for read in (content_hash, lambda snapshot: table_counts(open_database(snapshot))):
            try:
                read(bytes(broken))
            except DamagedDatabase as error:
                assert "the database is damaged" in str(error)


def test_only_damage_is_called_damage(shop: bytes) -> None:
    connection = open_database(shop)
    connection.close()
    with pytest.raises(sqlite3.ProgrammingError):
        table_counts(connection)
