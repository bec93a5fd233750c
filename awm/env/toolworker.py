"""The host's view of a worker that holds a tool module: load, sessions, calls. Each request has an async twin."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, get_args

from pydantic_core import from_json

from awm.env.channel import Worker
from awm.env.errors import ModuleError
from awm.env.policy import Limits
from awm.env.results import CallKind, CallResult, ToolSignature
from awm.env.shared import SharedBytes
from awm.env.wire import WireError

__all__ = ["DATABASE_S", "LoadedModule", "ToolWorker", "checked_reply", "source_key"]

DATABASE_S = 10.0
"""Hard deadline of a request that opens, resets, compares or reads out a database, in seconds."""

_CALL_KINDS = frozenset(get_args(CallKind))
_MAX_DEPTH = 200
_SIGNATURE = {"name": str, "description": str, "parameters": dict, "result": dict, "line": int}


@dataclass(frozen=True, slots=True)
class LoadedModule:
    """What a worker said of a module it loaded. The code is as untrusted as the source, and only for other workers."""

    tools: list[ToolSignature]
    code: bytes


class ToolWorker:
    """A process that holds one tool module and any number of sessions. One request at a time.

    Made by `Sandbox.worker`. Every method raises WorkerDied or WorkerTimeout when the process is lost, and what it held
    is lost with it. A method whose name starts with `a` is a coroutine; cancelled while it waits, it ends the process.
    """

    def __init__(
        self, worker: Worker, limits: Limits, known: dict[str, LoadedModule], files: SharedBytes | None = None
    ) -> None:
        self._worker = worker
        self._limits = limits
        self._known = known
        self._files = files
        self._call_s = limits.call_s + limits.grace_s

    def __enter__(self) -> Self:
        """Return the worker."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill the process."""
        self.kill()

    @property
    def pid(self) -> int:
        """The process id, for people; the worker itself is addressed by its pidfd."""
        return self._worker.pid

    @property
    def alive(self) -> bool:
        """Whether the process still runs, as far as can be told without asking it."""
        return self._worker.alive

    def kill(self) -> None:
        """End the process at once. Harmless when it is gone."""
        self._worker.kill()

    def load(self, source: str) -> list[ToolSignature]:
        """Load a tool module and return its tools, in the order of their lines; raise ModuleError if it can't be used.

        A source that this sandbox loaded before is not checked again.
        """
        key = source_key(source)
        known = self._known.get(key)
        within = self._limits.load_s + self._limits.grace_s
        reply = self._worker.request("load", source, None if known is None else known.code, within=within)
        if known is None:
            if not isinstance(reply, list) or len(reply) != 2 or not isinstance(reply[1], bytes):
                raise self._worker.broken("a loaded module of another shape")
            known = self._known[key] = LoadedModule(self.signatures(reply[0]), reply[1])
        return list(known.tools)

    def open(self, session: str, snapshot: bytes, clock: str) -> None:
        """Start a session on a copy of a database, at a frozen time `YYYY-MM-DD HH:MM:SS`; replace one of that name.

        Raises EnvironmentFault if the snapshot is no database or larger than a message, or the clock is no time.
        """
        if self._files is None:
            self._worker.request("open", session, snapshot, clock, within=DATABASE_S)
        else:
            self._worker.hand_over(session, snapshot, self._files, within=DATABASE_S)
            self._worker.request("open", session, None, clock, within=DATABASE_S)

    def reset(self, session: str) -> None:
        """Take a session back to its snapshot and its first moment."""
        self._worker.request("reset", session, within=DATABASE_S)

    async def areset(self, session: str) -> None:
        """Do what `reset` does."""
        await self._worker.arequest("reset", session, within=DATABASE_S)

    def close(self, session: str) -> None:
        """End a session."""
        self._worker.request("close", session, within=DATABASE_S)

    def call(self, session: str, tool: str, arguments: Any) -> CallResult:
        """Call a tool. Its failures are results; only the loss of the process is an exception."""
        try:
            reply = self._worker.request("call", session, tool, arguments, within=self._call_s)
        except WireError as error:
            return _unsendable(error)
        return self._result(reply)

    async def acall(self, session: str, tool: str, arguments: Any) -> CallResult:
        """Do what `call` does."""
        try:
            reply = await self._worker.arequest("call", session, tool, arguments, within=self._call_s)
        except WireError as error:
            return _unsendable(error)
        return self._result(reply)

    def call_many(self, session: str, calls: Sequence[tuple[str, Any]]) -> list[CallResult]:
        """Make calls one after the other, in one message. A failure does not stop those after it."""
        try:
            replies = self._worker.request("call_many", session, calls, within=self._batch_s(calls))
        except WireError:  # of one call's arguments, which its own result shall say
            return [self.call(session, *call) for call in calls]
        return self._results(replies, len(calls))

    async def acall_many(self, session: str, calls: Sequence[tuple[str, Any]]) -> list[CallResult]:
        """Do what `call_many` does."""
        try:
            replies = await self._worker.arequest("call_many", session, calls, within=self._batch_s(calls))
        except WireError:
            return [await self.acall(session, *call) for call in calls]
        return self._results(replies, len(calls))

    def dump(self, session: str) -> bytes:
        """Return the session's database as bytes, to be a snapshot or a verifier's final state."""
        return self._database(self._worker.request("dump", session, within=DATABASE_S))

    async def adump(self, session: str) -> bytes:
        """Do what `dump` does."""
        return self._database(await self._worker.arequest("dump", session, within=DATABASE_S))

    def diff(self, session: str) -> dict[str, Any]:
        """Return what changed since the snapshot, as `awm.env.diff.state_diff` gives it."""
        return self._difference(self._worker.request("diff", session, within=DATABASE_S))

    async def adiff(self, session: str) -> dict[str, Any]:
        """Do what `diff` does."""
        return self._difference(await self._worker.arequest("diff", session, within=DATABASE_S))

    def content_hash(self, session: str) -> str:
        """Return the hash of the session's schema and rows."""
        return str(self._worker.request("content_hash", session, within=DATABASE_S))

    async def acontent_hash(self, session: str) -> str:
        """Do what `content_hash` does."""
        return str(await self._worker.arequest("content_hash", session, within=DATABASE_S))

    def changed(self, session: str) -> bool:
        """Tell whether the session's database differs from its snapshot in any byte."""
        return bool(self._worker.request("changed", session, within=DATABASE_S))

    def _batch_s(self, calls: Sequence[tuple[str, Any]]) -> float:
        return self._limits.call_s * len(calls) + self._limits.grace_s

    def signatures(self, reply: Any) -> list[ToolSignature]:
        """Read what the process says of its tools; kill it if that has another shape."""
        if not isinstance(reply, list) or not _is_json(reply, 0):
            raise self._worker.broken("signatures of another shape")
        for described in reply:
            if not isinstance(described, dict) or {k: type(v) for k, v in described.items()} != _SIGNATURE:
                raise self._worker.broken("signatures of another shape")
        return [ToolSignature(**described) for described in reply]

    def _results(self, replies: Any, count: int) -> list[CallResult]:
        if not isinstance(replies, list) or len(replies) != count:
            raise self._worker.broken("another number of results")
        return [self._result(reply) for reply in replies]

    def _result(self, reply: Any) -> CallResult:
        return CallResult(*checked_reply(self._worker, reply, _CALL_KINDS))

    def _database(self, reply: Any) -> bytes:
        if not isinstance(reply, bytes):
            raise self._worker.broken("a database of another type")
        return reply

    def _difference(self, reply: Any) -> dict[str, Any]:
        if not isinstance(reply, dict) or not _is_json(reply, 0):
            raise self._worker.broken("a state diff of another shape")
        return reply


