"""Messages between host and worker: msgpack behind a four-byte length, never pickle.

Both ends speak it. The worker's end may be in hostile hands: sizes are capped, and only plain data is taken.
"""

from __future__ import annotations

import threading
from typing import Any

import msgpack  # type: ignore[import-untyped]

from awm.env.errors import EnvironmentFault

__all__ = ["MAX_BYTES", "Frames", "WireError", "check_size", "frame", "pack", "unpack"]

MAX_BYTES = 16 << 20
_PREFIX = 4
_USUAL_BYTES = 1 << 14
_KEPT_BYTES = 1 << 20


class _Packer(threading.local):
    """A packer of each thread: making one costs more than packing a call."""

    def __init__(self) -> None:
        self.pack = msgpack.Packer().pack


_packer = _Packer()


class WireError(EnvironmentFault, ValueError):
    """Data that can't be sent, or can't have been sent by a well-behaved peer."""


def pack(value: Any) -> bytes:
    """Encode plain data; raise WireError for what has no encoding or is larger than a message may be."""
    try:
        data: bytes = _packer.pack(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError(str(error)) from error
    if len(data) > _KEPT_BYTES:
        _packer.pack = msgpack.Packer().pack  # its buffer grew as large, and would stay so
        check_size(data)
    return data


def check_size(data: bytes) -> None:
    """Raise WireError for data that is larger than a message may be."""
    if len(data) > MAX_BYTES:
        raise WireError(f"{len(data) >> 20} MiB of data, more than the {MAX_BYTES >> 20} MiB of a message")


def unpack(data: bytes | memoryview) -> Any:
    """Decode plain data; raise WireError for anything else."""
    try:
        return msgpack.unpackb(data, ext_hook=_refuse, strict_map_key=False)
    except Exception as error:  # msgpack has several roots of errors, and the data may be hostile
        raise WireError(f"undecodable message ({type(error).__name__})") from error


def _refuse(code: int, data: bytes) -> None:
    raise ValueError(f"extension type {code}")


def frame(data: bytes) -> bytes:
    """Put the length before packed data."""
    return len(data).to_bytes(_PREFIX, "little") + data


class Frames:
    """Cuts a stream of bytes into the packed data of messages.

    `wanted` is how many bytes to read next.
    """

    def __init__(self) -> None:
        self._buffer: bytes | bytearray = b""
        self.wanted = _USUAL_BYTES

    def add(self, data: bytes) -> bytes | memoryview | None:
        """Take what came in and return the next whole message, as `feed` and `take` do."""
        if not self._buffer and len(data) - _PREFIX == int.from_bytes(data[:_PREFIX], "little"):
            return data[_PREFIX:]
        self.feed(data)
        return self.take()

    def feed(self, data: bytes) -> None:
        """Take what came in."""
        if not self._buffer:
            self._buffer = data
            return
        if isinstance(self._buffer, bytes):
            self._buffer = bytearray(self._buffer)
        self._buffer += data

    def take(self) -> bytes | memoryview | None:
        """Return the next whole message, if there is one; raise WireError if it claims to be too large."""
        buffer = self._buffer
        if len(buffer) < _PREFIX:
            return None
        length = int.from_bytes(buffer[:_PREFIX], "little")
        if length > MAX_BYTES:
            raise WireError(f"a message of {length} bytes, more than {MAX_BYTES}")
        end = _PREFIX + length
        if len(buffer) < end:
            self.wanted = max(end - len(buffer), _USUAL_BYTES)
            return None
        self.wanted = _USUAL_BYTES
        self._buffer = bytes(buffer[end:])
        return memoryview(buffer)[_PREFIX:end]
