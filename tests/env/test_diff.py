"""The state diff, on real databases."""

import json
import sqlite3
from typing import Any

import pytest

from awm.env.clock import FrozenClock
from awm.env.database import build, open_database
from awm.env.diff import state_diff
from awm.env.sql import split_statements

SCHEMA = """
CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL, score REAL, avatar BLOB);
CREATE TABLE items (order_id INTEGER, product TEXT, count INTEGER NOT NULL, PRIMARY KEY (order_id, product));
CREATE TABLE tags (user_id INTEGER REFERENCES users(id), tag TEXT, PRIMARY KEY (tag, user_id)) WITHOUT ROWID;
CREATE TABLE log (line TEXT, at TEXT DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE codes (code TEXT PRIMARY KEY, used INTEGER DEFAULT 0);
CREATE TABLE boxes (id INTEGER PRIMARY KEY, w INTEGER, area INTEGER GENERATED ALWAYS AS (w * w));
CREATE TABLE counters (id INTEGER PRIMARY KEY AUTOINCREMENT, x);
CREATE TABLE shadowed (rowid TEXT, _rowid_ TEXT, oid TEXT);
CREATE VIEW names AS SELECT name FROM users;
CREATE VIRTUAL TABLE notes USING fts5(title, body);
CREATE VIRTUAL TABLE users_fts USING fts5(name, content='users', content_rowid='id');
INSERT INTO users VALUES (1, 'Ada', 1.5, x'00ff'), (2, 'Bob', NULL, NULL), (10, 'Cleo', 3, NULL);
INSERT INTO items VALUES (1, 'pen', 3), (1, 'ink', 1), (2, 'pen', 5);
INSERT INTO tags VALUES (1, 'vip'), (2, 'new');
INSERT INTO log (line) VALUES ('a'), ('a'), ('b');
INSERT INTO codes (code) VALUES ('x'), (NULL), (NULL);
INSERT INTO boxes (id, w) VALUES (1, 2);
INSERT INTO shadowed VALUES ('a', 'b', 'c'), ('a', 'b', 'c');
INSERT INTO notes VALUES ('first', 'hello world');
"""
CLOCK = FrozenClock("2026-03-05 09:00:00")


@pytest.fixture(scope="module")
def snapshot() -> bytes:
    return build(split_statements(SCHEMA), CLOCK)


def added(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"added": list(rows), "removed": [], "changed": []}


def removed(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"added": [], "removed": list(rows), "changed": []}


