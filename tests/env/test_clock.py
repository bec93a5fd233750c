"""The frozen clock, as SQL sees it."""

import sqlite3
from datetime import UTC, datetime, timedelta, timezone

import pytest

from awm.env.clock import FrozenClock, install

START = "2026-03-05 09:30:15"


def connect(clock: FrozenClock | None = None) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    install(connection, clock or FrozenClock(START))
    return connection


def value(connection: sqlite3.Connection, expression: str) -> object:
    return connection.execute(f"SELECT {expression}").fetchone()[0]


@pytest.mark.parametrize(
    "start",
    [
        START,
        "2026-03-05T09:30:15",
        "2026-03-05T09:30:15Z",
        "2026-03-05T11:30:15+02:00",
        datetime(2026, 3, 5, 9, 30, 15),
        datetime(2026, 3, 5, 9, 30, 15, tzinfo=UTC),
        datetime(2026, 3, 5, 4, 30, 15, tzinfo=timezone(timedelta(hours=-5))),
    ],
)
def test_start_is_utc(start: str | datetime) -> None:
    assert FrozenClock(start).now == datetime(2026, 3, 5, 9, 30, 15)


@pytest.mark.parametrize("start", ["", "now", "2026-13-01", "5 March 2026"])
def test_bad_start_says_how_to_write_it(start: str) -> None:
    with pytest.raises(ValueError, match="write it as YYYY-MM-DD HH:MM:SS"):
        FrozenClock(start)


def test_advance_and_restart() -> None:
    clock = FrozenClock(START, step_s=60)
    connection = connect(clock)
    clock.advance()
    clock.advance()
    assert clock.now == datetime(2026, 3, 5, 9, 32, 15)
    assert value(connection, "datetime('now')") == "2026-03-05 09:32:15"
    clock.restart()
    assert value(connection, "CURRENT_TIMESTAMP") == START


NOW = [
    ("CURRENT_TIMESTAMP", START),
    ("current_date", "2026-03-05"),
    ("CURRENT_TIME", "09:30:15"),
    ("datetime('now')", START),
    ("datetime('NOW')", START),
    ("datetime(x'6e6f77')", START),
    ("datetime()", START),
    ("date()", "2026-03-05"),
    ("time()", "09:30:15"),
    ("date('now')", "2026-03-05"),
    ("time('now')", "09:30:15"),
    ("datetime('now', '+1 day')", "2026-03-06 09:30:15"),
    ("datetime('Now', 'start of month', '-1 day')", "2026-02-28 00:00:00"),
    ("date('now', 'weekday 0')", "2026-03-08"),
    ("datetime('now', 'localtime')", START),
    ("datetime('now', 'UTC', '+1 hour')", "2026-03-05 10:30:15"),
    ("strftime('%Y-%m')", "2026-03"),
    ("strftime('%H:%M', 'now')", "09:30"),
    ("strftime('%s', 'now')", "1772703015"),
    ("strftime('%f', 'now')", "15.000"),
    ("abs(strftime('%J', 'now') - julianday()) < 1e-6", 1),
    ("unixepoch()", 1772703015),
    ("unixepoch('now')", 1772703015),
    ("unixepoch('now', '-1 minute')", 1772702955),
    ("julianday('now') - julianday('2026-03-05 09:30:15')", 0.0),
]


@pytest.mark.parametrize(("expression", "expected"), NOW)
def test_now_is_frozen(expression: str, expected: object) -> None:
    assert value(connect(), expression) == expected


@pytest.mark.parametrize(
    "expression",
    [
        "datetime('2024-02-29')",
        "datetime('2024-02-29', '+1 year')",
        "datetime(1700000000, 'unixepoch')",
        "datetime(2460000.5)",
        "date('2024-02-30')",
        "date('nonsense')",
        "date('now ')",
        "date(NULL)",
        "time('12:00')",
        "strftime()",
        "strftime(NULL)",
        "strftime('%d.%m.%Y', '2024-02-29')",
        "strftime('%Y', 'nonsense')",
        "unixepoch('2024-02-29 12:00:00')",
        "julianday('2024-02-29')",
        "typeof(julianday('2024-02-29'))",
        "date('2024-02-29', 'bogus')",
        "date('2024-02-29', NULL)",
    ],
)
def test_everything_else_is_as_sqlite_computes(expression: str) -> None:
    assert value(connect(), expression) == value(sqlite3.connect(":memory:"), expression)


@pytest.mark.skipif(sqlite3.sqlite_version_info < (3, 43), reason="this SQLite has no timediff() and no 'subsec'")
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("datetime('now', 'subsec')", "2026-03-05 09:30:15.000"),
        ("datetime('subsec')", "2026-03-05 09:30:15.000"),
        ("unixepoch('subsecond')", 1772703015.0),
        ("timediff('now', '2026-03-04 09:30:15')", "+0000-00-01 00:00:00.000"),
        ("timediff('now', 'NOW')", "+0000-00-00 00:00:00.000"),
    ],
)
def test_newer_functions_are_frozen(expression: str, expected: object) -> None:
    assert value(connect(), expression) == expected


