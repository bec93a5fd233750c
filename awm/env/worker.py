"""The process that runs generated code: one module, any number of sessions, one request at a time.

It is forked from the zygote, locks itself down, proves it to the host, and only then takes requests. A request is
`[id, operation, *arguments]`, its reply `[id, status, payload]` with the status `ok`, `module` (a ModuleError's phase,
problems and line) or `fault` (a message).
"""

from __future__ import annotations

import gc
import os
import random
import signal
import socket
import sqlite3
import sys
import uuid
from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal

import time_machine

from awm.env import linux, wire
from awm.env.arguments import InvalidArgumentsError
from awm.env.clock import FrozenClock
from awm.env.database import content_hash, open_database
from awm.env.deadline import Deadline, SoftTimeout
from awm.env.errors import ModuleError, SandboxUnavailable
from awm.env.jsonable import UnserialisableError, to_jsonable
from awm.env.lockdown import LockDown, self_test
from awm.env.module import Tool, describe_exception, find_tools, line_of, load_module, signatures
from awm.env.policy import Limits
from awm.env.session import Session, TransactionEndedError, WorldClock, timestamp
from awm.env.tool import ToolError

__all__ = ["Role", "Worker", "main"]

Role = Literal["tools", "verifier"]

_RECEIVE_BYTES = 1 << 18
_LOAD_TIME = 946_684_800.0  # 2000-01-01: modules are loaded before any environment's clock is known
_MAX_MESSAGE = 10_000
_MAX_LISTED = 100
_CLOSED = (
    "the tool closed the database connection, which it must leave open; the session starts again from its first state"
)
_VERDICTS = ("completed", "partially_completed", "agent_error")


