"""SQL as text: quoting, splitting, and what a statement is about."""

import sqlite3

import pytest

from awm.env.sql import (
    Statement,
    conflict_clauses,
    quote_identifier,
    split_statements,
    statement_kind,
    statement_table,
)


@pytest.mark.parametrize("name", ["orders", "order", "a b", 'a"b', "a'b", "[x]", "`", "\u00fc"])
def test_quoted_identifiers_name_what_they_say(name: str) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE {quote_identifier(name)} (x)")
    assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [(name,)]


TRIGGER = "CREATE TRIGGER t AFTER INSERT ON a BEGIN UPDATE a SET x = 1; DELETE FROM b; END;"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("", []),
        (" \n\t", []),
        (";;\n;", []),
        ("-- nothing\n/* here */", []),
        ("SELECT 1;", [Statement("SELECT 1;", 1)]),
        ("SELECT 1", [Statement("SELECT 1", 1, terminated=False)]),
        ("SELECT 1 \n", [Statement("SELECT 1", 1, terminated=False)]),
        ("SELECT 1;SELECT 2;", [Statement("SELECT 1;", 1), Statement("SELECT 2;", 1)]),
        ("\n\nSELECT\n1;\n\nSELECT 2;", [Statement("SELECT\n1;", 3), Statement("SELECT 2;", 6)]),
        ("-- a;b\nSELECT 1;", [Statement("SELECT 1;", 2)]),
        ("/* a;\nb */ SELECT 1; -- end;", [Statement("SELECT 1;", 2)]),
        ("SELECT ';', 'it''s;' ;", [Statement("SELECT ';', 'it''s;' ;", 1)]),
        ('SELECT ";";', [Statement('SELECT ";";', 1)]),
        ("SELECT [;], `;`;", [Statement("SELECT [;], `;`;", 1)]),
        ("SELECT 1 /* ; */ + -- ;\n 2;", [Statement("SELECT 1 /* ; */ + -- ;\n 2;", 1)]),
        (f"{TRIGGER}\nSELECT 1;", [Statement(TRIGGER, 1), Statement("SELECT 1;", 2)]),
        ("SELECT 'a;\nSELECT 2;", [Statement("SELECT 'a;\nSELECT 2;", 1, terminated=False)]),
        ("SELECT '\ud800;\0';\nSELECT 2;", [Statement("SELECT '\ud800;\0';", 1), Statement("SELECT 2;", 2)]),
        ("SELECT 1;\0;", [Statement("SELECT 1;", 1), Statement("\0;", 1)]),
        (
            "create temp trigger t BEGIN SELECT CASE 1 WHEN 1 THEN 2 END; END; ;SELECT ';END;'",
            [
                Statement("create temp trigger t BEGIN SELECT CASE 1 WHEN 1 THEN 2 END; END;", 1),
                Statement("SELECT ';END;'", 1, terminated=False),
            ],
        ),
        ("SELECT 1;\n;\nSELECT 2;", [Statement("SELECT 1;", 1), Statement("SELECT 2;", 3)]),
    ],
)
def test_split_statements(sql: str, expected: list[Statement]) -> None:
    assert split_statements(sql) == expected


@pytest.mark.parametrize(
    ("sql", "kind", "table"),
    [
        ("", "", None),
        ("CREATE TABLE orders (id)", "CREATE TABLE", "orders"),
        ("create table if not exists Orders(id)", "CREATE TABLE", "Orders"),
        ('CREATE TABLE "or""der" (id)', "CREATE TABLE", 'or"der'),
        ("CREATE TABLE `order` (id)", "CREATE TABLE", "order"),
        ("CREATE TABLE [my orders](id)", "CREATE TABLE", "my orders"),
        ("CREATE TABLE 'orders'(id)", "CREATE TABLE", "orders"),
        ("CREATE TABLE main.orders (id)", "CREATE TABLE", "orders"),
        ("CREATE /* x */ TABLE -- y\n orders (id)", "CREATE TABLE", "orders"),
        ("CREATE TEMP TABLE t (id)", "CREATE TEMP TABLE", "t"),
        ("CREATE VIRTUAL TABLE f USING fts5(x)", "CREATE VIRTUAL TABLE", "f"),
        ("CREATE UNIQUE INDEX IF NOT EXISTS i ON orders (id)", "CREATE INDEX", "orders"),
        ('CREATE INDEX "on" ON "orders" (id)', "CREATE INDEX", "orders"),
        ("CREATE TRIGGER t AFTER UPDATE OF x ON orders BEGIN SELECT 1; END", "CREATE TRIGGER", "orders"),
        ("CREATE TRIGGER t INSTEAD OF DELETE ON v BEGIN SELECT 1; END", "CREATE TRIGGER", "v"),
        ("CREATE VIEW v AS SELECT * FROM orders", "CREATE VIEW", None),
        ("INSERT INTO orders VALUES (1)", "INSERT", "orders"),
        ('INSERT INTO main."orders"(id) SELECT 1', "INSERT", "orders"),
        ("INSERT OR IGNORE INTO orders VALUES (1)", "INSERT OR IGNORE", "orders"),
        ("REPLACE INTO orders VALUES (1)", "REPLACE", "orders"),
        ("WITH a(x) AS (SELECT 1) INSERT INTO orders SELECT x FROM a", "INSERT", "orders"),
        ("WITH a(x) AS (SELECT 1) SELECT x FROM a", "SELECT", None),
        ("DELETE FROM orders", "DELETE", "orders"),
        ("UPDATE orders SET id = 1", "UPDATE", "orders"),
        ("UPDATE OR IGNORE orders SET id = 1", "UPDATE", "orders"),
        ("PRAGMA foreign_keys=OFF", "PRAGMA", None),
        ("CREATE TABLE", "CREATE TABLE", None),
        ("CREATE", "CREATE", None),
        ("(", "(", None),
    ],
)
def test_what_a_statement_is_about(sql: str, kind: str, table: str | None) -> None:
    assert statement_kind(sql) == kind
    assert statement_table(sql) == table


@pytest.mark.parametrize(
    ("sql", "clauses"),
    [
        ("INSERT INTO a VALUES ('ON CONFLICT')", set()),
        ("INSERT INTO a VALUES (1) ON CONFLICT DO NOTHING", {"DO"}),
        ("INSERT INTO a VALUES (1) on conflict (x) DO UPDATE SET x = 2", {""}),
        ("CREATE TABLE a (x UNIQUE ON CONFLICT IGNORE, y NOT NULL ON CONFLICT abort)", {"IGNORE", "ABORT"}),
    ],
)
def test_conflict_clauses(sql: str, clauses: set[str]) -> None:
    assert conflict_clauses(sql) == clauses


@pytest.mark.parametrize(
    "script",
    [
        "'" + ";" * 500_000,
        "'" * 500_000,
        "CREATE TRIGGER t BEGIN " + "SELECT 1;" * 50_000,
        "/*" + "*" * 500_000,
        "(" * 500_000,
    ],
    ids=["semicolons in text", "quotes", "a trigger", "a comment", "brackets"],
)
def test_long_scripts_are_split_in_time_that_grows_with_them(script: str) -> None:
    [statement] = split_statements(script) or [None]
    if statement is not None:
        assert not statement.terminated
        statement_kind(statement.text)
        statement_table(statement.text)
