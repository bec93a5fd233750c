"""The host's side of templates: episodes of a module that is slow to load start as copies of a process that did."""

from __future__ import annotations

import importlib.util
import os
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from awm.env.channel import Worker
from awm.env.errors import EnvironmentFault, MissingExtraError, SandboxUnavailable, WorkerDied, WorkerTimeout
from awm.env.forkgate import ASKS, FREE, PID_BYTES, ForkGate
from awm.env.policy import Limits
from awm.env.results import ToolSignature
from awm.env.toolworker import DATABASE_S, ToolWorker

__all__ = ["Template", "require_extra"]

_START_S = 10.0
_FORK_S = 10.0
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid of the sender, as the kernel knows them
_NEEDED = ("fastapi", "sqlalchemy")
_INSTALL = "pip install 'awm[awm1k]'"


W = TypeVar("W", bound=Worker)


class _Fork(Protocol):
    def __call__(self, role: bytes, make: type[W]) -> W: ...


def require_extra() -> None:
    """Raise MissingExtraError, which names the install command, if imported environments can't run here."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"environments of AgentWorldModel-1K need {' and '.join(missing)}: {_INSTALL}")


class Template:
    """A published FastAPI module, loaded once; each worker is a copy with the initial state open.

    Made by `Sandbox.template`. Any thread may ask for workers. Where the kernel can't supervise forks, each worker
    loads the module itself. Close it to end its process, and with it all of its copies.

    :param fork: Starts a process of a role (`t` worker, `p` template) and reads nothing from it.
    :param admit: Checks a self-test, and kills the worker if it fails.
    """

    def __init__(
        self,
        fork: _Fork,
        admit: Callable[[Worker, Any], Worker],
        limits: Limits,
        source: str,
        snapshot: bytes,
        clock: str,
        session: str,
    ) -> None:
        self._fork = fork
        self._admit = admit
        self._limits = limits
        self._source = source
        self._snapshot = snapshot
        self._clock = clock
        self._session = session
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._process: _TemplateWorker | None = None
        self._tools: list[ToolSignature] | None = None

    def __enter__(self) -> Self:
        """Start nothing yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    @property
    def tools(self) -> list[ToolSignature]:
        """The module's endpoints as tools; raises ModuleError for a module that can't be used."""
        if self._tools is None:
            with self._lock:
                self._started()
        assert self._tools is not None
        return list(self._tools)

    def worker(self) -> ToolWorker:
        """Return a process of its own with the module loaded and the session open."""
        with self._lock:
            process = self._started()
            if process.can_fork:
                worker = process.fork()
                try:
                    tested = worker.greeting(_START_S)
                except EnvironmentFault as error:
                    worker.kill()
                    raise SandboxUnavailable(f"a copy of the template did not start: {error}") from None
                return ToolWorker(self._admit(worker, tested), self._limits, {})
        return self._loaded_worker()

    def initial_state(self) -> bytes:
        """Return the database after the module has started on it, with the tables of its models that were missing."""
        worker = self._admitted(self._fork(b"t", Worker))
        try:
            _, state = self._load(worker, want_state=True)
        finally:
            worker.kill()
        if not isinstance(state, bytes):
            raise worker.broken("a database of another type")
        return state

    def close(self) -> None:
        """End the template and its copies."""
        with self._lock:
            if self._process is not None:
                self._process.kill()
            self._process = None

    def _started(self) -> _TemplateWorker:
        if self._owner != os.getpid():  # a forked process must not use its parent's template
            self._process, self._owner = None, os.getpid()
        if self._process is not None and self._process.alive:
            return self._process
        process = self._locked_down()
        try:
            self._tools, _ = self._load(process)
            process.request("open", self._session, self._snapshot, self._clock, within=DATABASE_S)
        except BaseException:
            process.kill()
            raise
        self._process = process
        return process

    def _locked_down(self) -> _TemplateWorker:
        for last in (False, True):  # as for any worker: one may be lost to a machine short of memory
            process = self._fork(b"p", _TemplateWorker)
            try:
                process.open_gate(_START_S)
                self._admitted(process)
                return process
            except BaseException as error:
                process.kill()
                if last or not isinstance(error, EnvironmentFault | SandboxUnavailable):
                    raise
        raise AssertionError

    def _loaded_worker(self) -> ToolWorker:
        worker = self._admitted(self._fork(b"t", Worker))
        try:
            self._load(worker)
            worker.request("open", self._session, self._snapshot, self._clock, within=DATABASE_S)
        except BaseException:
            worker.kill()
            raise
        return ToolWorker(worker, self._limits, {})

    def _admitted(self, worker: Worker) -> Worker:
        try:
            tested = worker.greeting(_START_S)
        except EnvironmentFault as error:
            worker.kill()
            raise SandboxUnavailable(f"cannot isolate generated code: {error}") from None
        return self._admit(worker, tested)

    def _load(self, worker: Worker, *, want_state: bool = False) -> tuple[list[ToolSignature], Any]:
        within = self._limits.load_s + self._limits.grace_s
        arguments = (self._source, self._snapshot, self._clock, want_state)
        reply = worker.request("load_app", *arguments, within=within)
        if not isinstance(reply, list) or len(reply) != 2:
            raise worker.broken("tools of another shape")
        return ToolWorker(worker, self._limits, {}).signatures(reply[0]), reply[1]