def _unsendable(error: WireError) -> CallResult:
    return CallResult("invalid_arguments", message=f"the arguments can't be passed on: {error}")


def checked_reply(
    worker: Worker, reply: Any, kinds: frozenset[str]
) -> tuple[Any, Any, str, int | None, tuple[str, ...]]:
    """Take a result apart; kill a worker whose result has another shape."""
    if type(reply) is list and len(reply) == 5:
        kind, encoded, message, line, notes = reply
        if (
            type(kind) is str
            and kind in kinds
            and type(message) is str
            and (line is None or type(line) is int)
            and type(notes) is list
            and (type(encoded) is bytes) == (kind == "ok")
        ):
            try:
                value = from_json(encoded, allow_inf_nan=False) if encoded else None
            except ValueError as error:
                raise worker.broken(f"a result that is no JSON ({error})") from None
            return kind, value, message, line, tuple(map(str, notes)) if notes else ()
    raise worker.broken("a result of another shape")


def source_key(source: str) -> str:
    """Return what a source is known by; raise ModuleError if it is no Unicode text."""
    try:
        return hashlib.sha256(source.encode()).hexdigest()
    except UnicodeEncodeError as error:
        raise ModuleError("syntax", [f"line 1: the source is no Unicode text: {error}"], 1) from None


def _is_json(value: Any, depth: int) -> bool:
    kind = type(value)
    if kind is dict:
        return depth < _MAX_DEPTH and all(type(key) is str and _is_json(item, depth + 1) for key, item in value.items())
    if kind is list:
        return depth < _MAX_DEPTH and all(_is_json(item, depth + 1) for item in value)
    return kind in (str, int, float, bool, type(None))
