"""Messages between host and worker: msgpack behind a four-byte length, never pickle.

Both ends speak it. The worker's end may be in hostile hands: sizes are capped, and only plain data is taken.
"""

from __future__ import annotations

from typing import Any

import msgpack  # type: ignore[import-untyped]

from awm.env.errors import EnvironmentFault

__all__ = ["MAX_BYTES", "Frames", "WireError", "frame", "pack", "unpack"]

MAX_BYTES = 16 << 20
_PREFIX = 4


class WireError(EnvironmentFault, ValueError):
    """Data that can't be sent, or can't have been sent by a well-behaved peer."""


def pack(value: Any) -> bytes:
    """Encode plain data; raise WireError for what has no encoding or is larger than a message may be."""
    try:
        data: bytes = msgpack.packb(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError(str(error)) from error
    if len(data) > MAX_BYTES:
        raise WireError(f"{len(data) >> 20} MiB of data, more than the {MAX_BYTES >> 20} MiB of a message")
    return data


def unpack(data: bytes) -> Any:
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
    """Cuts a stream of bytes into the packed data of messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Take what came in."""
        self._buffer += data

    def take(self) -> bytes | None:
        """Return the next whole message, if there is one; raise WireError if it claims to be too large."""
        if len(self._buffer) < _PREFIX:
            return None
        length = int.from_bytes(self._buffer[:_PREFIX], "little")
        if length > MAX_BYTES:
            raise WireError(f"a message of {length} bytes, more than {MAX_BYTES}")
        end = _PREFIX + length
        if len(self._buffer) < end:
            return None
        data = bytes(self._buffer[_PREFIX:end])
        del self._buffer[:end]
        return data
