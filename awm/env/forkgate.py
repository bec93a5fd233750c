"""The host's say over every process that a template wants to start.

A template is a locked-down process that holds a loaded module, so that episodes start as copies of it. It must be able
to fork, and its module must not: the kernel stops each `clone` in it and asks the host (seccomp user notification),
which lets through exactly those that it ordered itself.
"""

from __future__ import annotations

import errno
import os
import signal
import struct
from contextlib import suppress

__all__ = ["ASKS", "CANNOT", "FREE", "PID_BYTES", "ForkGate"]

ASKS, FREE, CANNOT = b"a", b"f", b"n"
"""A template's first byte: it asks for forks (the listener comes with it), forks freely (no sandbox), or can't fork."""

PID_BYTES = 4
"""Size of the process id that a copy names first."""

# struct seccomp_notif: id, pid, flags, then seccomp_data: nr, arch, instruction pointer, six arguments.
_NOTICE = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")  # id, value, error, flags
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
# What fork() asks for: CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID, or nothing, and SIGCHLD at the end. No namespaces.
_FORK_FLAGS = (0x01200000 | signal.SIGCHLD, int(signal.SIGCHLD))


class ForkGate:
    """The listener on one template's filter.

    :param listener: File descriptor from the kernel; the gate closes it.
    """

    def __init__(self, listener: int) -> None:
        self._listener = listener

    def fileno(self) -> int:
        """Return the descriptor, readable when a process waits for an answer."""
        return self._listener

    def answer(self, admitted: int | None) -> bool:
        """Answer one waiting process; return whether it may fork.

        :param admitted: Process id of the template, if a fork of it was ordered; all else is refused.
        """
        import fcntl

        notice = bytearray(_NOTICE.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, notice)
        except OSError:  # it was killed meanwhile
            return False
        number, pid, _, _, _, _, flags, *_ = _NOTICE.unpack(notice)
        allowed = admitted is not None and pid == admitted and flags in _FORK_FLAGS
        answer = (number, 0, 0, _CONTINUE) if allowed else (number, 0, -errno.EPERM, 0)
        with suppress(OSError):
            fcntl.ioctl(self._listener, _SEND, bytearray(_ANSWER.pack(*answer)))
            return allowed
        return False

    def close(self) -> None:
        """Stop answering: whatever waits, and whatever asks later, gets an error."""
        if self._listener >= 0:
            os.close(self._listener)
            self._listener = -1
