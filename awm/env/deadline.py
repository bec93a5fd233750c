"""The soft limit on the time of generated code, inside its own process.

An interval timer raises in Python code; SQLite's progress handler asks `moment`. Code that swallows the exception, or
spins where neither looks, is left to the host's hard deadline.
"""

from __future__ import annotations

import signal
import time
from math import inf
from types import FrameType

__all__ = ["Deadline", "SoftTimeout"]

_REPEAT_S = 0.2  # code may swallow the first exception


class SoftTimeout(BaseException):
    """The time is up. Not an Exception, so that `except Exception` does not swallow it."""


class Deadline:
    """One timer for this process; its main thread only."""

    def __init__(self) -> None:
        self._at = inf
        signal.signal(signal.SIGALRM, self._ring)

    def arm(self, seconds: float) -> None:
        """Start the time."""
        self._at = time.monotonic() + seconds
        signal.setitimer(signal.ITIMER_REAL, seconds, _REPEAT_S)

    def disarm(self) -> bool:
        """Stop the time; return whether it had run out. Call again if it raises SoftTimeout itself."""
        passed = time.monotonic() > self._at
        self._at = inf
        signal.setitimer(signal.ITIMER_REAL, 0)
        return passed

    def moment(self) -> float:
        """Return when the time is up, in seconds of the monotonic clock."""
        return self._at

    def _ring(self, number: int, stack: FrameType | None) -> None:
        if time.monotonic() > self._at:
            raise SoftTimeout
