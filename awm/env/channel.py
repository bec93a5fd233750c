"""The host's end of one worker: requests, replies, hard deadlines, and the kill."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from awm.env import wire
from awm.env.errors import EnvironmentFault, ModuleError, WorkerDied, WorkerTimeout
from awm.env.shared import SharedBytes

__all__ = ["Worker"]

_TIMEVAL = struct.Struct("@ll")
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
        self._within = 0.0
        channel.setblocking(True)
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

    @property
    def alive(self) -> bool:
        """Whether the process still runs, as far as its socket tells; nothing may be awaited from it."""
        return self._gone is None and not self._poll.poll(0)

    def broken(self, what: str) -> WorkerDied:
        """Kill a worker that said what it must not; return the error to raise."""
        self.kill(f"it broke the protocol: {what}")
        return WorkerDied(f"the process of the generated code was ended: {self._gone}")

    def greeting(self, within: float) -> Any:
        """Return what the worker reports of its self-test."""
        self._set_timeouts(within)
        return self._reply(0, time.monotonic() + within)

    def request(self, operation: str, *arguments: Any, within: float) -> Any:
        """Ask and wait for the answer; kill the worker when it takes longer than `within` seconds.

        Raises ModuleError and EnvironmentFault as the worker reports them, WorkerDied, WorkerTimeout, and WireError for
        arguments that can't be sent.
        """
        data = self._question(operation, arguments)
        if within != self._within:
            self._set_timeouts(within)
        end = time.monotonic() + within
        self._send(data, end)
        return self._opened(self._receive(end), self._number)

    def hand_over(self, name: str, data: bytes, files: SharedBytes, *, within: float) -> None:
        """Have the worker keep bytes under a name: as a file that it shares with others, or else in a message.

        Raises WireError for more than a message may hold.
        """
        wire.check_size(data)
        descriptor = files.file(data)
        if descriptor is None:
            self.request("keep", name, data, within=within)
            return
        try:
            self.request("keep_file", name, len(data), within=within)
            socket.send_fds(self._channel, [b"f"], [descriptor])
        except OSError:
            raise self._died() from None
        finally:
            os.close(descriptor)

    async def arequest(self, operation: str, *arguments: Any, within: float) -> Any:
        """Do what `request` does; kill the worker when cancelled, because its answer would come to another question."""
        data = self._question(operation, arguments)
        loop = asyncio.get_running_loop()
        end = loop.time() + within
        try:
            await self._asend(loop, memoryview(data), end)
            return self._opened(await self._areceive(loop, end), self._number)
        except asyncio.CancelledError:
            self.kill("a request to it was cancelled")
            raise

    def _question(self, operation: str, arguments: tuple[Any, ...]) -> bytes:
        if self._gone is not None:
            raise WorkerDied(f"the process of the generated code is gone: {self._gone}")
        data = wire.frame(wire.pack([self._number + 1, operation, *arguments]))
        self._number += 1
        return data

    async def _asend(self, loop: asyncio.AbstractEventLoop, view: memoryview, end: float) -> None:
        while view:
            try:
                view = view[self._channel.send(view, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                await self._ready(loop, end, loop.add_writer, loop.remove_writer)
            except OSError:
                raise self._died() from None

    async def _areceive(self, loop: asyncio.AbstractEventLoop, end: float) -> bytes | memoryview:
        data = None
        while data is None:
            await self._ready(loop, end, loop.add_reader, loop.remove_reader)
            with suppress(BlockingIOError):
                data = self._take_in(socket.MSG_DONTWAIT)
        return data

    async def _ready(
        self,
        loop: asyncio.AbstractEventLoop,
        end: float,
        watch: Callable[..., None],
        unwatch: Callable[[socket.socket], bool],
    ) -> None:
        """Wait until the socket can be read or written; a process that ends makes it readable too."""
        ready = loop.create_future()
        timer = loop.call_at(end, _settle, ready, False)
        watch(self._channel, _settle, ready, True)
        try:
            in_time = await ready
        finally:
            unwatch(self._channel)
            timer.cancel()
        if not in_time:
            raise self._late()

    def _set_timeouts(self, within: float) -> None:
        """Let the kernel end each wait of the socket: that saves asking it before each read whether there is anything.

        A wait that follows upon another may so end after twice the time.
        """
        value = _TIMEVAL.pack(int(within), int(within % 1 * 1_000_000) + 1)
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)
        self._within = within

    def _send(self, data: bytes, end: float) -> None:
        try:
            sent = self._channel.send(data)
            while sent < len(data):
                self._check_time(end)
                sent += self._channel.send(memoryview(data)[sent:])
        except BlockingIOError:
            raise self._late() from None
        except OSError:
            raise self._died() from None

    def _check_time(self, end: float) -> None:
        if time.monotonic() >= end:
            raise self._late()

    def _reply(self, number: int, end: float) -> Any:
        return self._opened(self._receive(end), number)

    def _opened(self, data: bytes | memoryview, number: int) -> Any:
        """Return what a reply says, or raise it."""
        try:
            reply = wire.unpack(data)
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

    def _receive(self, end: float) -> bytes | memoryview:
        while True:
            self._wait_until_readable(end)
            try:
                data = self._take_in()
            except BlockingIOError:
                data = None
            if data is not None:
                return data
            self._check_time(end)

    def _wait_until_readable(self, end: float) -> None:
        """Nothing: the read itself waits."""

    def _take_in(self, flags: int = 0) -> bytes | memoryview | None:
        """Read once; return a message if it is whole by now."""
        try:
            received = self._channel.recv(self._frames.wanted, flags)
        except BlockingIOError:
            raise
        except OSError:
            received = b""
        if not received:
            raise self._died()
        try:
            return self._frames.add(received)
        except wire.WireError as error:
            raise self.broken(str(error)) from None

    def _died(self) -> WorkerDied:
        self.kill("it ended by itself")
        return WorkerDied("the process of the generated code ended by itself: it crashed, left, or ran out of memory")

    def _late(self) -> WorkerTimeout:
        self.kill("it did not answer in time")
        return WorkerTimeout("the process of the generated code did not answer in time and was killed")


def _settle(future: asyncio.Future[bool], value: bool) -> None:
    if not future.done():
        future.set_result(value)
