"""Lock a process down for good, and prove it.

The zygote prepares what does not depend on a worker (`prepare`), each worker applies it (`LockDown.apply`) and then
tries what must fail (`self_test`). None of it protects from bugs in the kernel, CPython or SQLite, nor from what a
process can do to itself.
"""

from __future__ import annotations

import errno
import os
import platform
import resource
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from awm.env import landlock, linux, seccomp
from awm.env.errors import SandboxUnavailable
from awm.env.policy import OVERRIDE, Limits, Mode, library_rules

__all__ = ["LockDown", "not_refused", "prepare", "self_test"]

_OPEN_FILES = 64
_REFUSALS = {"EPERM", "EACCES", "ENOMEM"}
_WAY_OUT = (
    f"use a Linux kernel with seccomp (x86_64 or aarch64, a container will do), or set {OVERRIDE}=off to run generated "
    "code with your own rights"
)


@dataclass(frozen=True)
class LockDown:
    """The layers that hold, ready to be applied after a fork."""

    mode: Mode
    landlock_abi: int
    ruleset: int | None
    filter: seccomp.Filter | None
    address_space: int
    fallback: seccomp.Filter | None = None
    """The filter for where the other one can't be had."""

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers, outermost first."""
        if self.mode == "off":
            return ()
        files = f"landlock (ABI {self.landlock_abi})" if self.ruleset is not None else "no opening of files"
        return ("no new privileges", "no capabilities", "rlimits", files, "seccomp")

    def apply(self, cpu_s: int | None = None) -> int | None:
        """Give up, in a fresh single-threaded process, everything generated code must not have.

        Returns the listener of a filter that asks. Raises SandboxUnavailable with the layer that could not be applied.
        """
        if self.mode == "off":
            return None
        layer = "rlimits"
        try:
            linux.undumpable()
            _set_limits(self.address_space, cpu_s)
            linux.forbid_new_privileges()
            if self.ruleset is not None:
                layer = "landlock"
                landlock.restrict_self(self.ruleset)
                os.close(self.ruleset)
            if self.filter is not None:
                layer = "seccomp"
                return self._install_filter(self.filter)
        except (OSError, ValueError) as error:
            raise SandboxUnavailable(f"{layer} can't be applied: {error}") from error
        return None

    def _install_filter(self, chosen: seccomp.Filter) -> int | None:
        try:
            return chosen.install(os.getpid())
        except OSError:  # above all EBUSY: a container's own supervisor listens already
            if self.fallback is None:
                raise
            return self.fallback.install(os.getpid())


def prepare(mode: Mode, limits: Limits, packages: Sequence[str] = ()) -> LockDown:
    """Choose the layers for this machine; raise SandboxUnavailable where a required one is missing.

    :param packages: Installed packages that workers may read, besides those that every worker may.
    """
    if mode == "off":
        return LockDown("off", 0, None, None, 0)
    if sys.platform != "linux":
        raise SandboxUnavailable(f"cannot isolate generated code: no sandbox for {sys.platform}; {_WAY_OUT}")
    if not seccomp.is_available():
        raise SandboxUnavailable(
            f"cannot isolate generated code: seccomp filters are not available ({platform.machine()}, kernel "
            f"{platform.release()}); {_WAY_OUT}"
        )
    abi = landlock.abi_version()
    if mode == "strict" and not abi:
        raise SandboxUnavailable(
            "cannot isolate generated code as strictly as asked: Landlock is not available (a kernel from 5.13 with "
            f"landlock in its list of security modules); use mode 'auto', or {_WAY_OUT}"
        )
    strict = abi > 0 and mode != "nofs"
    return LockDown(
        mode="strict" if strict else "nofs",
        landlock_abi=abi,
        ruleset=landlock.create_ruleset(library_rules(packages)) if strict else None,
        filter=seccomp.build_filter(opening=strict),
        address_space=_mapped_bytes() + (limits.memory_mb << 20),
    )


def _mapped_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()


def _set_limits(address_space: int, cpu_s: int | None) -> None:
    _lower(resource.RLIMIT_AS, address_space)
    _lower(resource.RLIMIT_FSIZE, 0)
    _lower(resource.RLIMIT_NOFILE, _OPEN_FILES)
    _lower(resource.RLIMIT_CORE, 0)
    if cpu_s is not None:
        _lower(resource.RLIMIT_CPU, cpu_s)


def _lower(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def _open(path: str, flags: int) -> None:
    os.close(os.open(path, flags))


def _allocate() -> None:
    try:
        bytearray(64 << 30)
    except MemoryError as error:
        raise OSError(errno.ENOMEM, "no memory") from error


_ATTEMPTS: dict[str, Callable[[], object]] = {
    "socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close(),
    "fork": _fork,
    "exec": lambda: os.execv(sys.executable, ["python", "-c", ""]),
    "write": lambda: _open("/dev/null", os.O_WRONLY),
    "signal": lambda: os.kill(os.getppid(), 0),
    "read": lambda: _open("/", os.O_RDONLY),
    "proc": lambda: _open("/proc/self/environ", os.O_RDONLY),
    "memory": _allocate,
}


def self_test(mode: Mode) -> dict[str, str]:
    """Try what must fail; return what happened per attempt: the errno's name, or `allowed`."""
    return {name: _try(attempt) for name, attempt in _ATTEMPTS.items()} if mode != "off" else {}


def not_refused(mode: Mode, tested: Mapping[str, str]) -> list[str]:
    """Name the attempts that did not fail as they must, or were not made."""
    return [] if mode == "off" else [name for name in _ATTEMPTS if tested.get(name) not in _REFUSALS]


def _try(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "unknown")
    return "allowed"
