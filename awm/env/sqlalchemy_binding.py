"""SQLAlchemy engines on the session's own database, whatever URL a module asks for.

A published module makes its engine as it is imported and opens a connection in each handler. `bind_engines` gives it
engines whose connections all lead to the one SQLite connection that the worker names before each call (`Binding`).
The worker's transaction spans the whole call; what the module commits or rolls back in it are savepoints.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = ["Binding", "bind_engines"]

_SAVE, _ROLL_BACK, _RELEASE = "SAVEPOINT awm_app", "ROLLBACK TO awm_app", "RELEASE awm_app"
_NOTHING = "SELECT NULL WHERE 0"
_OWN_AFFAIR = re.compile(
    r"\s*(BEGIN|COMMIT|END|ROLLBACK(?!\s+(?:TRANSACTION\s+)?TO\b)|PRAGMA(?=\s+[\w.]+\s*=))\b", re.IGNORECASE
)
_PASSED_ON = frozenset({"echo", "execution_options", "json_deserializer", "json_serializer", "query_cache_size"})


class Binding:
    """Where the module's connections lead at the moment."""

    def __init__(self) -> None:
        self.connection: sqlite3.Connection | None = None
        self.epoch = 0
        self.is_loading = False
        self._saved = False
        self._prepared: sqlite3.Connection | None = None

    def enter(self, connection: sqlite3.Connection, *, loading: bool = False) -> None:
        """Lead to this connection from now on; connections that the module still holds are dead.

        :param loading: The module is being loaded: no call's transaction is around it.
        """
        self.connection = connection
        self.is_loading = loading
        self.epoch += 1
        self._saved = False

    def leave(self) -> None:
        """Undo what the module wrote and did not commit."""
        self.roll_back()
        self.connection = None
        self.epoch += 1

    def save(self) -> None:
        """Mark the point that a rollback of the module goes back to."""
        if not self._saved and self.connection is not None and self.connection.in_transaction:
            self.connection.execute(_SAVE)
            self._saved = True

    def commit(self) -> None:
        """Keep what was written since that point, until the worker decides about the whole call."""
        if self._saved and self.connection is not None:
            self.connection.execute(_RELEASE)
            self._saved = False

    def roll_back(self) -> None:
        """Go back to that point."""
        if self._saved and self.connection is not None and self.connection.in_transaction:
            self.connection.execute(_ROLL_BACK)

    def prepare(self, connection: sqlite3.Connection, *arguments: Any, **options: Any) -> None:
        """Install SQLAlchemy's own SQL function once for each connection."""
        if self._prepared is not connection:
            connection.create_function(*arguments, **options)
            self._prepared = connection


class _Cursor(sqlite3.Cursor):
    """A cursor that tells its connection before it may write."""

    owner: _BoundConnection

    def execute(self, sql: str, parameters: Any = (), /) -> _Cursor:
        if not sql.startswith("SELECT"):
            sql = self.owner.before_write(sql)
        super().execute(sql, parameters)
        return self

    def executemany(self, sql: str, parameters: Any, /) -> _Cursor:
        sql = self.owner.before_write(sql)
        super().executemany(sql, parameters)
        return self


class _BoundConnection:
    """What SQLAlchemy takes for a connection of its own: valid within one call."""

    def __init__(self, binding: Binding) -> None:
        if binding.connection is None:
            raise sqlite3.OperationalError("no database is open: the module may use it only while a tool is called")
        self.wrote = False
        self._binding = binding
        self._epoch = binding.epoch
        self._connection = binding.connection

    @property
    def _stale(self) -> bool:
        return self._epoch != self._binding.epoch

    def cursor(self, *_: Any) -> _Cursor:
        if self._stale:
            raise sqlite3.ProgrammingError("this connection belongs to an earlier call")
        cursor = self._connection.cursor(_Cursor)
        cursor.owner = self
        return cursor

    def before_write(self, sql: str) -> str:
        """Prepare for a statement that may write; return what is to run in its place.

        A module's own transactions are savepoints in the worker's, and its settings are the worker's to make.
        """
        if self._stale or self._binding.is_loading:
            return sql
        match = _OWN_AFFAIR.match(sql)
        if match is None:
            self.wrote = True
            self._binding.save()
            return sql
        word = match.group(1).upper()
        if word in ("COMMIT", "END"):
            self.commit()
        elif word == "ROLLBACK":
            self.rollback()
        return _NOTHING

    def execute(self, sql: str, parameters: Any = (), /) -> _Cursor:
        return self.cursor().execute(sql, parameters)

    def commit(self) -> None:
        if not self._stale:
            self._binding.commit()
            self.wrote = False

    def rollback(self) -> None:
        if self.wrote and not self._stale:
            self._binding.roll_back()
            self.wrote = False

    def close(self) -> None:
        self.rollback()

    def create_function(self, *arguments: Any, **options: Any) -> None:
        self._binding.prepare(self._connection, *arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def bind_engines(binding: Binding) -> None:
    """Make every SQLAlchemy engine that is created from now on lead to the binding."""
    import sqlalchemy
    from sqlalchemy.engine import create
    from sqlalchemy.pool import NullPool

    real = getattr(create.create_engine, "replaced", create.create_engine)

    def create_engine(url: Any, **options: Any) -> Any:
        """Take the options that make sense here; others are about files, pools and threads."""
        dialect = str(url).partition(":")[0]
        if dialect.partition("+")[0] != "sqlite":
            raise ValueError(f"only SQLite can be used here, not {dialect}")
        kept = {name: value for name, value in options.items() if name in _PASSED_ON}
        return real("sqlite://", creator=lambda: _BoundConnection(binding), poolclass=NullPool, **kept)

    create_engine.replaced = real  # type: ignore[attr-defined]
    _replace(create.create_engine, create_engine, [sqlalchemy, sqlalchemy.engine, create])
    try:
        from sqlalchemy.ext import asyncio
        from sqlalchemy.ext.asyncio import engine as async_engine
    except ImportError:  # without greenlet there are none
        return
    _replace(asyncio.create_async_engine, _no_async_engine, [asyncio, async_engine])


def _no_async_engine(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("asynchronous engines can't be used here: make a plain one with create_engine")


def _replace(old: Callable[..., Any], new: Callable[..., Any], modules: list[ModuleType]) -> None:
    for module in modules:
        for name, value in list(vars(module).items()):
            if value is old:
                setattr(module, name, new)
