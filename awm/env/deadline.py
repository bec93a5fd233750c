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

_TICK_S = 0.1


class SoftTimeout(BaseException):
    """The time is up. Not an Exception, so that `except Exception` does not swallow it."""


class Deadline:
    """One timer for this process; its main thread only.

    The timer ticks on between limits, and stops when it finds none, so that limits set one after the other cost no
    system call. A tick after the time is up raises, and so does each one after it: code may swallow the first.
    """

    def __init__(self) -> None:
        self._at = inf
        self._ticks = False
        signal.signal(signal.SIGALRM, self._ring)

    def arm(self, seconds: float) -> None:
        """Start the time. It ends up to a tenth of a second late."""
        self._at = time.monotonic() + seconds
        if not self._ticks or seconds < _TICK_S:
            self._ticks = True
            signal.setitimer(signal.ITIMER_REAL, min(seconds, _TICK_S), _TICK_S)

    def disarm(self) -> bool:
        """Stop the time; return whether it had run out. Call again if it raises SoftTimeout itself."""
        passed = time.monotonic() > self._at
        self._at = inf
        return passed

    def stop(self) -> None:
        """Stop the ticks before a fork: a copy inherits no timer, and a signal would interrupt the fork."""
        self._ticks = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def forget_timer(self) -> None:
        """Know, in a forked process, that it has no timer yet: they are not inherited."""
        self._ticks = False

    def moment(self) -> float:
        """Return when the time is up, in seconds of the monotonic clock."""
        return self._at

    def _ring(self, number: int, stack: FrameType | None) -> None:
        if self._at == inf:
            self._ticks = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        elif time.monotonic() > self._at:
            raise SoftTimeout
