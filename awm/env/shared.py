"""Bytes that many processes read and none can change: sealed files in memory, handed over as file descriptors."""

from __future__ import annotations

import mmap
import os
import sys
import threading
from collections import OrderedDict

__all__ = ["SharedBytes", "map_shared"]

_MIN_BYTES = 1 << 14  # less is not worth a descriptor
_MAX_FILES = 256


class SharedBytes:
    """Files in memory for the bytes that are asked for again and again, such as the snapshots of environments.

    Any thread may use it. The files last used longest ago are closed when there are too many; processes that have them
    keep them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: OrderedDict[bytes, int] = OrderedDict()

    def file(self, data: bytes) -> int | None:
        """Return a new descriptor of a sealed file with these bytes, for the caller to close.

        None for few bytes, and where there are no such files: then the bytes go as a message.
        """
        if len(data) < _MIN_BYTES or sys.platform != "linux":
            return None
        with self._lock:
            if data not in self._files:
                made = _sealed(data)
                if made is None:
                    return None
                self._files[data] = made
            self._files.move_to_end(data)
            while len(self._files) > _MAX_FILES:
                os.close(self._files.popitem(last=False)[1])
            return os.dup(self._files[data])

    def close(self) -> None:
        """Let go of all files."""
        with self._lock:
            while self._files:
                os.close(self._files.popitem()[1])


def map_shared(descriptor: int, size: int) -> mmap.mmap:
    """Return the bytes of a file to read, without a copy; close the descriptor."""
    try:
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
    finally:
        os.close(descriptor)


if sys.platform == "linux":
    import fcntl

    _SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE

    def _sealed(data: bytes) -> int | None:
        try:
            descriptor = os.memfd_create("awm", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except OSError:
            return None
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(data)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        except OSError:
            os.close(descriptor)
            return None
        return descriptor

else:

    def _sealed(data: bytes) -> int | None:
        return None
