"""The process that episodes are copied from: a worker that holds a loaded module and forks on the host's order.

It is locked down like every worker before it loads anything, but for one thing: its filter asks the host about each
fork (`awm.env.forkgate`). A copy gives that up too. The template never sees what agents send, so all it can pass on to
an episode is what the module did as it was loaded.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from dataclasses import replace
from typing import Any

from awm.env import linux, seccomp, wire
from awm.env.errors import SandboxUnavailable
from awm.env.forkgate import ASKS, CANNOT, FREE, PID_BYTES
from awm.env.lockdown import LockDown, self_test
from awm.env.policy import Limits
from awm.env.worker import GC_THRESHOLD, Worker, prepare_process

__all__ = ["TemplateProcess", "main"]

_RECEIVE_BYTES = 1 << 18


def main(channel: int, lock: LockDown, limits: Limits, zygote: int, make: type[Worker]) -> None:
    """Run a freshly forked template to its end; the parameters are those of `awm.env.worker.main`.

    :param make: The kind of worker that the template and its copies are.
    """
    os.setpgid(0, 0)  # its copies can't leave this group: the zygote ends them all with it
    world = prepare_process(zygote)
    if world is None:
        return
    own = socket.socket(fileno=channel)
    worker = make(own, limits, world)
    try:
        listener = _lock_down(lock)
    except SandboxUnavailable as error:
        own.sendall(CANNOT)
        worker.greet("fault", str(error))
        return
    if listener is not None:
        socket.send_fds(own, [ASKS], [listener])
        os.close(listener)
    else:
        own.sendall(FREE if lock.mode == "off" else CANNOT)
    worker.greet("ok", self_test(lock.mode))
    gc.set_threshold(*GC_THRESHOLD)
    gc.enable()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # copies that end leave nothing to bury
    TemplateProcess(own, worker, lock).serve()


def _lock_down(lock: LockDown) -> int | None:
    """Lock this process down; return the listener for its forks, None where the kernel gives none."""
    if lock.mode == "off" or not seccomp.can_ask():
        lock.apply()
        return None
    asking = replace(
        lock, filter=seccomp.build_filter(opening=lock.mode == "strict", forking=True), fallback=lock.filter
    )
    return asking.apply()


class TemplateProcess:
    """Answers as the worker does, and forks copies of it."""

    def __init__(self, channel: socket.socket, worker: Worker, lock: LockDown) -> None:
        self._channel = channel
        self._worker = worker
        self._lock = lock
        self._frames = wire.Frames()
        self._no_forks = seccomp.build_fork_filter() if lock.mode != "off" else None

    def serve(self) -> None:
        """Answer requests until the host hangs up; a copy goes on with its own requests, and returns."""
        descriptors: list[int] = []
        while True:
            data = self._frames.take()
            if data is None:
                received, arrived, _, _ = socket.recv_fds(self._channel, _RECEIVE_BYTES, 1)
                if not received:
                    return
                descriptors += arrived
                self._frames.feed(received)
                continue
            request = wire.unpack(data)
            if request[1] != "fork":
                self._worker.answer(request)
            elif self._fork(request[0], descriptors.pop(0)):
                return

    def _fork(self, number: int, channel: int) -> bool:
        """Fork; return True in the copy, when it has come to its end."""
        self._worker.prepare_fork()
        gc.collect()
        gc.freeze()
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            os.close(channel)
            self._send([number, "fault", f"fork: {error}"])
            return False
        if pid:
            os.close(channel)
            self._send([number, "ok", None])
            return False
        self._become_copy(socket.socket(fileno=channel), parent)
        return True

    def _become_copy(self, channel: socket.socket, parent: int) -> None:
        if sys.platform == "linux":
            linux.kill_with_parent()
        if os.getppid() != parent:
            return
        self._channel.close()
        if self._no_forks is not None:
            self._no_forks.install(os.getpid())
        channel.sendall(os.getpid().to_bytes(PID_BYTES, "little"))
        self._worker.take_over(channel)
        self._worker.greet("ok", self_test(self._lock.mode))
        self._worker.serve()

    def _send(self, message: list[Any]) -> None:
        self._channel.sendall(wire.frame(wire.pack(message)))
