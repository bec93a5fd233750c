"""The seccomp filter: an allow-list of system calls, written as BPF by hand.

What is not on the list fails with EPERM, so that ordinary code that probes its surroundings (`platform`, `uuid`) gets
an error it can handle. Calls made in another machine's convention, which would go round the list, kill the process.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
import signal
import struct
from dataclasses import dataclass

from awm.env.linux import syscall
from awm.env.syscalls import AUDIT_ARCH, SYSCALLS

__all__ = ["Filter", "build_filter", "build_fork_filter", "can_ask", "is_available"]

_LOAD, _RETURN, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT = 0x20, 0x06, 0x15, 0x35, 0x45
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_KILL_PROCESS, _ALLOW, _ASK, _FAIL = 0x80000000, 0x7FFF0000, 0x7FC00000, 0x00050000
_X32_NUMBERS = 0x40000000
_SET_MODE_FILTER, _GET_ACTION_AVAIL, _ALL_THREADS, _NEW_LISTENER = 1, 2, 1, 8

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | (getattr(os, "O_TMPFILE", 0) & ~0o200000)
_AT_EMPTY_PATH = 0x1000
_FCNTL_COMMANDS = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030)  # DUPFD, flags, locks, DUPFD_CLOEXEC
_IOCTL_REQUESTS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS, WINSZ, FIONREAD, FIONBIO, cloexec
_PRCTL_OPTIONS = (15, 16, 0x53564D41)  # thread name, name of a mapping
_AF_UNIX = 1  # asyncio's self-pipe

_MOST_USED = ("read", "write", "recvfrom", "sendto", "poll", "setitimer", "futex", "clock_gettime", "mmap", "munmap")
_ALLOWED = """
    mprotect madvise brk mremap close fstat lseek pread64 readv writev preadv select pselect6 ppoll rt_sigaction
    rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack restart_syscall sched_yield
    sched_getaffinity mincore dup dup2 dup3 pause nanosleep clock_nanosleep clock_getres getitimer alarm getpid getppid
    gettid getpgrp getuid geteuid getgid getegid getgroups getresuid getresgid uname getdents getdents64 getcwd
    gettimeofday time getrlimit getrusage sysinfo times fstatfs set_tid_address set_robust_list rseq exit exit_group
    epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd2 pipe pipe2 getcpu getrandom
    membarrier close_range sendmsg recvmsg shutdown getsockname getpeername getsockopt futex_waitv
