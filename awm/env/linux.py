"""System calls that Python does not wrap, through ctypes: raw `syscall`, `prctl` and `capset`."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

__all__ = [
    "drop_capabilities",
    "forbid_new_privileges",
    "kill_with_parent",
    "prctl",
    "syscall",
    "trim_memory",
    "undumpable",
]

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 1, 4, 24, 38, 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522
_SIGKILL = 9

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def syscall(number: int, *arguments: object) -> int:
    """Make a raw system call; raise OSError with its errno on failure."""
    return _checked(_libc.syscall(ctypes.c_long(number), *arguments))


def prctl(option: int, *arguments: int) -> int:
    """Change a property of this process, unused arguments being 0; raise OSError on failure."""
    padded = (*arguments, 0, 0, 0, 0)[:4]
    return _checked(_libc.prctl(ctypes.c_int(option), *(ctypes.c_ulong(value) for value in padded)))


def trim_memory() -> None:
    """Give free memory back to the system, where the C library can."""
    with suppress(AttributeError):
        _libc.malloc_trim(ctypes.c_size_t(0))


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def forbid_new_privileges() -> None:
    """Make set-uid programs and file capabilities have no effect; Landlock and seccomp require it."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def kill_with_parent() -> None:
    """Ask the kernel to kill this process when the parent's thread that forked it ends."""
    prctl(_PR_SET_PDEATHSIG, _SIGKILL)


def undumpable() -> None:
    """Leave no core and let no process of the same user attach."""
    prctl(_PR_SET_DUMPABLE, 0)


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def drop_capabilities() -> None:
    """Empty every capability set of this process. Harmless when there are none; the user id stays."""
    for capability in range(64):
        try:
            prctl(_PR_CAPBSET_DROP, capability)
        except OSError:  # EINVAL after the last capability, EPERM for an ordinary user, who has none to drop
            break
    with suppress(OSError):  # kernels before 4.3 have no ambient set
        prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _checked(_libc.capset(ctypes.byref(header), ctypes.byref(nothing)))
