"""One session in a worker: a database restored from a snapshot, its clock, and the transaction around each call."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from datetime import UTC
from typing import Protocol

from awm.env.authorizer import authorize_writes
from awm.env.clock import FrozenClock
from awm.env.database import open_database

__all__ = ["Session", "TransactionEndedError", "WorldClock", "timestamp"]

# Texts that no tool writes: the connection keeps compiled statements by their text, and these passed the authorizer.
_BEGIN, _COMMIT, _ROLLBACK = "BEGIN /* call */", "COMMIT /* call */", "ROLLBACK /* call */"


class TransactionEndedError(Exception):
    """A tool, or an error it swallowed, ended the transaction of its call."""


class WorldClock(Protocol):
    """Python's own clock, which can be moved."""

    def move_to(self, destination: float, tick: bool | None = None) -> None:
        """Set the time, in seconds since 1970."""


def timestamp(clock: FrozenClock) -> float:
    """Return a clock's time in seconds since 1970."""
    return clock.now.replace(tzinfo=UTC).timestamp()


class Session:
    """A database that calls change, and that can go back to its snapshot.

    :param clock: The frozen time it starts with, which advances with each call.
    :param deadline: When a running statement is interrupted; see `open_database`.
    """

    def __init__(self, snapshot: bytes, clock: str, *, max_mb: int, deadline: Callable[[], float]) -> None:
        self.clock = FrozenClock(clock)
        self._snapshot = snapshot
        self._max_mb = max_mb
        self._deadline = deadline
        self._own_statement = False
        self.connection = self._open()

    def _open(self) -> sqlite3.Connection:
        connection = open_database(self._snapshot, clock=self.clock, max_mb=self._max_mb, deadline=self._deadline)
        connection.set_authorizer(self._authorize)
        return connection

    def _authorize(self, action: int, first: str | None, second: str | None, *rest: str | None) -> int:
        if action == sqlite3.SQLITE_TRANSACTION and not self._own_statement:
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
        moment = timestamp(self.clock)
        world.move_to(moment)
        if seed:
            random.seed(f"{self.clock.start} {moment}")

    def begin(self) -> None:
        """Start the transaction of a call."""
        self._run(_BEGIN)

    def commit(self) -> None:
        """Keep what the call wrote; raise sqlite3.Error or TransactionEndedError if that can't be."""
        if not self.connection.in_transaction:
            raise TransactionEndedError
        self._run(_COMMIT)

    def rollback(self) -> None:
        """Undo what the call wrote."""
        if self.connection.in_transaction:
            self._run(_ROLLBACK)

    def _run(self, statement: str) -> None:
        self._own_statement = True
        try:
            self.connection.execute(statement)
        finally:
            self._own_statement = False

    def dump(self) -> bytes:
        """Return the database's bytes."""
        return self.connection.serialize()

    def changed(self) -> bool:
        """Tell whether a byte of the database differs from the snapshot."""
        return self.dump() != self._snapshot