""".split()
_ON_PATHS = ("stat", "lstat", "statx", "access", "faccessat", "faccessat2", "readlink", "readlinkat", "statfs")
_POINTER_FLAGS = ("openat2", "clone3", "io_uring_setup")  # a filter can't look behind pointers; libc falls back

_Instruction = tuple[int, int, int, int]


def is_available() -> bool:
    """Tell whether this machine is known and its kernel takes filters that fail calls with an errno."""
    return platform.machine() in SYSCALLS and _has_action(_FAIL)


def can_ask() -> bool:
    """Tell whether the kernel lets a listener answer calls, and let them through (from 5.5 on)."""
    release = re.match(r"(\d+)\.(\d+)", platform.release())
    return release is not None and tuple(map(int, release.groups())) >= (5, 5) and _has_action(_ASK)


def _has_action(code: int) -> bool:
    action = ctypes.c_uint32(code)
    number = SYSCALLS[platform.machine()]["seccomp"]
    try:
        syscall(number, ctypes.c_uint(_GET_ACTION_AVAIL), ctypes.c_uint(0), ctypes.byref(action))
    except OSError:
        return False
    return True


class _KernelProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


@dataclass(frozen=True)
class Filter:
    """A filter, complete but for the process id that each worker fills in."""

    code: bytes
    own_pid_at: tuple[int, ...]
    asks: bool = False
    """Whether some calls wait for the answer of whoever holds the listener."""

    def install(self, pid: int) -> int | None:
        """Apply the filter to this process, whose id is `pid`, for good; raise OSError if the kernel refuses.

        Returns the listener of a filter that asks.
        """
        code = bytearray(self.code)
        for offset in self.own_pid_at:
            struct.pack_into("=I", code, offset, pid)
        buffer = ctypes.create_string_buffer(bytes(code), len(code))
        program = _KernelProgram(len(code) // 8, ctypes.cast(buffer, ctypes.c_void_p))
        number = SYSCALLS[platform.machine()]["seccomp"]
        flags = _NEW_LISTENER if self.asks else _ALL_THREADS
        result = syscall(number, ctypes.c_uint(_SET_MODE_FILTER), ctypes.c_uint(flags), ctypes.byref(program))
        if self.asks:
            return result
        if result:
            raise OSError(errno.ESRCH, f"thread {result} could not take the filter")
        return None


def build_fork_filter() -> Filter:
    """Build a filter that refuses new processes and threads, and leaves the rest to the filters before it."""
    assembler = _Assembler(platform.machine())
    assembler.rule("clone", _ret(_fail(errno.EPERM)))
    return assembler.finish(_ALLOW)


def build_filter(*, opening: bool, forking: bool = False) -> Filter:
    """Build the filter for this machine.

    With `opening`, files may be opened for reading (which Landlock then narrows) and looked up; without, no path can be
    used at all. With `forking`, each new process or thread waits for the answer of the listener.
    """
    assembler = _Assembler(platform.machine(), asks=forking)
    if forking:
        assembler.rule("clone", _ret(_ASK))
        assembler.rule("seccomp", *_allow_values(0, (_SET_MODE_FILTER,)))  # copies take one more filter
    for name in _MOST_USED:
        assembler.rule(name, _ret(_ALLOW))
    _add_path_rules(assembler, opening)
    for name in _POINTER_FLAGS:
        assembler.rule(name, _ret(_fail(errno.ENOSYS)))
    assembler.rule("fcntl", *_allow_values(1, _FCNTL_COMMANDS))
    assembler.rule("ioctl", *_allow_values(1, _IOCTL_REQUESTS))
    assembler.rule("prctl", *(_dying_with_parent() if forking else ()), *_allow_values(0, _PRCTL_OPTIONS))
    assembler.rule("socketpair", *_allow_values(0, (_AF_UNIX,)))
    assembler.rule("prlimit64", *_reading_own_limits())
    for name in () if forking else ("kill", "tgkill"):  # abort() and raise() signal the process itself
        assembler.own_pid_rule(name)
    for name in _ALLOWED:
        assembler.rule(name, _ret(_ALLOW))
    return assembler.finish()


def _add_path_rules(assembler: _Assembler, opening: bool) -> None:
    denied = _ret(_fail(errno.EACCES))  # not EPERM: Python then raises PermissionError, SQLite falls back to reading
    if opening:
        assembler.rule("openat", *_allow_without_bits(2, _WRITING))
        assembler.rule("open", *_allow_without_bits(1, _WRITING))
    for name in (*(() if opening else ("open", "openat")), *_ON_PATHS):
        assembler.rule(name, _ret(_ALLOW) if opening else denied)
    if opening:
        assembler.rule("newfstatat", _ret(_ALLOW))
    else:  # libc's fstat(fd) is newfstatat(fd, "", AT_EMPTY_PATH)
        assembler.rule("newfstatat", _load_argument(3), (_IF_ANY_BIT, 0, 1, _AT_EMPTY_PATH), _ret(_ALLOW), denied)


def _ret(action: int) -> _Instruction:
    return (_RETURN, 0, 0, action)


def _fail(code: int) -> int:
    return _FAIL | code


def _load_argument(index: int, *, high_half: bool = False) -> _Instruction:
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * index + (4 if high_half else 0))


def _allow_values(index: int, values: tuple[int, ...]) -> list[_Instruction]:
    checks = [step for value in values for step in ((_IF_EQUAL, 0, 1, value), _ret(_ALLOW))]
    return [_load_argument(index), *checks, _ret(_fail(errno.EPERM))]


def _allow_without_bits(index: int, bits: int) -> list[_Instruction]:
    return [_load_argument(index), (_IF_ANY_BIT, 0, 1, bits), _ret(_fail(errno.EACCES)), _ret(_ALLOW)]


def _dying_with_parent() -> list[_Instruction]:
    """prctl(PR_SET_PDEATHSIG, SIGKILL), which a copy of a template sets for itself, and no other signal."""
    return [
        _load_argument(0),
        (_IF_EQUAL, 0, 3, 1),
        _load_argument(1),
        (_IF_EQUAL, 0, 1, int(signal.SIGKILL)),
        _ret(_ALLOW),
    ]


def _reading_own_limits() -> list[_Instruction]:
    """prlimit64(0, resource, NULL, old): this process, no new limits (a pointer has two halves)."""
    return [
        _load_argument(0),
        (_IF_EQUAL, 0, 5, 0),
        _load_argument(2),
        (_IF_EQUAL, 0, 3, 0),
        _load_argument(2, high_half=True),
        (_IF_EQUAL, 0, 1, 0),
        _ret(_ALLOW),
        _ret(_fail(errno.EPERM)),
    ]


class _Assembler:
    """Collects instructions, one block per system call; each block returns."""

    def __init__(self, machine: str, *, asks: bool = False) -> None:
        self._asks = asks
        self._numbers = SYSCALLS[machine]
        self._own_pid_at: list[int] = []
        self._code: list[_Instruction] = [
            (_LOAD, 0, 0, _ARCH),
            (_IF_EQUAL, 1, 0, AUDIT_ARCH[machine]),
            _ret(_KILL_PROCESS),
            (_LOAD, 0, 0, _NUMBER),
        ]
        if machine == "x86_64":
            self._code += [(_IF_AT_LEAST, 0, 1, _X32_NUMBERS), _ret(_KILL_PROCESS)]

    def rule(self, name: str, *block: _Instruction) -> None:
        """Decide on one system call; machines that lack it need no rule."""
        if name in self._numbers:
            self._code += [(_IF_EQUAL, 0, len(block), self._numbers[name]), *block]

    def own_pid_rule(self, name: str) -> None:
        """Allow a call whose first argument is the process's own id."""
        self.rule(name, *_allow_values(0, (0,)))
        self._own_pid_at.append(8 * (len(self._code) - 3) + 4)  # the comparison's value, before allow and deny

    def finish(self, otherwise: int = _fail(errno.EPERM)) -> Filter:
        """Close with the default: refuse."""
        self._code.append(_ret(otherwise))
        code = b"".join(struct.pack("=HBBI", *step) for step in self._code)
        return Filter(code, tuple(self._own_pid_at), self._asks)
