"""The host's end of one worker: requests, replies, hard deadlines, and the kill."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from contextlib import suppress
from typing import Any

from awm.env import wire
from awm.env.errors import EnvironmentFault, ModuleError, WorkerDied, WorkerTimeout

__all__ = ["Worker"]

_RECEIVE_BYTES = 1 << 18
_PHASES = ("syntax", "lint", "import", "signature")


class Worker:
    """A forked process and the socket to it.

    :param channel: The host's end of the socket pair.
    :param pid: Its process id.
    :param handle: A pidfd, which names the process even after its id was given to another; None where there are none.
    """

    def __init__(self, channel: socket.socket, pid: int, handle: int | None) -> None:
        self.pid = pid
        self._channel = channel
        self._handle = handle
        self._frames = wire.Frames()
        self._number = 0
        self._gone: str | None = None
        self._owner = os.getpid()
        channel.setblocking(False)
        self._poll = select.poll()
        self._poll.register(channel, select.POLLIN)
        if handle is not None:
            self._poll.register(handle, select.POLLIN)

    def kill(self, reason: str = "it was killed") -> None:
        """End the process at once. Harmless when it is gone."""
        if self._gone is not None:
            return
        self._gone = reason
        if self._owner == os.getpid():  # a forked process that drops its copy must not end its parent's worker
            with suppress(ProcessLookupError):
                if self._handle is not None:
                    signal.pidfd_send_signal(self._handle, signal.SIGKILL)
                else:
                    os.kill(self.pid, signal.SIGKILL)
        if self._handle is not None:
            os.close(self._handle)
        self._channel.close()

    def __del__(self) -> None:
        """Leave no process behind when its owner forgot it."""
        self.kill()

    def broken(self, what: str) -> WorkerDied:
        """Kill a worker that said what it must not; return the error to raise."""
        self.kill(f"it broke the protocol: {what}")
        return WorkerDied(f"the process of the generated code was ended: {self._gone}")

    def greeting(self, within: float) -> Any:
        """Return what the worker reports of its self-test."""
        return self._reply(0, time.monotonic() + within)

    def request(self, operation: str, *arguments: Any, within: float) -> Any:
        """Ask and wait for the answer; kill the worker when it takes longer than `within` seconds.

        Raises ModuleError and EnvironmentFault as the worker reports them, WorkerDied, WorkerTimeout, and WireError for
        arguments that can't be sent.
        """
        if self._gone is not None:
            raise WorkerDied(f"the process of the generated code is gone: {self._gone}")
        self._number += 1
        data = wire.frame(wire.pack([self._number, operation, *arguments]))
        end = time.monotonic() + within
        self._send(data, end)
        return self._reply(self._number, end)

    def _send(self, data: bytes, end: float) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._channel.send(view) :]
            except BlockingIOError:
                self._wait_until_writable(end)
            except OSError:
                raise self._died() from None

    def _wait_until_writable(self, end: float) -> None:
        remaining = end - time.monotonic()
        if remaining <= 0 or not select.select([], [self._channel], [], remaining)[1]:
            raise self._late()

    def _reply(self, number: int, end: float) -> Any:
        try:
            reply = wire.unpack(self._receive(end))
        except wire.WireError as error:
            raise self.broken(str(error)) from None
        if not isinstance(reply, list) or len(reply) != 3 or reply[0] != number:
            raise self.broken("a reply to no question")
        _, status, payload = reply
        if status == "ok":
            return payload
        if status == "fault" and isinstance(payload, str):
            raise EnvironmentFault(payload)
        if status == "module":
            raise self._module_error(payload)
        raise self.broken("an unknown status")

    def _module_error(self, payload: Any) -> Exception:
        if isinstance(payload, list) and len(payload) == 3 and payload[0] in _PHASES and isinstance(payload[1], list):
            phase, problems, line = payload
            return ModuleError(phase, [str(problem) for problem in problems], line if isinstance(line, int) else None)
        return self.broken("a module error of another shape")

    def _receive(self, end: float) -> bytes:
        while True:
            data = self._frames.take()
            if data is not None:
                return data
            self._wait_until_readable(end)
            try:
                received = self._channel.recv(_RECEIVE_BYTES)
            except BlockingIOError:
                continue
            except OSError:
                received = b""
            if not received:
                raise self._died()
            self._frames.feed(received)

    def _wait_until_readable(self, end: float) -> None:
        remaining = end - time.monotonic()
        events = dict(self._poll.poll(remaining * 1000)) if remaining > 0 else {}
        if not events:
            raise self._late()
        if self._channel.fileno() not in events:
            raise self._died()

    def _died(self) -> WorkerDied:
        self.kill("it ended by itself")
        return WorkerDied("the process of the generated code ended by itself: it crashed, left, or ran out of memory")

    def _late(self) -> WorkerTimeout:
        self.kill("it did not answer in time")
        return WorkerTimeout("the process of the generated code did not answer in time and was killed")
