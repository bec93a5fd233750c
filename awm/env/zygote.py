"""The process that workers are forked from: started with an empty environment, everything imported, one thread.

It reads requests from its control socket: one byte for the role, with the worker's end of a socket pair attached. It
answers with the worker's process id and, where the system has them, a pidfd. When the socket closes it kills its
workers and ends.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import signal
import socket
import sqlite3
import sys
import sysconfig
from contextlib import suppress
from types import FrameType
from typing import Any

from awm.env import app_worker, linux, template_process, wire, worker
from awm.env.errors import SandboxUnavailable
from awm.env.lockdown import LockDown, prepare
from awm.env.policy import Limits, Mode, Runtime
from awm.env.warmup import warm_up

__all__ = ["ROLES", "main"]

ROLES: dict[bytes, worker.Role] = {b"t": "tools", b"p": "template", b"v": "verifier"}
_PID_BYTES = 4
_HIGHEST_DESCRIPTOR = 256


def main(control: int, settings: str) -> None:
    """Run the zygote to its end.

    :param control: File descriptor of the control socket.
    :param settings: JSON object with the `mode`, the `limits` and the `runtime`.
    """
    given: dict[str, Any] = json.loads(settings)
    limits, mode, runtime = Limits(**given["limits"]), given["mode"], given["runtime"]
    os.environ.clear()
    os.environ["TZ"] = "UTC"  # environments live in UTC, wherever the machine stands
    sys.argv, sys.orig_argv = [""], []
    channel = socket.socket(fileno=control)
    try:
        lock = _prepare(mode, limits, runtime)
    except SandboxUnavailable as error:
        channel.sendall(wire.frame(wire.pack({"error": str(error)})))
        return
    channel.sendall(wire.frame(wire.pack(_report(lock))))
    os.dup2(0, 1)  # standard input is /dev/null, and so becomes the rest: workers have nowhere to write
    os.dup2(0, 2)
    _Zygote(channel, lock, limits, runtime).serve()


def _prepare(mode: Mode, limits: Limits, runtime: Runtime) -> LockDown:
    warm_up()
    if runtime == "fastapi":
        app_worker.warm_up()
    _forget_project_paths()
    lock = prepare(mode, limits, app_worker.READABLE_PACKAGES if runtime == "fastapi" else ())
    if lock.mode != "off":
        linux.forbid_new_privileges()
        linux.drop_capabilities()
    return lock


def _forget_project_paths() -> None:
    """Leave only Python's own directories to import from: a checkout of this project is not for workers."""
    kept = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
    kept += (os.path.join(sys.base_prefix, "lib"),)
    sys.path[:] = [entry for entry in sys.path if entry.startswith(kept)]


def _report(lock: LockDown) -> dict[str, Any]:
    return {
        "mode": lock.mode,
        "layers": lock.layers,
        "landlock": lock.landlock_abi,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


class _Zygote:
    """Forks workers, and buries them."""

    def __init__(self, control: socket.socket, lock: LockDown, limits: Limits, runtime: Runtime) -> None:
        self._make = app_worker.AppWorker if runtime == "fastapi" else worker.Worker
        self._control = control
        self._lock = lock
        self._limits = limits
        self._workers: set[int] = set()
        self._templates: set[int] = set()
        self._forking = False
        self._burying = False
        self._more_ended = False
        signal.signal(signal.SIGCHLD, self._on_child)

    def serve(self) -> None:
        """Fork a worker per request until the host hangs up."""
        worker.stop_time()
        gc.collect()
        gc.freeze()  # what is here now is shared with every worker: don't let a collection copy it
        gc.disable()
        try:
            while True:
                role, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
                if not role:
                    return
                self._fork(ROLES[role], descriptors[0])
        finally:
            self._end_workers()

    def _fork(self, role: worker.Role, channel: int) -> None:
        self._forking = True
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_worker(role, channel, parent)
        self._workers.add(pid)
        if role == "template":
            self._templates.add(pid)
        os.close(channel)
        data = pid.to_bytes(_PID_BYTES, "little")
        if hasattr(os, "pidfd_open"):
            handle = os.pidfd_open(pid)
            socket.send_fds(self._control, [data], [handle])
            os.close(handle)
        else:
            self._control.sendall(data)
        self._forking = False
        self._bury()

    def _become_worker(self, role: worker.Role, channel: int, parent: int) -> None:
        try:
            keep = sorted({channel, self._lock.ruleset or channel})
            for low, high in zip([2, *keep], [*keep, _HIGHEST_DESCRIPTOR], strict=True):
                os.closerange(low + 1, high)
            if role == "template":
                template_process.main(channel, self._lock, self._limits, parent, self._make)
            else:
                worker.main(channel, self._lock, self._limits, role, parent, self._make)
        finally:
            os._exit(1)

    def _on_child(self, number: int, stack: FrameType | None) -> None:
        if not self._forking:  # until its pidfd is open, a dead worker must keep its process id
            self._bury()

    def _bury(self) -> None:
        """Bury the workers that have ended. A signal may come while this runs: it must not bury the same one twice."""
        self._more_ended = True
        if self._burying:
            return
        self._burying = True
        while self._more_ended:
            self._more_ended = False
            self._bury_ended()
        self._burying = False

    def _bury_ended(self) -> None:
        while self._workers:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            self._end_group(ended.si_pid)  # while it is not buried, its number is no other's
            os.waitpid(ended.si_pid, 0)
            self._workers.discard(ended.si_pid)
            self._templates.discard(ended.si_pid)

    def _end_group(self, pid: int) -> None:
        """End whatever a template has started: copies, and what its module may have smuggled in."""
        if pid in self._templates:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def _end_workers(self) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for pid in self._workers:
            self._end_group(pid)
            os.kill(pid, signal.SIGKILL)
        for pid in self._workers:
            os.waitpid(pid, 0)
