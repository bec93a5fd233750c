"""The process that runs generated code: one module, any number of sessions, one request at a time.

It is forked from the zygote, locks itself down, proves it to the host, and only then takes requests. A request is
`[id, operation, *arguments]`, its reply `[id, status, payload]` with the status `ok`, `module` (a ModuleError's phase,
problems and line) or `fault` (a message).
"""

from __future__ import annotations

import gc
import mmap
import os
import random
import select
import signal
import socket
import sqlite3
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from types import ModuleType
from typing import Any, Literal

import time_machine
from pydantic import BaseModel, ConfigDict

from awm.env import linux, wire
from awm.env.arguments import InvalidArgumentsError
from awm.env.clock import FrozenClock
from awm.env.database import content_hash, open_database
from awm.env.deadline import Deadline, SoftTimeout
from awm.env.errors import ModuleError, SandboxUnavailable
from awm.env.jsonable import NON_FINITE, UnserialisableError, encode, to_jsonable
from awm.env.lockdown import LockDown, self_test
from awm.env.module import Tool, compile_module, describe_exception, find_tools, line_of, run_module, signatures
from awm.env.policy import Limits
from awm.env.published_verifier import PublishedVerifier
from awm.env.session import Session, TransactionEndedError, WorldClock, timestamp
from awm.env.shared import map_shared
from awm.env.tool import ToolError

__all__ = ["GC_THRESHOLD", "Blob", "Role", "Worker", "main", "prepare_process"]

Blob = bytes | mmap.mmap
Role = Literal["tools", "template", "verifier"]

_PAUSE_MS = 1
GC_THRESHOLD = (5_000, 20, 20)  # the usual 700 costs a call a third of its time
_LOAD_TIME = 946_684_800.0  # 2000-01-01: modules are loaded before any environment's clock is known
_MAX_MESSAGE = 10_000
_MAX_LISTED = 100
_CLOSED = (
    "the tool closed the database connection, which it must leave open; the session starts again from its first state"
)
_VERDICTS = ("completed", "partially_completed", "agent_error")


def main(
    channel: int, lock: LockDown, limits: Limits, role: Role, zygote: int, make: Callable[..., Worker] | None = None
) -> None:
    """Run a freshly forked worker to its end.

    :param channel: File descriptor of the connected socket; all others but 0-2 are closed already.
    :param zygote: Process id of the parent; if it is gone already, so is the reason to run.
    :param make: Another kind of worker.
    """
    world = prepare_process(zygote)
    if world is None:
        return
    worker = (make or Worker)(socket.socket(fileno=channel), limits, world)
    try:
        lock.apply(cpu_s=int(limits.verify_s + limits.grace_s) + 1 if role == "verifier" else None)
    except SandboxUnavailable as error:
        worker.greet("fault", str(error))
        return
    worker.greet("ok", self_test(lock.mode))
    gc.set_threshold(*GC_THRESHOLD)
    gc.enable()
    worker.serve()


