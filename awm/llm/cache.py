"""The response cache: one answer per request key, paid once, whoever asks and however the stage ends.

One SQLite file outside DVC's outputs, so that it survives failed stages, `dvc exp run --temp` and queue workers. The
first answer written for a key stays, and all callers get it, which keeps stages deterministic though models are not.
Requests in flight hold a lease, so that two processes never pay for the same answer. WAL needs a local disk: on a
network disk set AWM_CACHE_DIR to a local folder.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
import uuid
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from awm.llm.errors import ProviderError, answer_error
from awm.llm.request import LLMAnswer

__all__ = ["ResponseCache", "cache_root", "project_root"]

LEASE_S = 30.0
POLL_S = 0.1
BUSY_S = 60.0
TABLES = """
create table if not exists response(key text primary key, answer text not null) without rowid;
create table if not exists lease(key text primary key, owner text not null, expires real not null) without rowid;
"""


def project_root(start: Path | None = None) -> Path:
    """Return the project's folder: $DVC_ROOT, or the nearest folder upwards with a dvc.yaml, or where we are.

    In `dvc exp run --temp` and in queue workers $DVC_ROOT is the original repository, not the copy that is thrown away.
    """
    if root := os.environ.get("DVC_ROOT"):
        return Path(root)
    here = (start or Path.cwd()).resolve()
    return next((folder for folder in (here, *here.parents) if (folder / "dvc.yaml").is_file()), here)


def cache_root(start: Path | None = None) -> Path:
    """Return the folder of everything that is kept from run to run: $AWM_CACHE_DIR or `.awm_cache` in the project."""
    if folder := os.environ.get("AWM_CACHE_DIR"):
        return Path(os.path.expanduser(folder))
    return project_root(start) / ".awm_cache"


class ResponseCache:
    """Answers by request key. Safe for many processes and tasks; a connection per thread."""

    def __init__(self, path: Path, lease_s: float = LEASE_S) -> None:
        """Open or create the cache file.

        :param lease_s: seconds after which the requests of a process that died may be asked again; a living process
            renews its leases, however long an answer takes.
        :raises ProviderError: the file can't be used.
        """
        self.path = path
        self._lease_s = lease_s
        self._owner = uuid.uuid4().hex
        self._local = threading.local()
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._held: set[str] = set()
        self._renewal: threading.Thread | None = None
        self._closed = threading.Event()
        with self._usable():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection().executescript(TABLES)

    def get(self, key: str) -> LLMAnswer | None:
        """Return the answer stored under a key, or None; a row that is no answer counts as none.

        :raises ProviderError: the file can't be used, as in all methods.
        """
        with self._usable():
            # As bytes: text that is not UTF-8 would be an error of the whole query.
            query = "select cast(answer as blob) from response where key = ?"
            row = self._connection().execute(query, (key,)).fetchone()
        try:
            answer = LLMAnswer.model_validate_json(row[0] or b"") if row else None
        except ValidationError:
            return None
        return answer if answer and answer_error(answer) is None else None

    def put(self, key: str, answer: LLMAnswer) -> LLMAnswer:
        """Store an answer unless the key has one, and return the answer that is stored."""
        self.put_all([(key, answer)])
        return self.get(key) or answer

    def put_all(self, answers: Iterable[tuple[str, LLMAnswer]]) -> int:
        """Store answers whose keys have none yet, in one transaction; unusable ones are left out.

        :return: how many are new.
        """
        usable = [(key, answer) for key, answer in answers if answer_error(answer) is None]
        if not usable:
            return 0
        new = 0
        with self._usable(), _transaction(connection := self._connection()):
            for key, answer in usable:
                if self.get(key) is None:
                    connection.execute("insert or replace into response values (?, ?)", (key, answer.model_dump_json()))
                    new += 1
        return new

    async def call(self, key: str, ask: Callable[[], Awaitable[LLMAnswer]]) -> LLMAnswer:
        """Return the stored answer, or ask for it once, however many tasks and processes want it.

        An unusable answer is returned and not stored; an error of `ask` is passed on and nothing is stored.
        """
        # Kept in a local name: the dictionary alone would let go of the lock.
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            while (stored := self.get(key)) is None:
                if self._claim(key):
                    return await self._ask(key, ask)
                await asyncio.sleep(POLL_S)  # another process is paying for this answer
            return stored

    async def _ask(self, key: str, ask: Callable[[], Awaitable[LLMAnswer]]) -> LLMAnswer:
        try:
            # The process that held the lease before may have stored its answer between our look and our claim.
            stored = self.get(key)
            return stored if stored is not None else self.put(key, await ask())
        finally:
            with suppress(ProviderError):  # the lease ends by itself, and an error here would hide the one above
                self._release(key)

    def close(self) -> None:
        """Stop renewing leases and close this thread's connection."""
        self._closed.set()
        if self._renewal is not None:
            self._renewal.join()
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            raise ProviderError(
                f"the response cache {self.path} can't be used: {error}: set AWM_CACHE_DIR to a writable folder on a "
                f"local disk, or, if the file is damaged, delete it and what begins with its name (the answers that "
                f"data/llm holds in DVC's cache come back, others are paid again)"
            ) from None

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)
            connection.execute("pragma journal_mode = wal")
            connection.execute("pragma synchronous = normal")
            self._local.connection = connection
        return connection

    def _claim(self, key: str) -> bool:
        now = time.time()
        # No living process asks for so long a lease: the clock was set back since.
        latest = now + 2 * max(self._lease_s, LEASE_S)
        with self._usable(), _transaction(connection := self._connection()):
            ended = "delete from lease where key = ? and not (expires between ? and ?)"
            connection.execute(ended, (key, now, latest))
            row = (key, self._owner, now + self._lease_s)
            claimed = connection.execute("insert or ignore into lease values (?, ?, ?)", row).rowcount == 1
        if claimed:
            self._held.add(key)
            self._start_renewal()
        return claimed

    def _release(self, key: str) -> None:
        self._held.discard(key)
        with self._usable():
            self._connection().execute("delete from lease where key = ? and owner = ?", (key, self._owner))

    def _start_renewal(self) -> None:
        if self._renewal is None:
            self._renewal = threading.Thread(target=self._renew, name="awm-cache-leases", daemon=True)
            self._renewal.start()

    def _renew(self) -> None:
        # A thread, not a task: a check that keeps the event loop busy must not cost us our leases.
        connection = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)
        try:
            while not self._closed.wait(self._lease_s / 3):
                if self._held:
                    expires = time.time() + self._lease_s
                    with suppress(sqlite3.Error):  # whoever waits for the answer meets the error and reports it
                        connection.execute("update lease set expires = ? where owner = ?", (expires, self._owner))
        finally:
            connection.close()


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """BEGIN IMMEDIATE ... COMMIT, or ROLLBACK on any exception."""
    connection.execute("begin immediate")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # SQLite ends one by itself on some errors
            connection.execute("rollback")
        raise
    connection.execute("commit")
