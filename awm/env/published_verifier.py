"""Verifiers as AgentWorldModel-1K publishes them: functions that take the paths of two databases.

There are no files: the paths mean something to `sqlite3.connect` (and to a look whether they exist) while the verifier
runs, and to nothing else. The function's name tells its form:

- `verify_task_completion(initial_db_path, final_db_path, final_answer)` gives `{"result": "complete" | "others"}`;
- `verify_task(initial_db_path, final_db_path)` gives evidence for a judge, any dict.
"""

from __future__ import annotations

import inspect
import os.path
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from types import ModuleType
from typing import Any, Literal
from urllib.parse import unquote

from awm.env.authorizer import authorize_reads
from awm.env.clock import FrozenClock, install
from awm.env.module import load_module

__all__ = ["FORMS", "PublishedForm", "PublishedVerifier"]

PublishedForm = Literal["completion", "evidence"]
FORMS: dict[str, PublishedForm] = {"verify_task_completion": "completion", "verify_task": "evidence"}
"""What each function gives, by its name; a module that has both counts as the first."""

_INITIAL, _FINAL = "/awm/initial.db", "/awm/final.db"
_STEPS_PER_CHECK = 20_000


class PublishedVerifier:
    """A verifier and the two databases it compares.

    :param deadline: When a running statement is interrupted, in seconds of `time.monotonic()`.
    """

    def __init__(self, initial: bytes, final: bytes, clock: FrozenClock, deadline: Callable[[], float]) -> None:
        self.module: ModuleType | None = None
        self._databases = {_INITIAL: initial, _FINAL: final}
        self._clock = clock
        self._deadline = deadline
        self._connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def run(self, source: str, answer: str | None) -> tuple[PublishedForm, Any]:
        """Load the source and run it once; return its form and what it gave.

        Raises ModuleError for a source that can't be loaded, ValueError if neither function is in it, and whatever the
        verifier raises.
        """
        with self._patched():
            self.module = load_module(source, "verifier", checked=True)
            name = next((name for name in FORMS if callable(getattr(self.module, name, None))), None)
            if name is None:
                raise ValueError(f"there is no function {' or '.join(FORMS)} in the verifier")
            function = getattr(self.module, name)
            arguments: list[Any] = [_INITIAL, _FINAL, answer]
            return FORMS[name], function(*arguments[: _accepted(function)])

    @contextmanager
    def _patched(self) -> Iterator[None]:
        """Let the paths mean something to the functions that verifiers use them with."""
        databases, exists, isfile, getsize = self._databases, os.path.exists, os.path.isfile, os.path.getsize
        patches: list[tuple[Any, str, Callable[..., Any]]] = [
            (sqlite3, "connect", self._open),
            (os.path, "exists", lambda path: path in databases or exists(path)),
            (os.path, "isfile", lambda path: path in databases or isfile(path)),
            (os.path, "getsize", lambda path: len(databases[path]) if path in databases else getsize(path)),
        ]
        originals = [(where, name, getattr(where, name)) for where, name, _ in patches]
        for where, name, function in patches:
            setattr(where, name, function)
        try:
            yield
        finally:
            for where, name, function in originals:
                setattr(where, name, function)

    def _open(self, database: Any, *arguments: Any, **options: Any) -> sqlite3.Connection:
        """Stand in for `sqlite3.connect`: read-only, with rows, types and transactions as the verifier asked for."""
        snapshot = self._databases.get(_path(database))
        connection: sqlite3.Connection = self._connect(":memory:", *arguments, **{**options, "uri": False})
        if snapshot is None:
            if _path(database) == ":memory:":
                return connection
            connection.close()
            raise sqlite3.OperationalError("unable to open database file")
        if snapshot:
            connection.deserialize(snapshot)
        connection.execute("PRAGMA query_only=ON")
        install(connection, self._clock)
        connection.set_progress_handler(lambda: monotonic() > self._deadline(), _STEPS_PER_CHECK)
        connection.set_authorizer(authorize_reads)
        return connection


def _path(database: Any) -> str:
    """Return the path in what a verifier gives to `connect`: text, bytes, a Path or a URI."""
    text = os.fsdecode(database) if isinstance(database, str | bytes | os.PathLike) else ""
    if text.startswith("file:"):
        text = unquote(text.removeprefix("file:").partition("?")[0])
        text = "/" + text.lstrip("/") if text.startswith("/") else text
    return text


def _accepted(function: Callable[..., Any]) -> int:
    """Return how many positional arguments a function takes, at most three."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return 3
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return min(3, sum(parameter.kind in positional for parameter in parameters))