def prepare_process(parent: int) -> WorldClock | None:
    """Make a forked process fit to run generated code; None if its parent is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if sys.platform == "linux":
        linux.kill_with_parent()
    if os.getppid() != parent:
        return None
    random.seed(0)
    uuid.uuid4 = _seeded_uuid4
    return WorldClock(stop_time())


@cache
def stop_time() -> time_machine.Traveller:
    """Freeze Python's own clock; the zygote does so already, because every process would pay for it."""
    return time_machine.travel(_LOAD_TIME, tick=False).start()


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
        self._fresh: Session | None = None
        self._blobs: dict[str, Blob] = {}
        self._expected: tuple[str, int] | None = None
        self._operations: dict[str, Callable[..., Any]] = {
            "load": self._load,
            "open": self._open_given_or_kept,
            "reset": self._reset,
            "close": self._close,
            "call": self._call,
            "call_many": self._call_many,
            "dump": lambda name: self._session(name).dump(),
            "diff": lambda name: self._session(name).diff(),
            "content_hash": lambda name: content_hash(self._session(name).connection),
            "changed": lambda name: self._session(name).changed(),
            "keep": self._blobs.__setitem__,
            "keep_file": self._expect_file,
            "verify": self._verify,
            "compiled": lambda: self._blobs["code"],
            "verify_published": self._verify_published,
        }

    # -- the channel -------------------------------------------------------------------------------------------------

    def greet(self, status: str, payload: object) -> None:
        """Report the self-test, or why there is none."""
        self._send(wire.pack([0, status, payload]))

    def prepare_fork(self) -> None:
        """Come to rest, to be copied."""
        self._deadline.stop()

    def take_over(self, channel: socket.socket) -> None:
        """Serve another channel, as the copy of a template that this process has become."""
        self._channel = channel
        self._frames = wire.Frames()
        self._deadline.forget_timer()
        random.seed(0)

    def serve(self) -> None:
        """Answer requests until the host hangs up."""
        while True:
            if self._expected is not None:
                self._take_file(*self._expected)
            elif self._fresh is not None:
                self._use_pause()
            received = self._channel.recv(self._frames.wanted)
            if not received:
                return
            data = self._frames.add(received)
            while data is not None:
                self.answer(wire.unpack(data))
                data = self._frames.take()

    def _expect_file(self, name: str, size: int) -> None:
        self._expected = (name, size)

    def _take_file(self, name: str, size: int) -> None:
        """Take the descriptor that follows upon the reply."""
        _, descriptors, _, _ = socket.recv_fds(self._channel, 1, 1)
        if descriptors:
            self._blobs[name] = map_shared(descriptors[0], size)
        self._expected = None

    def _use_pause(self) -> None:
        """Prepare a session that was just opened, if the host leaves time for it."""
        session, self._fresh = self._fresh, None
        pause = select.poll()
        pause.register(self._channel, select.POLLIN)
        if session is not None and not pause.poll(_PAUSE_MS):
            with suppress(sqlite3.Error):  # a call will find the same, and say so
                session.prepare()
            linux.trim_memory()

    def answer(self, request: list[Any]) -> None:
        """Do what a request asks and reply."""
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

    def _load(self, source: str, code: bytes | None) -> list[Any]:
        """Load a module; without its compiled code, check it and return its tools and that code."""
        self._seeded = "random" in source or "uuid" in source
        # Models of a module that was loaded before, and whole then, are built when first used.
        BaseModel.model_config = ConfigDict(ser_json_inf_nan=NON_FINITE, defer_build=code is not None)
        self._deadline.arm(self._limits.load_s)
        try:
            compiled = code or compile_module(source, "tools")
            self._module = run_module(compiled, "tools")
            self._tools = find_tools(self._module)
            described = [] if code else [signatures(self._tools), compiled]
            gc.freeze()  # a collection in a call has nothing to find in what the module made as it was loaded
            return described
        except SoftTimeout:
            raise ModuleError("import", [f"the module did not load within {self._limits.load_s:g} s"]) from None
        finally:
            self._deadline.disarm()

    def _open_given_or_kept(self, name: str, snapshot: bytes | None, clock: str) -> None:
        self._open(name, self._blobs.pop(name) if snapshot is None else snapshot, clock)

    def _open(self, name: str, snapshot: Blob, clock: str) -> None:
        session = Session(snapshot, clock, max_mb=self._limits.database_mb, deadline=self._deadline.moment)
        if name in self._sessions:
            self._sessions[name].close()
        self._sessions[name] = self._fresh = session

    def _reset(self, name: str) -> None:
        self._fresh = self._session(name)
        self._fresh.reset()

    def _session(self, name: str) -> Session:
        try:
            return self._sessions[name]
        except KeyError:
            raise ValueError(f"no session '{name}' is open") from None

    def _close(self, name: str) -> None:
        self._session(name).close()
        del self._sessions[name]

    def _call(self, name: str, tool_name: Any, arguments: Any = None) -> list[Any]:
        session = self._session(name)
        tool = self._tools.get(tool_name) if type(tool_name) is str else None
        if tool is None:
            reply = _failure("unknown_tool", f"unknown tool '{tool_name}'; the tools are: {', '.join(self._tools)}")
        else:
            session.enter(self._world, seed=self._seeded)
            reply = self._within(self._limits.call_s, self._explain_call, self._run, session, tool, arguments)
            try:
                if reply[0] == "ok":
                    session.commit()
            except BaseException as error:  # a constraint that waited, for example
                reply = self._explain_call(error)
            if reply[0] != "ok":
                session.abandon()
            if reply[0] != "ok" and _is_closed(session.connection):
                session.reset()  # what was in the database is lost
                reply = _failure("crash", _CLOSED, reply[3])
        session.clock.advance()
        return reply

    def _call_many(self, name: str, calls: list[list[Any]]) -> list[list[Any]]:
        return [self._call(name, *call) for call in calls]

    def _run(self, session: Session, tool: Tool, arguments: Any) -> list[Any]:
        session.begin()
        keywords, notes = tool.arguments.validate(arguments)
        return ["ok", encode(tool.function(session.connection, **keywords)), "", None, notes]

    def _within(
        self,
        seconds: float,
        explain: Callable[[BaseException], list[Any]],
        work: Callable[..., list[Any]],
        *arguments: Any,
    ) -> list[Any]:
        """Do the work; turn whatever it raises, and a lapse of time, into a reply."""
        passed = False
        try:
            try:
                self._deadline.arm(seconds)
                reply = work(*arguments)
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

    def _verify(self, source: str, answer: str | None, clock: str, code: bytes | None) -> list[Any]:
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
                compiled = code or compile_module(source, "verifier")
                self._blobs["code"] = compiled
                self._module = run_module(compiled, "verifier")
            except ModuleError as error:
                invalid.append(error)
                return _failure("invalid", "")
            self._world.move_to(timestamp(frozen))
            random.seed(clock)
            return self._judge(self._module.verify(*databases, answer))

        reply = self._within(self._limits.verify_s, self._explain_verification, work)
        if invalid:
            raise invalid[0]
        return reply

    def _verify_published(self, source: str, answer: str | None, clock: str) -> list[Any]:
        """Run a verifier of AgentWorldModel-1K on the two databases that were kept before."""
        frozen = FrozenClock(clock)
        verifier = PublishedVerifier(self._blobs["initial"][:], self._blobs["final"][:], frozen, self._deadline.moment)
        invalid: list[ModuleError] = []

        def work() -> list[Any]:
            self._world.move_to(timestamp(frozen))
            random.seed(clock)
            try:
                form, value = verifier.run(source, answer)
            except ModuleError as error:
                invalid.append(error)
                return _failure("invalid", "")
            finally:
                self._module = verifier.module
            return ["ok", encode({"form": form, "result": value}), "", None, []]

        reply = self._within(self._limits.verify_s, self._explain_verification, work)
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
        return ["ok", encode(value), "", None, []]


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
