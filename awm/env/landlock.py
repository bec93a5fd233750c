"""Landlock: the kernel's own rules on which paths a process may reach.

A ruleset grants reading of some paths and nothing else: no writing, no TCP, no signal or abstract socket out of the
sandbox, as far as the kernel's ABI version knows these words. It is made once and applied in each worker.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from typing import NamedTuple

from awm.env.linux import syscall

__all__ = ["ReadRule", "abi_version", "create_ruleset", "restrict_self"]

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same number on every architecture
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1

_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_FILE_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15}  # how many rights on files each version knows; later ones 16
_TCP_BIND_AND_CONNECT = 0b11  # from ABI 4
_SCOPE_SOCKETS_AND_SIGNALS = 0b11  # from ABI 6


class ReadRule(NamedTuple):
    """One path a worker may use: read beneath it, or only list the directories beneath it."""

    path: str
    list_only: bool = False


def abi_version() -> int:
    """Return the kernel's Landlock ABI version, 0 where there is none or it is switched off or filtered."""
    try:
        return syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_CREATE_RULESET_VERSION))
    except OSError:
        return 0


def create_ruleset(rules: Iterable[ReadRule]) -> int:
    """Make a ruleset that handles every right and grants what the rules say; return its file descriptor.

    Paths that don't exist or can't be opened grant nothing. Raise OSError where Landlock is missing.
    """
    abi = abi_version()
    attributes = struct.pack(
        "=QQQ",
        (1 << _FILE_RIGHTS_BY_ABI.get(abi, 16)) - 1,
        _TCP_BIND_AND_CONNECT if abi >= 4 else 0,
        _SCOPE_SOCKETS_AND_SIGNALS if abi >= 6 else 0,
    )[: 24 if abi >= 6 else 16 if abi >= 4 else 8]
    ruleset = syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    for rule in rules:
        _grant(ruleset, rule)
    return ruleset


def _grant(ruleset: int, rule: ReadRule) -> None:
    try:
        beneath = os.open(rule.path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rights = _READ_DIR if rule.list_only else _READ_FILE | _READ_DIR
        if not os.path.isdir(rule.path):
            rights &= ~_READ_DIR  # the kernel refuses rights on directories for a file
        attributes = struct.pack("=Qi", rights, beneath)
        syscall(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_RULE_PATH_BENEATH), attributes, ctypes.c_uint32(0))
    finally:
        os.close(beneath)


def restrict_self(ruleset: int) -> None:
    """Apply a ruleset to this process for good; it must have given up new privileges before."""
    syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
