"""One session in a worker: a database restored from a snapshot, its clock, and the transaction around each call."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from mmap import mmap
from typing import Any, Protocol

from awm.env.authorizer import authorize_writes
from awm.env.clock import FrozenClock
from awm.env.database import open_database, page_limit
from awm.env.diff import state_diff

__all__ = ["Session", "TransactionEndedError", "WorldClock", "timestamp"]

# Texts that no tool writes: the connection keeps compiled statements by their text, and these passed the authorizer.
_BEGIN, _COMMIT, _ROLLBACK = "BEGIN /* call */", "COMMIT /* call */", "ROLLBACK /* call */"


class TransactionEndedError(Exception):
    """A tool, or an error it swallowed, ended the transaction of its call."""


class _Traveller(Protocol):
    """Python's own clock as `time_machine` gives it."""

    def move_to(self, destination: float, tick: bool | None = None) -> None: ...

    def shift(self, delta: int) -> None: ...


class WorldClock:
    """Python's own clock, frozen, which can be moved."""

    def __init__(self, traveller: _Traveller) -> None:
        self._traveller = traveller
        self._now_ns = -1

    def move_to(self, seconds: float) -> None:
        """Set the time, in seconds since 1970."""
        self._traveller.move_to(float(seconds))
        self._now_ns = -1

    def follow(self, clock: FrozenClock) -> None:
        """Set the time to another clock's."""
        now_ns = clock.now_ns
        passed_s, rest = divmod(now_ns - self._now_ns, 1_000_000_000)
        if rest or self._now_ns < 0:
            self.move_to(timestamp(clock))
        elif passed_s:
            self._traveller.shift(passed_s)  # costs a fifth of a move
        self._now_ns = now_ns


def timestamp(clock: FrozenClock) -> float:
    """Return a clock's time in seconds since 1970."""
    return clock.now_ns / 1_000_000_000


class Session:
    """A database that calls change, and that can go back to its snapshot.

    :param clock: The frozen time it starts with, which advances with each call.
    :param deadline: When a running statement is interrupted; see `open_database`.
    """

    def __init__(self, snapshot: bytes | mmap, clock: str, *, max_mb: int, deadline: Callable[[], float]) -> None:
        self.clock = FrozenClock(clock)
        self._snapshot = snapshot
        self._max_mb = max_mb
        self._deadline = deadline
        self._own_statement = False
        self.connection = self._open()

    def _open(self) -> sqlite3.Connection:
        connection = open_database(self._snapshot, clock=self.clock, max_mb=None, deadline=self._deadline)
        connection.set_authorizer(self._authorize)
        self._control = connection.cursor()
        self._is_ready = False
        return connection

    def _authorize(self, action: int, first: str | None, second: str | None, *rest: str | None) -> int:
        if self._own_statement:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_TRANSACTION:
            return sqlite3.SQLITE_DENY
        return authorize_writes(action, first, second, *rest)

    def reset(self) -> None:
        """Go back to the snapshot and the first moment, on a new connection: old cursors must not survive."""
        self.connection.close()
        self.clock.restart()
        self.connection = self._open()

    def close(self) -> None:
        """Let go of the database."""
        self.connection.close()

    def enter(self, world: WorldClock, *, seed: bool) -> None:
        """Make this session's time, and with `seed` its random numbers, those of the process."""
        world.follow(self.clock)
        if seed:
            random.seed(f"{self.clock.start} {timestamp(self.clock)}")

    def prepare(self) -> None:
        """Read the schema and set the limit on size: what a call does first otherwise, and takes longer than most."""
        if not self._is_ready:
            self._own_statement = True
            self._control.execute(page_limit(self._snapshot, self._max_mb)).fetchall()
            self._own_statement = False
            self._is_ready = True

    def begin(self) -> None:
        """Start the transaction of a call."""
        if not self._is_ready:
            self.prepare()
        self._own_statement = True
        self._control.execute(_BEGIN)
        self._own_statement = False

    def commit(self) -> None:
        """Keep what the call wrote; raise sqlite3.Error or TransactionEndedError if that can't be."""
        if not self.connection.in_transaction:
            raise TransactionEndedError
        self._own_statement = True
        self._control.execute(_COMMIT)
        self._own_statement = False

    def abandon(self) -> None:
        """Undo what the call wrote, if it is not undone yet."""
        self._own_statement = True
        with suppress(sqlite3.Error):  # the tool closed the connection, for example
            if self.connection.in_transaction:
                self._control.execute(_ROLLBACK)
        self._own_statement = False

    def dump(self) -> bytes:
        """Return the database's bytes."""
        return self.connection.serialize()

    def diff(self) -> dict[str, Any]:
        """Return what changed since the snapshot."""
        with closing(open_database(self._snapshot, read_only=True)) as initial:
            return state_diff(initial, self.connection)

    def changed(self) -> bool:
        """Tell whether a byte of the database differs from the snapshot."""
        return self.dump() != self._snapshot[:]
