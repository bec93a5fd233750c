"""The trusted side of the sandbox: start the zygote, ask it for workers, talk to them, kill them.

What a worker says is untrusted: sizes, shapes and times are checked, and a worker that breaks a rule is killed. It can
forge its own answers, but reach nothing else.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, get_args

from awm.env.channel import Worker
from awm.env.errors import EnvironmentFault, ModuleError, SandboxUnavailable, WorkerDied, WorkerTimeout
from awm.env.launch import Zygote, ZygoteGoneError
from awm.env.lockdown import not_refused
from awm.env.policy import MODES, OVERRIDE, Limits, Mode
from awm.env.results import CallKind, CallResult, SandboxReport, ToolSignature, VerifierKind, VerifierResult
from awm.env.wire import WireError, unpack

__all__ = ["Sandbox", "ToolWorker"]

_START_S = 10.0
_DATABASE_S = 10.0
_CALL_KINDS = frozenset(get_args(CallKind))
_VERIFIER_KINDS = frozenset(get_args(VerifierKind))
_MAX_DEPTH = 200
_warned: set[str] = set()


class Sandbox:
    """Processes for generated code, each locked down and tested before it sees any.

    The first worker starts the zygote. Workers may be made from any thread; a forked process gets a zygote of its own.
    Close it, or use it as a context manager, to leave no process behind.

    :param limits: Bounds on time and memory.
    :param mode: `auto` takes the strictest that this machine has; `strict` demands Landlock; `nofs` gives no file
        access at all; `off` runs generated code with your own rights. The environment variable AWM_SANDBOX overrides.
    """

    def __init__(self, limits: Limits | None = None, mode: Mode = "auto") -> None:
        self.limits = limits or Limits()
        self._mode = _chosen_mode(mode)
        self._lock = threading.Lock()
        self._zygote: Zygote | None = None
        self._owner = os.getpid()
        self._plan: SandboxReport | None = None
        self._report: SandboxReport | None = None
        self._signatures: dict[str, list[ToolSignature]] = {}
        self._verifiers: set[str] = set()

    def __enter__(self) -> Self:
        """Start nothing yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    @property
    def report(self) -> SandboxReport:
        """What holds around generated code here, as a worker found by trying."""
        if self._report is None:
            self._spawn(b"t").kill()
        assert self._report is not None
        return self._report

    def worker(self) -> ToolWorker:
        """Return a process of its own for one tool module; raise SandboxUnavailable where none can be isolated."""
        return ToolWorker(self._spawn(b"t"), self.limits, self._signatures)

    def verify(self, source: str, initial: bytes, final: bytes, answer: str | None, *, clock: str) -> VerifierResult:
        """Run a verifier once, in a process of its own, on two read-only databases.

        :param initial: Snapshot that the episode started from.
        :param final: Database at the end of the episode.
        :param answer: The agent's final answer, if it gave one.
        :param clock: The environment's frozen time, `YYYY-MM-DD HH:MM:SS`.

        Raises ModuleError for a source that is no verifier, and EnvironmentFault for databases that can't be opened.
        """
        key = _key(source)
        limits = self.limits
        if answer is not None:
            answer = answer.encode("utf-8", "replace").decode()  # an agent may write half a surrogate pair
        worker = self._spawn(b"v")
        try:
            worker.request("keep", "initial", initial, within=_DATABASE_S)
            worker.request("keep", "final", final, within=_DATABASE_S)
            arguments = (source, answer, clock, key in self._verifiers)
            reply = worker.request("verify", *arguments, within=limits.verify_s + limits.grace_s)
            self._verifiers.add(key)
            kind, value, message, line, _ = _checked_reply(worker, reply, _VERIFIER_KINDS)
        except WorkerTimeout:
            return VerifierResult("timeout", message=f"no result within {limits.verify_s:g} s")
        except WorkerDied:
            return VerifierResult("crash", message="the verifier ended its process")
        finally:
            worker.kill()
        return VerifierResult(kind, value, message, line)

    def close(self) -> None:
        """End the zygote and every worker; wait until they are gone."""
        with self._lock:
            if self._zygote is not None and self._owner == os.getpid():
                self._zygote.close()
            self._zygote = None

    def _spawn(self, role: bytes) -> Worker:
        worker = self._fork(role)
        try:
            tested = worker.greeting(_START_S)
        except EnvironmentFault as error:
            worker.kill()
            raise SandboxUnavailable(_no_worker(str(error))) from None
        return self._admit(worker, tested)

    def _fork(self, role: bytes) -> Worker:
        with self._lock:
            if self._owner != os.getpid():  # a forked process must not use its parent's zygote
                self._zygote, self._owner = None, os.getpid()
            if self._zygote is not None:
                try:
                    return self._zygote.fork(role)
                except ZygoteGoneError:
                    self._zygote = None
            self._zygote = Zygote(self._mode, self.limits)
            self._plan = self._zygote.report
            return self._zygote.fork(role)

    def _admit(self, worker: Worker, tested: Any) -> Worker:
        """Refuse a worker that could do what it must not."""
        assert self._plan is not None
        report = self._plan
        allowed = not_refused(report.mode, tested if isinstance(tested, dict) else {})
        if allowed:
            worker.kill()
            raise SandboxUnavailable(_no_worker(f"a locked-down worker could still do this: {', '.join(allowed)}"))
        if self._report is None:
            self._report = replace(report, self_test=tested)
            _warn(report)
        return worker


