"""What a database holds: integrity, tables and the content hash."""

import sqlite3

import pytest

from awm.env.clock import FrozenClock
from awm.env.database import build, content_hash, integrity_problems, open_database, tables
from awm.env.sql import split_statements

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


def make(sql: str) -> bytes:
    return build(split_statements(sql), FrozenClock(START))


@pytest.fixture(scope="module")
def shop() -> bytes:
    return make(SHOP)


# integrity_problems, tables


def test_integrity_problems_name_row_value_and_parent() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(
        """
        CREATE TABLE a (x, y, PRIMARY KEY (x, y));
        CREATE TABLE b (id INTEGER PRIMARY KEY, x, y, FOREIGN KEY (x, y) REFERENCES a);
        CREATE TABLE c (id TEXT PRIMARY KEY, x REFERENCES b(id)) WITHOUT ROWID;
        CREATE TABLE d (x CHECK (x > 0));
        INSERT INTO b VALUES (3, 1, 'q');
        INSERT INTO c VALUES ('k', 9);
        PRAGMA ignore_check_constraints=ON;
        INSERT INTO d VALUES (-1);
        PRAGMA ignore_check_constraints=OFF;
        """
    )
    assert integrity_problems(connection) == [
        "b, row 3: x = 1, y = 'q' has no match in a",
        "c: a row's x has no match in b(id)",
        "CHECK constraint failed in d",
    ]


def test_integrity_problems_are_bounded() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript("CREATE TABLE a (id INTEGER PRIMARY KEY); CREATE TABLE b (x REFERENCES a(id));")
    connection.executemany("INSERT INTO b VALUES (?)", [(number,) for number in range(500)])
    assert len(integrity_problems(connection)) == 100


def test_tables_describe_columns_and_keys(shop: bytes) -> None:
    found = {table.name: table for table in tables(open_database(shop))}
    assert list(found) == ["audit", "orders", "search", "users"]
    orders, search = found["orders"], found["search"]
    assert orders.columns == ("id", "user_id", "total", "token", "doubled")
    assert (orders.generated, orders.key, orders.rowid, orders.virtual) == (
        frozenset({"doubled"}),
        ("id",),
        "rowid",
        False,
    )
    assert (search.columns, search.key, search.virtual) == (("body",), (), True)


# content_hash

BASE = "CREATE TABLE a (id INTEGER PRIMARY KEY, x); CREATE TABLE b (y, z); CREATE INDEX i ON a(x);"


def test_the_hash_is_this_one_everywhere() -> None:
    assert content_hash(make(BASE + "INSERT INTO a VALUES (1, 'x'), (2, 1.5), (3, x'00'), (4, NULL);")) == (
        "772510994b40d279fed7758e09d884f23e0d1e390d550054323f96306e22c239"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("INSERT INTO a VALUES (1, 'x'), (2, 'y');", "INSERT INTO a VALUES (2, 'y'); INSERT INTO a VALUES (1, 'x');"),
        ("INSERT INTO b VALUES (1, 2), (3, 4), (1, 2);", "INSERT INTO b VALUES (3, 4), (1, 2), (1, 2);"),
        ("INSERT INTO b VALUES (0.0, 1);", "INSERT INTO b VALUES (-0.0, 1);"),
        ("CREATE TABLE c (x); CREATE TABLE d (x);", "CREATE TABLE d (x); CREATE TABLE c (x);"),
        ("CREATE TABLE c (x);", "create   table IF NOT EXISTS c (x);"),
    ],
)
def test_equal_content_has_an_equal_hash(one: str, other: str) -> None:
    assert content_hash(make(BASE + one)) == content_hash(make(BASE + other))


def test_different_content_has_different_hashes() -> None:
    values = [
        "NULL",
        "1",
        "1.0",
        "'1'",
        "x'31'",
        "''",
        "x''",
        "'1 '",
        "1.5",
        "9e999",
        "-9e999",
        "0",
        "'a\u0301'",
        "'\u00e1'",
    ]
    variants = [f"INSERT INTO b VALUES (9, {value});" for value in values]
    variants += [
        "",
        "INSERT INTO b VALUES (1, 9);",
        "INSERT INTO b VALUES (9, 1), (9, 1);",
        "INSERT INTO b VALUES ('a', 'bc');",
        "INSERT INTO b VALUES ('ab', 'c');",
        "INSERT INTO a VALUES (9, 1);",
        "CREATE TABLE c (x);",
        "CREATE TABLE c (x INTEGER);",
        "CREATE VIEW c AS SELECT 1 AS x;",
        "CREATE INDEX j ON a(x);",
        "CREATE UNIQUE INDEX j ON a(x);",
        "CREATE TABLE n (id INTEGER PRIMARY KEY AUTOINCREMENT);",
        "CREATE TABLE n (id INTEGER PRIMARY KEY AUTOINCREMENT); INSERT INTO n VALUES (1);",
    ]
    assert len({content_hash(make(BASE + variant)) for variant in variants}) == len(variants)


def test_the_hash_of_a_connection_is_that_of_its_bytes(shop: bytes) -> None:
    connection = open_database(shop)
    assert content_hash(connection) == content_hash(shop)
    assert connection.execute("SELECT name FROM users").fetchone()["name"] == "Ada"
    connection.execute("UPDATE users SET name = 'Ava' WHERE id = 1")
    assert content_hash(connection) != content_hash(shop)
    connection.execute("UPDATE users SET name = 'Ada' WHERE id = 1")
    assert content_hash(connection) == content_hash(shop)


def test_the_hash_does_not_depend_on_the_file(shop: bytes) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.deserialize(shop)
    connection.executescript("CREATE TABLE extra (x); DROP TABLE extra; PRAGMA page_size=1024; VACUUM; ANALYZE;")
    connection.execute("INSERT INTO search (search) VALUES ('optimize')")
    assert connection.serialize() != shop
    assert content_hash(connection) == content_hash(shop)


def test_autoincrement_counters_and_full_text_rows_count(shop: bytes) -> None:
    changed = open_database(shop)
    changed.execute("INSERT INTO orders (user_id) VALUES (1)")
    changed.execute("DELETE FROM orders WHERE id = 3")
    changed.execute("DELETE FROM audit WHERE line = 'order; 3'")
    assert content_hash(changed) != content_hash(shop)
    searched = open_database(shop)
    searched.execute("UPDATE search SET body = 'bye' WHERE rowid = 2")
    assert content_hash(searched) != content_hash(shop)
