"""Schemas and databases: what is executed, and what is said about it."""

from __future__ import annotations

import sqlite3

import pytest

from awm.config import DatabasesConfig, SchemasConfig
from awm.synth.databases import DatabasesStep, initial_state, summarise
from awm.synth.design import Design
from awm.synth.loop.step import Item, Problem
from awm.synth.schemas import SchemasStep
from synth.library_environment import CLOCK, DATA, SCENARIO, SCHEMA, TASKS

SCHEMAS = SchemasStep(SchemasConfig(min_tables=3, max_tables=5), CLOCK)
DATABASES = DatabasesStep(DatabasesConfig(min_rows=8, clock=CLOCK))


def check_schema(sql: str) -> list[Problem]:
    item = Item(SCENARIO.slug, (SCENARIO, TASKS), [])
    return SCHEMAS.check(SCHEMAS.read(f"```sql\n{sql}\n```", item, None), item)


def check_data(sql: str, schema: str = SCHEMA) -> list[Problem]:
    item = Item(SCENARIO.slug, Design(SCENARIO, TASKS, schema), [])
    return DATABASES.check(DATABASES.read(f"```sql\n{sql}\n```", item, None), item)


def test_a_good_schema_and_good_data_have_no_problems() -> None:
    assert check_schema(SCHEMA) == []
    assert check_data(DATA) == []


@pytest.mark.parametrize(
    ("old", "new", "reason", "part"),
    [
        ("CHECK (copies >= 0)", "CHECK (copies >= 0", "sql", "books"),
        ("REFERENCES books (id)", "REFERENCES bokos (id)", "sql", "loans"),
        ("REFERENCES books (id)", "REFERENCES books (title)", "sql", "loans"),
        ("id INTEGER PRIMARY KEY, title", "id INTEGER UNIQUE, title", "primary_key", "books"),
        (
            "users (id INTEGER PRIMARY KEY, name",
            "users (id INTEGER UNIQUE, no INTEGER PRIMARY KEY, name",
            "users",
            "users",
        ),
        ("title TEXT", "bookTitle TEXT", "naming", "books"),
        ("CREATE INDEX", "CREATE VIEW", "statement", None),
        ("CREATE INDEX loans_user ON loans (user_id);", "DROP TABLE loans;", "statement", None),
        (
            "CREATE INDEX loans_user ON loans (user_id);",
            "INSERT INTO users VALUES (1, 'a', 'b');",
            "statement",
            "users",
        ),
        ("CREATE INDEX loans_user ON loans (user_id);", "PRAGMA foreign_keys = OFF;", "statement", None),
        ("CREATE INDEX loans_user ON loans (user_id);", "CREATE INDEX loans_user ON loans (usr_id);", "sql", "loans"),
    ],
)
def test_a_broken_schema_is_named(old: str, new: str, reason: str, part: str | None) -> None:
    assert old in SCHEMA
    problems = check_schema(SCHEMA.replace(old, new))

    assert reason in {problem.reason for problem in problems}
    assert part in {problem.part for problem in problems}


def test_a_schema_of_another_size_is_named() -> None:
    (problem,) = check_schema(SCHEMA + "".join(f"CREATE TABLE t_{n} (id INTEGER PRIMARY KEY);" for n in range(3)))

    assert (problem.reason, problem.message) == ("size", "there are 6 tables; 3 to 5 are wanted")


@pytest.mark.parametrize(
    ("old", "new", "reason", "part"),
    [
        ("'Don''t look'", "'Don't look'", None, "books"),
        ("'Don''t look'", "'Don\\'t look'", None, "books"),
        ("INSERT INTO books", "INSERT INTO boks", "sql", None),
        ("INSERT INTO books", "INSERT OR IGNORE INTO books", None, "books"),
        ("INSERT INTO books", "INSERT OR REPLACE INTO books", None, "books"),
        ("(3, 2, 1, '2026-03-04'", "(3, 2, 77, '2026-03-04'", None, None),
        ("(3, 2, 1, '2026-03-04'", "(1, 2, 1, '2026-03-04'", "sql", "loans"),
        ("'returned', 0)", "'lost', 0)", "sql", "loans"),
        ("(1, 'Ada', 'ada@example.org'), ", "", None, None),
        ("(1, 'Ada'", "(7, 'Ada'", None, None),
        ("INSERT INTO users", "UPDATE users SET id = 1; INSERT INTO users", "statement", None),
    ],
)
def test_broken_data_is_named(old: str, new: str, reason: str | None, part: str | None) -> None:
    assert old in DATA
    problems = check_data(DATA.replace(old, new))

    assert problems
    assert reason is None or reason in {problem.reason for problem in problems}
    assert part is None or part in {problem.part for problem in problems}


def test_no_table_may_be_empty_and_no_row_few() -> None:
    problems = check_data(DATA.split("INSERT INTO loans")[0])

    assert {problem.reason for problem in problems} == {"empty_table", "size"}
    assert "table loans is empty" in [problem.message for problem in problems]


def test_user_1_must_exist() -> None:
    data = DATA.replace("(1, 'Ada'", "(3, 'Ada'").replace("(1, 1, 1,", "(1, 3, 1,").replace("(2, 1, 2,", "(2, 3, 2,")
    problems = check_data(data.replace("(4, 1, 3,", "(4, 3, 3,"))

    assert [problem.message for problem in problems] == ["there is no user with id 1"]


def test_an_answer_that_stops_in_the_middle_of_a_statement_is_named() -> None:
    item = Item(SCENARIO.slug, Design(SCENARIO, TASKS, SCHEMA), [])
    problems = DATABASES.check(DATA.rstrip().removesuffix(");"), item)

    assert "unfinished" in {problem.reason for problem in problems}


def test_a_repair_replaces_all_statements_of_a_table() -> None:
    item = Item(SCENARIO.slug, Design(SCENARIO, TASKS, SCHEMA), [])
    broken = DATA.replace("'returned', 0)", "'lost', 0)")
    loans = "INSERT INTO loans" + DATA.split("INSERT INTO loans")[1]

    repaired = DATABASES.read(f"```sql\n{loans}```", item, broken)

    assert DATABASES.check(repaired, item) == []
    assert DATABASES.excerpt(broken, ["loans"]).count("INSERT") == 1


def test_the_same_statements_give_the_same_database_under_the_frozen_clock() -> None:
    first, second = (initial_state(SCHEMA, DATA, CLOCK) for _ in range(2))
    assert first == second

    connection = sqlite3.connect(":memory:")
    connection.deserialize(first)
    assert connection.execute("SELECT due_on, created_at FROM loans WHERE id = 4").fetchone() == ("2026-01-31", CLOCK)
    assert connection.execute("SELECT title FROM books WHERE id = 3").fetchone() == ("Don't look",)


def test_the_summary_counts_rows_and_its_hash_is_of_the_content() -> None:
    summary = summarise("x", initial_state(SCHEMA, DATA, CLOCK), CLOCK)
    other_order = initial_state(
        SCHEMA, DATA.replace("(1, 'Emma', 2), (2, 'Dracula', 1)", "(2, 'Dracula', 1), (1, 'Emma', 2)"), CLOCK
    )
    other_value = initial_state(SCHEMA, DATA.replace("'Emma', 2", "'Emma', 3"), CLOCK)

    assert summary.tables == {"books": 3, "loans": 4, "users": 2}
    assert summarise("x", other_order, CLOCK).content_hash == summary.content_hash
    assert summarise("x", other_value, CLOCK).content_hash != summary.content_hash