class ToolWorker:
    """A process that holds one tool module and any number of sessions. One thread at a time.

    Made by `Sandbox.worker`. Every method raises WorkerDied or WorkerTimeout when the process is lost, and what it held
    is lost with it.
    """

    def __init__(self, worker: Worker, limits: Limits, known: dict[str, list[ToolSignature]]) -> None:
        self._worker = worker
        self._limits = limits
        self._known = known

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

    def kill(self) -> None:
        """End the process at once. Harmless when it is gone."""
        self._worker.kill()

    def load(self, source: str) -> list[ToolSignature]:
        """Load a tool module and return its tools, in the order of their lines; raise ModuleError if it can't be used.

        A source that this sandbox loaded before is not checked again.
        """
        key = _key(source)
        known = self._known.get(key)
        within = self._limits.load_s + self._limits.grace_s
        reply = self._worker.request("load", source, known is not None, within=within)
        if known is None:
            known = self._known[key] = self._signatures(reply)
        return list(known)

    def _signatures(self, reply: Any) -> list[ToolSignature]:
        shape = {"name": str, "description": str, "parameters": dict, "result": dict, "line": int}
        if not isinstance(reply, list) or not _is_json(reply, 0):
            raise self._worker.broken("signatures of another shape")
        for described in reply:
            if not isinstance(described, dict) or {k: type(v) for k, v in described.items()} != shape:
                raise self._worker.broken("signatures of another shape")
        return [ToolSignature(**described) for described in reply]

    def open(self, session: str, snapshot: bytes, clock: str) -> None:
        """Start a session on a copy of a database, at a frozen time `YYYY-MM-DD HH:MM:SS`; replace one of that name.

        Raises EnvironmentFault if the snapshot is no database or larger than a message, or the clock is no time.
        """
        self._worker.request("open", session, snapshot, clock, within=_DATABASE_S)

    def reset(self, session: str) -> None:
        """Take a session back to its snapshot and its first moment."""
        self._worker.request("reset", session, within=_DATABASE_S)

    def close(self, session: str) -> None:
        """End a session."""
        self._worker.request("close", session, within=_DATABASE_S)

    def call(self, session: str, tool: str, arguments: dict[str, Any]) -> CallResult:
        """Call a tool. Its failures are results; only the loss of the process is an exception."""
        try:
            reply = self._worker.request(
                "call", session, tool, arguments, within=self._limits.call_s + self._limits.grace_s
            )
        except WireError as error:
            return CallResult("invalid_arguments", message=f"the arguments can't be passed on: {error}")
        return self._result(reply)

    def call_many(self, session: str, calls: Sequence[tuple[str, dict[str, Any]]]) -> list[CallResult]:
        """Make calls one after the other, in one message. A failure does not stop those after it."""
        within = self._limits.call_s * len(calls) + self._limits.grace_s
        try:
            replies = self._worker.request("call_many", session, calls, within=within)
        except WireError:  # of one call's arguments, which its own result shall say
            return [self.call(session, *call) for call in calls]
        if not isinstance(replies, list) or len(replies) != len(calls):
            raise self._worker.broken("another number of results")
        return [self._result(reply) for reply in replies]

    def dump(self, session: str) -> bytes:
        """Return the session's database as bytes, to be a snapshot or a verifier's final state."""
        database = self._worker.request("dump", session, within=_DATABASE_S)
        if not isinstance(database, bytes):
            raise self._worker.broken("a database of another type")
        return database

    def content_hash(self, session: str) -> str:
        """Return the hash of the session's schema and rows."""
        return str(self._worker.request("content_hash", session, within=_DATABASE_S))

    def changed(self, session: str) -> bool:
        """Tell whether the session's database differs from its snapshot in any byte."""
        return bool(self._worker.request("changed", session, within=_DATABASE_S))

    def _result(self, reply: Any) -> CallResult:
        kind, value, message, line, notes = _checked_reply(self._worker, reply, _CALL_KINDS)
        return CallResult(kind, value, message, line, notes)