def changed(key: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return {"added": [], "removed": [], "changed": [{"key": key, "before": before, "after": after}]}


CASES: list[tuple[str, dict[str, Any]]] = [
    ("SELECT 1", {}),
    ("UPDATE users SET name = name", {}),
    ("UPDATE users SET score = 3.0 WHERE id = 10", {}),
    (
        "INSERT INTO users VALUES (3, 'Dan', 2, x'0a')",
        {"users": added({"id": 3, "name": "Dan", "score": 2.0, "avatar": "0a"})},
    ),
    ("DELETE FROM users WHERE id = 10", {"users": removed({"id": 10, "name": "Cleo", "score": 3.0, "avatar": None})}),
    ("UPDATE users SET name = 'Ava' WHERE id = 1", {"users": changed({"id": 1}, {"name": "Ada"}, {"name": "Ava"})}),
    (
        "UPDATE users SET score = 9e999, avatar = NULL WHERE id = 1",
        {"users": changed({"id": 1}, {"score": 1.5, "avatar": "00ff"}, {"score": "inf", "avatar": None})},
    ),
    (
        "UPDATE users SET id = 4 WHERE id = 10",
        {
            "users": {
                "added": [{"id": 4, "name": "Cleo", "score": 3.0, "avatar": None}],
                "removed": [{"id": 10, "name": "Cleo", "score": 3.0, "avatar": None}],
                "changed": [],
            }
        },
    ),
    (
        "UPDATE items SET count = 4 WHERE order_id = 1 AND product = 'pen'",
        {"items": changed({"order_id": 1, "product": "pen"}, {"count": 3}, {"count": 4})},
    ),
    # The rowid changes, the row doesn't
    ("DELETE FROM items WHERE product = 'ink'; INSERT INTO items VALUES (1, 'ink', 1)", {}),
    ("INSERT INTO tags VALUES (2, 'vip')", {"tags": added({"user_id": 2, "tag": "vip"})}),
    ("DELETE FROM log WHERE rowid = 2", {"log": removed({"line": "a", "at": "2026-03-05 09:00:00"})}),
    ("UPDATE log SET line = 'c' WHERE rowid = 2", {"log": changed({"rowid": 2}, {"line": "a"}, {"line": "c"})}),
    (
        "UPDATE codes SET used = 1 WHERE rowid = 3",
        {"codes": changed({"code": None, "rowid": 3}, {"used": 0}, {"used": 1})},
    ),
    ("UPDATE codes SET used = 1 WHERE code = 'x'", {"codes": changed({"code": "x"}, {"used": 0}, {"used": 1})}),
    ("UPDATE boxes SET w = 3", {"boxes": changed({"id": 1}, {"w": 2, "area": 4}, {"w": 3, "area": 9})}),
    ("INSERT INTO counters (x) VALUES (1); DELETE FROM counters", {}),
    ("INSERT INTO counters (x) VALUES (x'31')", {"counters": added({"id": 1, "x": "31"})}),
    (
        "INSERT INTO shadowed VALUES ('a', 'b', 'c'), ('a', 'b', 'd')",
        {
            "shadowed": added(
                {"rowid": "a", "_rowid_": "b", "oid": "c"},
                {"rowid": "a", "_rowid_": "b", "oid": "d"},
            )
        },
    ),
    ("INSERT INTO notes VALUES ('second', 'bye')", {"notes": added({"title": "second", "body": "bye"})}),
    (
        "UPDATE notes SET body = 'bye' WHERE rowid = 1",
        {"notes": changed({"rowid": 1}, {"body": "hello world"}, {"body": "bye"})},
    ),
    ("INSERT INTO notes (notes) VALUES ('optimize')", {}),
    ("INSERT INTO users_fts (users_fts) VALUES ('rebuild')", {}),
]


@pytest.mark.parametrize(("sql", "expected"), CASES)
def test_state_diff(snapshot: bytes, sql: str, expected: dict[str, Any]) -> None:
    initial = open_database(snapshot, read_only=True)
    live = open_database(snapshot, clock=CLOCK)
    for statement in split_statements(sql):
        live.execute(statement.text)
    assert state_diff(initial, live) == expected
    final = open_database(live.serialize(), read_only=True)
    found = state_diff(initial, final)
    assert found == expected
    assert json.loads(json.dumps(found, allow_nan=False)) == expected


def test_order_is_by_table_and_key(snapshot: bytes) -> None:
    live = open_database(snapshot)
    live.execute("INSERT INTO users (id, name) VALUES (30, 'z'), (4, 'y'), (5, 'x')")
    live.execute("INSERT INTO codes (code) VALUES (NULL), (x'00'), ('a'), (7)")
    live.execute("UPDATE users SET name = '?' WHERE id < 20")
    found = state_diff(open_database(snapshot), live)
    assert list(found) == ["codes", "users"]
    assert [row["id"] for row in found["users"]["added"]] == [4, 5, 30]
    assert [row["key"]["id"] for row in found["users"]["changed"]] == [1, 2, 10]
    assert [row["code"] for row in found["codes"]["added"]] == [None, "7", "a", "00"]


def test_the_other_way_round_swaps_sides(snapshot: bytes) -> None:
    live = open_database(snapshot)
    live.execute("DELETE FROM items")
    initial = open_database(snapshot)
    there, back = state_diff(initial, live)["items"], state_diff(live, initial)["items"]
    assert there["removed"] == back["added"] != []


def test_row_factories_of_the_caller_do_not_matter(snapshot: bytes) -> None:
    live = open_database(snapshot)
    live.row_factory = None
    live.execute("DELETE FROM tags WHERE tag = 'vip'")
    assert state_diff(open_database(snapshot), live) == {"tags": removed({"user_id": 1, "tag": "vip"})}
    assert live.row_factory is None


def test_keys_that_no_one_can_tell_apart_lose_no_row() -> None:
    sides = [sqlite3.connect(":memory:") for _ in range(2)]
    for side in sides:
        side.execute("CREATE TABLE t (rowid TEXT PRIMARY KEY, _rowid_ TEXT, oid TEXT)")
        side.execute("INSERT INTO t VALUES (NULL, 'a', 'b'), (NULL, 'a', 'c')")
    sides[1].execute("DELETE FROM t WHERE oid = 'c'")
    assert state_diff(*sides) == {"t": removed({"rowid": None, "_rowid_": "a", "oid": "c"})}


def test_tables_that_differ_count_as_removed_and_added() -> None:
    old, new = sqlite3.connect(":memory:"), sqlite3.connect(":memory:")
    old.executescript(
        "CREATE TABLE a (x); INSERT INTO a VALUES (1); CREATE TABLE gone (y); INSERT INTO gone VALUES (2)"
    )
    new.executescript("CREATE TABLE a (x, z); INSERT INTO a VALUES (1, 3); CREATE TABLE empty (y)")
    assert state_diff(old, new) == {
        "a": {"added": [{"x": 1, "z": 3}], "removed": [{"x": 1}], "changed": []},
        "gone": removed({"y": 2}),
    }