def main(channel: int, lock: LockDown, limits: Limits, role: Role, zygote: int) -> None:
    """Run a freshly forked worker to its end.

    :param channel: File descriptor of the connected socket; all others but 0-2 are closed already.
    :param zygote: Process id of the parent; if it is gone already, so is the reason to run.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if sys.platform == "linux":
        linux.kill_with_parent()
    if os.getppid() != zygote:
        return
    random.seed(0)
    uuid.uuid4 = _seeded_uuid4
    world = time_machine.travel(_LOAD_TIME, tick=False).start()
    worker = Worker(socket.socket(fileno=channel), limits, world)
    try:
        lock.apply(cpu_s=int(limits.verify_s + limits.grace_s) + 1 if role == "verifier" else None)
    except SandboxUnavailable as error:
        worker.greet("fault", str(error))
        return
    worker.greet("ok", self_test(lock.mode))
    gc.enable()
    worker.serve()


def _seeded_uuid4() -> uuid.UUID:
    """Make ids from the seeded numbers, so that an episode can be repeated."""
    return uuid.UUID(int=random.getrandbits(128), version=4)


class Worker:
    """Answers the host's requests."""

    def __init__(self, channel: socket.socket, limits: Limits, world: WorldClock) -> None:
        self._channel = channel
        self._limits = limits
        self._world = world
        self._frames = wire.Frames()
        self._deadline = Deadline()
        self._module: ModuleType | None = None
        self._seeded = False
        self._tools: dict[str, Tool] = {}
        self._sessions: dict[str, Session] = {}
        self._blobs: dict[str, bytes] = {}
        self._operations: dict[str, Callable[..., Any]] = {
            "load": self._load,
            "open": self._open,
            "reset": lambda name: self._session(name).reset(),
            "close": self._close,
            "call": self._call,
            "call_many": lambda name, calls: [self._call(name, *call) for call in calls],
            "dump": lambda name: self._session(name).dump(),
            "content_hash": lambda name: content_hash(self._session(name).connection),
            "changed": lambda name: self._session(name).changed(),
            "keep": self._blobs.__setitem__,
            "verify": self._verify,
        }

    # -- the channel -------------------------------------------------------------------------------------------------

    def greet(self, status: str, payload: object) -> None:
        """Report the self-test, or why there is none."""
        self._send(wire.pack([0, status, payload]))

    def serve(self) -> None:
        """Answer requests until the host hangs up."""
        while True:
            data = self._frames.take()
            if data is not None:
                self._answer(wire.unpack(data))
                continue
            received = self._channel.recv(_RECEIVE_BYTES)
            if not received:
                return
            self._frames.feed(received)

    def _answer(self, request: list[Any]) -> None:
        number, operation, *arguments = request
        status: str
        try:
            status, payload = "ok", self._operations[operation](*arguments)
        except ModuleError as error:
            problems = [_clean(text) for text in error.problems[:_MAX_LISTED]]
            status, payload = "module", [error.phase, problems, error.line]
        except (sqlite3.Error, ValueError) as error:
            status, payload = "fault", _clean(f"{operation}: {error}")
        try:
            data = wire.pack([number, status, payload])
        except wire.WireError as error:
            data = wire.pack([number, "fault", f"{operation}: {error}"])
        self._send(data)

    def _send(self, data: bytes) -> None:
        self._channel.sendall(wire.frame(data))

    # -- tools -------------------------------------------------------------------------------------------------------

    def _load(self, source: str, checked: bool) -> list[dict[str, Any]]:
        self._seeded = "random" in source or "uuid" in source
        self._deadline.arm(self._limits.load_s)
        try:
            self._module = load_module(source, "tools", checked=checked)
            self._tools = find_tools(self._module)
            return [] if checked else signatures(self._tools)
        except SoftTimeout:
            raise ModuleError("import", [f"the module did not load within {self._limits.load_s:g} s"]) from None
        finally:
            self._deadline.disarm()

    def _open(self, name: str, snapshot: bytes, clock: str) -> None:
        session = Session(snapshot, clock, max_mb=self._limits.database_mb, deadline=self._deadline.moment)
        if name in self._sessions:
            self._sessions[name].close()
        self._sessions[name] = session

    def _session(self, name: str) -> Session:
        try:
            return self._sessions[name]
        except KeyError:
            raise ValueError(f"no session '{name}' is open") from None

    def _close(self, name: str) -> None:
        self._session(name).close()
        del self._sessions[name]

    def _call(self, name: str, tool_name: str, arguments: Any) -> list[Any]:
        session = self._session(name)
        tool = self._tools.get(tool_name)
        if tool is None:
            reply = _failure("unknown_tool", f"unknown tool '{tool_name}'; the tools are: {', '.join(self._tools)}")
        else:
            session.enter(self._world, seed=self._seeded)
            reply = self._call_in_transaction(session, tool, arguments)
        if reply[0] != "ok" and _is_closed(session.connection):
            session.reset()  # what was in the database is lost
            reply = _failure("crash", _CLOSED, reply[3])
        session.clock.advance()
        return reply

    def _call_in_transaction(self, session: Session, tool: Tool, arguments: Any) -> list[Any]:
        def work() -> list[Any]:
            session.begin()
            keywords, notes = tool.arguments.validate(arguments)
            value = to_jsonable(tool.function(session.connection, **keywords))
            return ["ok", wire.pack(value), "", None, notes]

        reply = self._within(self._limits.call_s, work, self._explain_call)
        try:
            if reply[0] == "ok":
                session.commit()
        except BaseException as error:
            reply = self._explain_call(error)
        try:
            session.rollback()
        except sqlite3.Error as error:  # the tool closed the connection, for example
            if reply[0] == "ok":
                reply = self._explain_call(error)
        return reply

    def _within(
        self, seconds: float, work: Callable[[], list[Any]], explain: Callable[[BaseException], list[Any]]
    ) -> list[Any]:
        """Do the work; turn whatever it raises, and a lapse of time, into a reply."""
        passed = False
        try:
            try:
                self._deadline.arm(seconds)
                reply = work()
            finally:
                passed = self._deadline.disarm()
        except BaseException as error:
            passed = self._deadline.disarm() or passed or isinstance(error, SoftTimeout)
            reply = [] if passed else explain(error)
        return _failure("timeout", f"no result within {seconds:g} s") if passed else reply

    def _explain_call(self, error: BaseException) -> list[Any]:
        if isinstance(error, ToolError):
            return _failure("tool_error", _words(error))
        if isinstance(error, InvalidArgumentsError):
            return _failure("invalid_arguments", str(error))
        if isinstance(error, UnserialisableError | wire.WireError):
            return _failure("unserialisable", str(error))
        if isinstance(error, TransactionEndedError):
            return _failure("crash", "the transaction of the call was ended before the tool returned")
        return _failure("crash", describe_exception(error), line_of(error, self._module))

    # -- verifiers ---------------------------------------------------------------------------------------------------

    def _verify(self, source: str, answer: str | None, clock: str, checked: bool) -> list[Any]:
        """Run a verifier on the two databases that were kept before."""
        frozen = FrozenClock(clock)
        databases = [
            open_database(
                self._blobs[name],
                clock=frozen,
                read_only=True,
                max_mb=self._limits.database_mb,
                deadline=self._deadline.moment,
            )
            for name in ("initial", "final")
        ]
        invalid: list[ModuleError] = []

        def work() -> list[Any]:
            try:
                self._module = load_module(source, "verifier", checked=checked)
            except ModuleError as error:
                invalid.append(error)
                return _failure("invalid", "")
            self._world.move_to(timestamp(frozen))
            random.seed(clock)
            return self._judge(self._module.verify(*databases, answer))

        reply = self._within(self._limits.verify_s, work, self._explain_verification)
        if invalid:
            raise invalid[0]
        return reply

    def _explain_verification(self, error: BaseException) -> list[Any]:
        if isinstance(error, UnserialisableError | wire.WireError):
            return _failure("invalid", str(error))
        kind = "sql_error" if isinstance(error, sqlite3.Error) else "crash"
        return _failure(kind, describe_exception(error), line_of(error, self._module))

    def _judge(self, value: Any) -> list[Any]:
        if not isinstance(value, dict) or set(value) != {"verdict", "evidence"}:
            return _failure("invalid", 'verify must return {"verdict": ..., "evidence": {...}} and nothing else')
        value = to_jsonable(value)
        if value["verdict"] not in _VERDICTS:
            return _failure("invalid", f"the verdict must be one of {', '.join(_VERDICTS)}, not {value['verdict']!r}")
        if not isinstance(value["evidence"], dict):
            return _failure("invalid", "the evidence must be a dict")
        return ["ok", wire.pack(value), "", None, []]


def _failure(kind: str, message: str, line: int | None = None) -> list[Any]:
    return [kind, None, _clean(message), line, []]


def _words(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # a class of the module's own may not manage to say what it is
        return type(error).__name__


def _clean(text: str) -> str:
    """Return text that can be sent: not endless, and without half surrogate pairs."""
    if len(text) > _MAX_MESSAGE:
        text = text[:_MAX_MESSAGE] + "..."
    return text.encode("utf-8", "replace").decode()


def _is_closed(connection: sqlite3.Connection) -> bool:
    try:
        connection.total_changes  # noqa: B018 - it raises
    except sqlite3.ProgrammingError:
        return True
    return False