class _Copy(Worker):
    """A worker that holds on to its template, without which it would end."""

    def __init__(self, template: Worker, channel: socket.socket, pid: int, handle: int | None) -> None:
        super().__init__(channel, pid, handle)
        self.template = template


class _TemplateWorker(Worker):
    """The host's end of a template's channel: it also answers for the template's forks."""

    _gate: ForkGate | None = None
    _fork_ordered = False
    can_fork = False

    def open_gate(self, within: float) -> None:
        """Take the listener for forks, which comes before anything else."""
        if not _readable(self._channel, within):
            raise self._late()
        try:
            first, descriptors, _, _ = socket.recv_fds(self._channel, 1, 1)
        except OSError:
            raise self._died() from None
        self.can_fork = first == FREE
        if first == ASKS and descriptors:
            self._gate = ForkGate(descriptors[0])
            self.can_fork = True

    def kill(self, reason: str = "it was killed") -> None:
        """End the process at once, and its copies with it."""
        super().kill(reason)
        if self._gate is not None:
            self._gate.close()
            self._gate = None

    def fork(self) -> Worker:
        """Order a copy and return it; its greeting is still to be read."""
        ours, its_end = socket.socketpair()
        end = time.monotonic() + _FORK_S
        try:
            with its_end:
                if sys.platform == "linux":
                    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
                self._fork_ordered = True
                self._order(its_end, end)
            self._reply(self._number, end)
            return self._copy(ours, end)
        except BaseException:
            ours.close()
            raise
        finally:
            self._fork_ordered = False

    def _order(self, channel: socket.socket, end: float) -> None:
        data = self._question("fork", ())
        try:
            socket.send_fds(self._channel, [data], [channel.fileno()])
        except OSError:
            raise self._died() from None

    def _copy(self, ours: socket.socket, end: float) -> Worker:
        """Find out who the copy is: the kernel says who sent its first bytes, and whose child that is."""
        ours.settimeout(max(end - time.monotonic(), 0.001))
        try:
            data, ancillary, _, _ = ours.recvmsg(PID_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size))
        except OSError:
            raise WorkerTimeout("the copy of the template did not answer in time") from None
        pid = int.from_bytes(data, "little")
        if sys.platform == "linux":
            pid = next((_CREDENTIALS.unpack(value)[0] for _, kind, value in ancillary if kind == _SCM_CREDENTIALS), 0)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        handle = _open_child(pid, self.pid)
        return _Copy(self, ours, pid, handle)

    def _wait_until_readable(self, end: float) -> None:
        """Answer the template's forks until it has something to say."""
        watch = select.poll()
        watch.register(self._channel, select.POLLIN)
        if self._gate is not None:
            watch.register(self._gate, select.POLLIN)
        while self._gate is not None:
            remaining = end - time.monotonic()
            events = dict(watch.poll(remaining * 1000)) if remaining > 0 else {}
            if events.get(self._gate.fileno()) != select.POLLIN:
                break
            if self._gate.answer(self.pid if self._fork_ordered else None):
                self._fork_ordered = False
        super()._wait_until_readable(end)


_SCM_CREDENTIALS = getattr(socket, "SCM_CREDENTIALS", 2)


def _readable(channel: socket.socket, within: float) -> bool:
    watch = select.poll()
    watch.register(channel, select.POLLIN)
    return bool(watch.poll(within * 1000))


def _open_child(pid: int, parent: int) -> int | None:
    """Return a pidfd of a process after making sure that it is the template's child; None where there are none."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        raise WorkerDied("the copy of the template ended at once") from None
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            if int(stat.read().rpartition(b")")[2].split()[1]) == parent:
                return handle
    except (OSError, ValueError, IndexError):
        pass
    os.close(handle)
    raise WorkerDied("what answered for the copy is not the template's child")