def _checked_reply(
    worker: Worker, reply: Any, kinds: frozenset[str]
) -> tuple[Any, Any, str, int | None, tuple[str, ...]]:
    """Take a result apart; kill a worker whose result has another shape."""
    if isinstance(reply, list) and len(reply) == 5:
        kind, packed, message, line, notes = reply
        if (
            kind in kinds
            and isinstance(message, str)
            and (line is None or isinstance(line, int))
            and isinstance(notes, list)
            and isinstance(packed, bytes) == (kind == "ok")
        ):
            try:
                value = unpack(packed) if kind == "ok" else None
            except WireError as error:
                raise worker.broken(str(error)) from None
            if _is_json(value, 0):
                return kind, value, message, line, tuple(str(note) for note in notes)
    raise worker.broken("a result of another shape")


def _is_json(value: Any, depth: int) -> bool:
    kind = type(value)
    if kind is dict:
        return depth < _MAX_DEPTH and all(type(key) is str and _is_json(item, depth + 1) for key, item in value.items())
    if kind is list:
        return depth < _MAX_DEPTH and all(_is_json(item, depth + 1) for item in value)
    return kind in (str, int, float, bool, type(None))


def _key(source: str) -> str:
    try:
        return hashlib.sha256(source.encode()).hexdigest()
    except UnicodeEncodeError as error:
        raise ModuleError("syntax", [f"line 1: the source is no Unicode text: {error}"], 1) from None


def _chosen_mode(mode: str) -> Mode:
    override = os.environ.get(OVERRIDE, "").strip()
    chosen = (override or mode).lower()
    if chosen not in MODES:
        named = f"{OVERRIDE}={override}" if override else repr(mode)
        raise SandboxUnavailable(f"{named} is no mode of the sandbox; take one of {', '.join(MODES)}")
    return chosen  # type: ignore[return-value]


def _no_worker(why: str) -> str:
    return f"cannot isolate generated code: {why}; set {OVERRIDE}=off to run it with your own rights"


def _warn(report: SandboxReport) -> None:
    """Say once per process when less holds than could."""
    if report.mode in _warned:
        return
    if report.mode == "off":
        text = "the sandbox is off: generated code runs with your own rights"
    elif report.mode == "nofs" and not report.landlock:
        text = "Landlock is not available: generated code gets no file access at all"
    else:
        return
    _warned.add(report.mode)
    print(f"awm: {text}", file=sys.stderr)