def test_remembered_answers_are_those_asked_for() -> None:
    connection = connect()
    questions = ["strftime(1, '2024-01-01')", "strftime(1.0, '2024-01-01')", "date(2460000)", "date('2460000')"]
    questions += [
        "datetime('2024-01-01')",
        "date('2024-01-01')",
        "unixepoch('2024-01-01')",
        "date('2024-01-01', '1 day')",
    ]
    expected = [value(sqlite3.connect(":memory:"), question) for question in questions]
    for _ in range(2):
        assert [value(connection, question) for question in questions] == expected


def test_the_time_itself_is_never_remembered() -> None:
    clock = FrozenClock(START)
    connection = connect(clock)
    for second in (15, 16):
        assert value(connection, "strftime('%S', 'now')") == value(connection, "strftime('%S')") == str(second)
        assert value(connection, "datetime('now', '+1 day')") == f"2026-03-06 09:30:{second}"
        clock.advance()


def test_milliseconds_of_the_start_are_kept() -> None:
    connection = connect(FrozenClock("2026-03-05 09:30:15.250"))
    assert value(connection, "strftime('%f')") == "15.250"
    assert value(connection, "datetime('now')") == START


def test_defaults_views_and_triggers_follow_the_clock() -> None:
    clock = FrozenClock(START)
    connection = connect(clock)
    connection.executescript(
        """
        CREATE TABLE a (id INTEGER PRIMARY KEY, t DEFAULT CURRENT_TIMESTAMP, u DEFAULT (datetime('now', '+1 day')),
                        d DEFAULT CURRENT_DATE, c DEFAULT current_time);
        CREATE TABLE log (t);
        CREATE VIEW v AS SELECT datetime('now') AS t;
        CREATE TRIGGER tr AFTER INSERT ON a BEGIN INSERT INTO log VALUES (CURRENT_TIMESTAMP); END;
        INSERT INTO a (id) VALUES (1);
        """
    )
    assert connection.execute("SELECT t, u, d, c FROM a").fetchall() == [
        (START, "2026-03-06 09:30:15", "2026-03-05", "09:30:15")
    ]
    clock.advance()
    connection.execute("INSERT INTO a (id) VALUES (2)")
    assert connection.execute("SELECT t FROM log").fetchall() == [(START,), ("2026-03-05 09:30:16",)]
    assert connection.execute("SELECT t FROM v").fetchall() == [("2026-03-05 09:30:16",)]


def test_a_cached_statement_sees_the_clock_move() -> None:
    clock = FrozenClock(START)
    connection = connect(clock)
    seen = []
    for _ in range(3):
        seen.append(connection.execute("SELECT datetime('now')").fetchone()[0][-2:])
        clock.advance()
    assert seen == ["15", "16", "17"]


def test_checks_generated_columns_and_indexes_may_use_dates() -> None:
    connection = connect()
    connection.executescript(
        """
        CREATE TABLE a (t TEXT CHECK (date(t) IS NOT NULL), day TEXT GENERATED ALWAYS AS (date(t)) STORED);
        CREATE INDEX i ON a (strftime('%Y', t));
        INSERT INTO a (t) VALUES ('2024-02-29 12:00:00');
        """
    )
    assert connection.execute("SELECT day FROM a WHERE strftime('%Y', t) = '2024'").fetchall() == [("2024-02-29",)]
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute("INSERT INTO a (t) VALUES ('soon')")


def random_values(connection: sqlite3.Connection) -> list[object]:
    return [value(connection, "random()"), value(connection, "random()"), value(connection, "hex(randomblob(8))")]


def test_random_numbers_are_the_same_after_a_restart() -> None:
    clock = FrozenClock(START)
    first = random_values(connect(clock))
    assert random_values(connect(clock)) != first
    clock.restart()
    assert random_values(connect(clock)) == first
    assert random_values(connect(FrozenClock("2026-03-05 09:30:16"))) != first
    # Equal on every machine and Python
    assert first[2] == "E28D543EE9E625C9"


def test_random_is_drawn_for_each_row() -> None:
    connection = connect()
    rows = connection.execute("SELECT random() FROM (VALUES (1), (2), (3))").fetchall()
    assert len(set(rows)) == 3
    assert all(-(2**63) <= number < 2**63 for (number,) in rows)


@pytest.mark.parametrize(("size", "length"), [(0, 1), (-5, 1), ("NULL", 1), ("'x'", 1), (16, 16)])
def test_randomblob_sizes(size: object, length: int) -> None:
    assert value(connect(), f"length(randomblob({size}))") == length


def test_randomblob_is_bounded() -> None:
    with pytest.raises(sqlite3.OperationalError):
        value(connect(), "randomblob(1000000000)")


def test_connections_share_a_clock_and_keep_their_own() -> None:
    clock = FrozenClock(START)
    one, two, other = connect(clock), connect(clock), connect(FrozenClock("2000-01-01"))
    clock.advance()
    assert value(one, "datetime('now')") == value(two, "datetime('now')") == "2026-03-05 09:30:16"
    assert value(other, "datetime('now')") == "2000-01-01 00:00:00"
