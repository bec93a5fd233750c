"""The environment's clock: frozen, advanced by hand, and seen by SQL.

SQLite reads the machine's clock and its own random numbers, so that the same statements would give other rows on each
run. `install` overrides those functions on one connection. Everything but 'now' is still computed by SQLite itself, on
a second connection that no one else sees.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final, TypeAlias

__all__ = ["FrozenClock", "install"]

_Value: TypeAlias = str | bytes | int | float | None
_Function: TypeAlias = Callable[..., _Value]

_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_MAX_RANDOM_BYTES = 1 << 20

# What SQLite gave for values that don't depend on the clock: queries ask for the same columns again and again. Long
# values are not remembered, so that they can't fill the memory.
_known: dict[str, dict[tuple[_Value, ...], _Value]] = {}
_MAX_REMEMBERED = 4096
_MAX_REMEMBERED_LENGTH = 64
_UNKNOWN: Final[Any] = object()
_HAS_SUBSEC = sqlite3.sqlite_version_info >= (3, 42)
_HAS_TIMEDIFF = sqlite3.sqlite_version_info >= (3, 43)
_ZONES = frozenset({"localtime", "utc"})


class FrozenClock:
    """The time of one environment, in UTC, and its random numbers. It moves only when told to.

    :param start: First moment, as a datetime or as ISO 8601 text (`2026-03-05 09:00:00`). A time zone is converted to
        UTC; none means UTC. SQL sees milliseconds.
    :param step_s: Seconds that `advance` adds.

    Raises ValueError if `start` is no such text.
    """

    __slots__ = ("_elapsed_s", "_functions", "_random", "_start_ns", "_text", "start", "step_s")

    def __init__(self, start: str | datetime, step_s: int = 1) -> None:
        moment = _parse(start) if isinstance(start, str) else start
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
        self.start = moment
        self.step_s = step_s
        self._start_ns = (moment - _EPOCH) // _MICROSECOND * 1000
        self._functions: list[tuple[str, int, _Function, bool]] | None = None
        self.restart()

    def advance(self) -> None:
        """Add one step to the time."""
        self._elapsed_s += self.step_s
        self._text: str | None = None

    def restart(self) -> None:
        """Go back to the first moment, and to the first random number."""
        self._elapsed_s = 0
        self._text = None
        self._random: Random | None = None

    @property
    def now(self) -> datetime:
        """The time."""
        return self.start + timedelta(seconds=self._elapsed_s)

    @property
    def now_ns(self) -> int:
        """The time in nanoseconds since 1970."""
        return self._start_ns + self._elapsed_s * 1_000_000_000

    @property
    def text(self) -> str:
        """The time as SQLite writes it, with milliseconds: `2026-03-05 09:00:00.000`."""
        if self._text is None:
            self._text = self.now.isoformat(sep=" ", timespec="milliseconds")
        return self._text

    @property
    def random(self) -> Random:
        """The random numbers that `random()` and `randomblob()` draw from."""
        if self._random is None:
            self._random = Random(self.start.isoformat())
        return self._random


def install(connection: sqlite3.Connection, clock: FrozenClock) -> None:
    """Make all date, time and random functions of a connection follow the clock.

    That covers 'now' in any case and with any modifiers, calls without arguments, CURRENT_TIMESTAMP, CURRENT_DATE,
    CURRENT_TIME, and all of them in DEFAULT clauses, views and triggers. 'localtime' and 'utc' change nothing: the
    environment lives in UTC, wherever the machine stands. `random()` and `randomblob()` draw from the clock's seeded
    numbers; `randomblob` gives at most 1 MiB.

    Date and time functions are declared deterministic, because SQLite accepts nothing else in CHECK constraints,
    generated columns and indexes; within one statement the clock does stand still.
    """
    if clock._functions is None:
        clock._functions = list(_functions(clock))
    for name, arity, function, deterministic in clock._functions:
        connection.create_function(name, arity, function, deterministic=deterministic)


def _parse(start: str) -> datetime:
    try:
        return datetime.fromisoformat(start)
    except ValueError:
        raise ValueError(f"{start!r} is not a time; write it as YYYY-MM-DD HH:MM:SS") from None


def _functions(clock: FrozenClock) -> list[tuple[str, int, _Function, bool]]:
    functions: list[tuple[str, int, _Function, bool]] = [
        ("datetime", -1, _time_function("datetime", clock, 0, slice(0, 19)), True),
        ("date", -1, _time_function("date", clock, 0, slice(0, 10)), True),
        ("time", -1, _time_function("time", clock, 0, slice(11, 19)), True),
        ("julianday", -1, _time_function("julianday", clock, 0), True),
        ("unixepoch", -1, _time_function("unixepoch", clock, 0), True),
        ("strftime", -1, _time_function("strftime", clock, 1), True),
        ("current_timestamp", 0, lambda: clock.text[:19], True),
        ("current_date", 0, lambda: clock.text[:10], True),
        ("current_time", 0, lambda: clock.text[11:19], True),
        ("random", 0, lambda: clock.random.getrandbits(64) - (1 << 63), False),
        ("randomblob", 1, lambda size: _random_blob(clock, size), False),
    ]
    if _HAS_TIMEDIFF:
        functions.append(("timediff", 2, _timediff(clock), True))
    return functions


def _time_function(name: str, clock: FrozenClock, position: int, plain: slice | None = None) -> _Function:
    """Return the override of one function.

    :param position: Where the time value stands among the arguments.
    :param plain: The part of the clock's text that is the answer for a bare 'now', to save a query.
    """
    known = _known.setdefault(name, {})

    def function(*values: _Value) -> _Value:
        answer: _Value = known.get(values, _UNKNOWN)
        if answer is not _UNKNOWN:
            return answer
        given = values
        if len(values) <= position:
            if len(values) < position:
                return None
            values = (*values, "now")
        if plain and len(values) == 1 and _is_now(values[0]):
            return clock.text[plain]
        resolved = _resolved(values, position, clock)
        answer = _ask_sqlite(name, resolved)
        is_fixed = len(given) > position and given[position] == resolved[position]  # no 'now' in it
        if is_fixed and (position == 0 or isinstance(given[0], str)):  # as formats, 1 and 1.0 differ
            _remember(known, given, answer)
        return answer

    return function


def _resolved(values: tuple[_Value, ...], position: int, clock: FrozenClock) -> tuple[_Value, ...]:
    """Return the arguments with the frozen time for 'now', and without changes of time zone."""
    moment = values[position]
    modifiers = values[position + 1 :]
    if isinstance(moment, str | bytes):
        if _is_now(moment):
            moment = clock.text
        elif _HAS_SUBSEC and _lower(moment) in ("subsec", "subsecond"):
            moment, modifiers = clock.text, ("subsec", *modifiers)
    if modifiers:
        modifiers = tuple(value for value in modifiers if _lower(value) not in _ZONES)
    return (*values[:position], moment, *modifiers)


def _timediff(clock: FrozenClock) -> _Function:
    def function(*values: _Value) -> _Value:
        return _ask_sqlite("timediff", tuple(clock.text if _is_now(value) else value for value in values))

    return function


def _random_blob(clock: FrozenClock, size: _Value) -> bytes:
    count = int(size) if isinstance(size, int | float) else 1
    if count > _MAX_RANDOM_BYTES:
        raise ValueError(f"randomblob({count}) is more than {_MAX_RANDOM_BYTES} bytes")
    return clock.random.randbytes(max(count, 1))


def _is_now(value: _Value) -> bool:
    return _lower(value) == "now"


def _lower(value: _Value) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace").lower()
    return value.lower() if isinstance(value, str) else None


class _Sqlite(threading.local):
    """A connection of each thread, with SQLite's own functions."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None)


_sqlite = _Sqlite()


def _ask_sqlite(name: str, values: tuple[_Value, ...]) -> _Value:
    """Return what SQLite's own function gives for these values, none of which is 'now'."""
    question = f"SELECT {name}({','.join('?' * len(values))})"
    answer: tuple[_Value] = _sqlite.connection.execute(question, values).fetchone()
    return answer[0]


def _remember(known: dict[tuple[_Value, ...], _Value], values: tuple[_Value, ...], answer: _Value) -> None:
    if any(isinstance(value, str | bytes) and len(value) > _MAX_REMEMBERED_LENGTH for value in values):
        return
    if len(known) >= _MAX_REMEMBERED:
        known.clear()
    known[values] = answer
